"""Owns the command `validate`: every problem of job files, with its line and how to fix it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from trilithon.cli.engine_name import EngineName
from trilithon.cli.job_files import Engine, jobs_in
from trilithon.cli.output import Format, Output, answer, draw_problems
from trilithon.errors import InvalidJob, TrilithonError


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What is to be said of one job, or of a file from which no job can be read."""

    file: str
    job: str | None = None
    error: TrilithonError | None = None

    def as_data(self) -> dict[str, Any]:
        if self.error is None:
            return {"file": self.file, "job": self.job, "valid": True, "problems": []}
        problems = self.error.problems if isinstance(self.error, InvalidJob) else ()
        return {
            "file": self.file,
            "job": self.job,
            "valid": False,
            "code": self.error.code,
            "message": self.error.message,
            "hint": self.error.hint,
            "problems": [asdict(problem) for problem in problems],
        }


def validate_command(
    files: Annotated[
        list[Path], typer.Argument(help="Job files: YAML, or Python.", show_default=False)
    ],
    engine: Engine = EngineName.SPARK,
    output: Output = Format.TABLE,
) -> None:
    """Check job files and print every problem. Each comes with its line and how to fix it."""
    results: list[ValidationResult] = []
    for path in files:
        try:
            results += [
                ValidationResult(str(path), loaded.job.id, loaded.refusal(engine))
                for loaded in jobs_in(path)
            ]
        except TrilithonError as error:
            results.append(ValidationResult(str(path), error=error))
    data = [result.as_data() for result in results]
    answer(output, data, lambda console: _draw(results, console))
    raise typer.Exit(max((r.error.exit_code for r in results if r.error is not None), default=0))


def _draw(results: Sequence[ValidationResult], console: Console) -> None:
    for result in results:
        error = result.error
        if error is None:
            console.print(Text.assemble(("ok  ", "green"), result.file, (f"  {result.job}", "dim")))
            continue
        named = result.file in error.message
        message = error.message if named else f"{result.file}: {error.message}"
        console.print(
            Text.assemble(("bad ", "red"), message, (f" {error.hint}", "dim")), soft_wrap=True
        )
        draw_problems(error.problems if isinstance(error, InvalidJob) else (), console)
