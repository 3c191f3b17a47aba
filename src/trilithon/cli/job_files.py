"""Loads the jobs of a file: YAML is parsed, Python is executed with the user's rights. Says what an
engine would refuse of them, with the lines of the file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trilithon.cli.engine_name import EngineName
from trilithon.engines.spark import compiler
from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Job
from trilithon.python_files import jobs_of_python
from trilithon.spec.job_file import load_document

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
    return [LoadedJob(job, locate) for job, locate in jobs_of_python(path)]


def jobs_for_spark(files: Iterable[Path]) -> list[Job]:
    """The jobs of these files. Raises what the Spark engine would refuse before Spark is started;
    of several refused jobs the first.
    """
    loaded = [job for file in files for job in jobs_in(file)]
    for job in loaded:
        if (refusal := job.refusal(EngineName.SPARK)) is not None:
            raise refusal
    return [job.job for job in loaded]
