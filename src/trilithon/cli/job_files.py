"""Loads the jobs of a file: YAML is parsed, Python is executed with the user's rights."""

import runpy
import traceback
from pathlib import Path

from trilithon import pipelines
from trilithon.errors import FileUnreadable, InvalidJob, Problem, TrilithonError
from trilithon.model.job import Job
from trilithon.spec.job_file import load_job


def jobs_in(path: Path) -> list[Job]:
    """The jobs that a file defines. Python runs here, on the user's own machine, never in a
    daemon, which gets data only.
    """
    if path.suffix != ".py":
        return [load_job(path)]
    if not path.is_file():
        why = "it is a folder" if path.is_dir() else "no such file"
        raise FileUnreadable(f"{path} cannot be read: {why}.", "Check the name.")
    with pipelines.definitions():
        try:
            module = runpy.run_path(str(path))
        except TrilithonError:
            raise
        except (Exception, SystemExit) as error:  # the user's own code may fail in any way
            raise InvalidJob([_failed(path, error)], str(path)) from error
    jobs = [value for value in module.values() if isinstance(value, Job)]
    if not jobs:
        raise InvalidJob(
            [
                Problem(
                    "NOT_A_JOB",
                    "",
                    "The file defines no job.",
                    "End it with job = tp.job(…).",
                    str(path),
                    1,
                )
            ],
            str(path),
        )
    return jobs


def _failed(path: Path, error: BaseException) -> Problem:
    """The problem of a file that failed, with the last of its lines that ran."""
    if isinstance(error, SyntaxError):
        line = error.lineno
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if Path(f.filename) == path), None)
    message = f"The file failed: {type(error).__name__}: {error}."
    return Problem("PYTHON_FAILED", "", message, "Run it with Python to see more.", str(path), line)
