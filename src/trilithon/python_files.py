"""Runs a Python file that defines jobs, and collects them.

Whoever calls this runs the file's code: the command line with the rights of its user, and the
engine host in a process of its own. A daemon never does.
"""

import runpy
import traceback
from pathlib import Path

from trilithon import pipelines
from trilithon.errors import FileUnreadable, InvalidJob, Problem, TrilithonError
from trilithon.model.job import Job


def jobs_of_python(path: Path) -> list[tuple[Job, pipelines.Locate]]:
    """The jobs that a file assigns to names, each with what finds the lines of its parts."""
    if not path.is_file():
        why = "it is a folder" if path.is_dir() else "no such file"
        raise FileUnreadable(f"{path} cannot be read: {why}.", "Check the name.")
    with pipelines.definitions() as built:
        try:
            module = runpy.run_path(str(path))
        except TrilithonError:
            raise
        except (Exception, SystemExit) as error:  # the user's own code may fail in any way
            raise InvalidJob([_failed(path, error)], str(path)) from error
    named = {id(value) for value in module.values() if isinstance(value, Job)}
    jobs = [(job, locate) for job, locate in built if id(job) in named]
    if not jobs:
        hint = "End it with job = tp.job(…)."
        problem = Problem("NOT_A_JOB", "", "The file defines no job.", hint, str(path), 1)
        raise InvalidJob([problem], str(path))
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
