"""Loads the jobs of a file: YAML is parsed, Python is executed with the user's rights. Says what an
engine would refuse of them, with the lines of the file.
"""

import runpy
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trilithon import pipelines
from trilithon.engines.spark import compiler
from trilithon.errors import FileUnreadable, InvalidJob, Problem, TrilithonError
from trilithon.model.job import Job
from trilithon.spec.job_file import load_document


class EngineName(StrEnum):
    """The engines, as `--engine` names them."""

    SPARK = "spark"
    SIMULATED = "simulated"


Engine = Annotated[
    EngineName,
    typer.Option("--engine", help="Report also what this engine would refuse of a valid job."),
]


@dataclass(frozen=True)
class LoadedJob:
    """A job, and what gives a problem of it the file and the line of the part it is about."""

    job: Job
    locate: Callable[[Problem], Problem]

    def refusal(self, engine: EngineName) -> InvalidJob | None:
        """Every reason why an engine cannot run the job. The simulated one runs every valid job."""
        if engine is EngineName.SIMULATED:
            return None
        problems = tuple(compiler.unsupported(self.job))
        return self.located(InvalidJob(problems)) if problems else None

    def located(self, error: InvalidJob) -> InvalidJob:
        """A refusal by the Spark engine with the lines of the file, from top to bottom."""
        problems = sorted(map(self.locate, error.problems), key=lambda problem: problem.line or 0)
        return InvalidJob(
            problems, self.job.id, " on Spark", "The simulated cluster runs it: --engine simulated."
        )


def jobs_in(path: Path) -> list[LoadedJob]:
    """The jobs that a file defines. Python runs here, on the user's own machine, never in a
    daemon, which gets data only.
    """
    if path.suffix != ".py":
        job, document = load_document(path)
        return [LoadedJob(job, document.locate)]
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
    jobs = [LoadedJob(job, locate) for job, locate in built if id(job) in named]
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


def jobs_for_spark(files: Iterable[Path]) -> list[Job]:
    """The jobs of these files. Raises what the Spark engine would refuse before Spark is started;
    of several refused jobs the first.
    """
    loaded = [job for file in files for job in jobs_in(file)]
    for job in loaded:
        if (refusal := job.refusal(EngineName.SPARK)) is not None:
            raise refusal
    return [job.job for job in loaded]


def _failed(path: Path, error: BaseException) -> Problem:
    """The problem of a file that failed, with the last of its lines that ran."""
    if isinstance(error, SyntaxError):
        line = error.lineno
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(frames) if Path(f.filename) == path), None)
    message = f"The file failed: {type(error).__name__}: {error}."
    return Problem("PYTHON_FAILED", "", message, "Run it with Python to see more.", str(path), line)
