"""Owns the output of commands: data on stdout as table, JSON or YAML, messages on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trilithon.errors import InvalidJob, Problem, TrilithonError


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    Format, typer.Option("--output", "-o", help="How to print the answer.", case_sensitive=False)
]
MISSING = "–"
MOST_PROBLEMS = 50


def data_console() -> Console:
    """As wide as the terminal; 200 columns into a pipe, so that nothing is cut off."""
    width = None if sys.stdout.isatty() else 200
    return Console(file=sys.stdout, highlight=False, soft_wrap=False, width=width)


def message_console() -> Console:
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Prints progress to stderr: one changing line on a terminal, else one line per message."""
    watched = sys.stderr.isatty()

    def tell(message: str) -> None:
        sys.stderr.write(f"\r\x1b[K{message}" if watched else f"{message}\n")
        sys.stderr.flush()

    try:
        yield tell
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def answer(output: Format, data: Any, draw: Callable[[Console], None]) -> None:
    """Prints data in the format of --output."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    elif output is Format.YAML:
        from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, and seldom asked for

        yaml = YAML()
        yaml.width = 100
        yaml.dump(data, sys.stdout)
    else:
        draw(data_console())


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table with numbers aligned right; a missing value is a dash."""
    listed = [list(row) for row in rows]
    drawn = Table(
        title=None if title is None else Text(title),
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for i, name in enumerate(columns):
        values = [row[i] for row in listed if row[i] is not None]
        numeric = bool(values) and all(isinstance(v, int | float) for v in values)
        justify: Literal["right", "left"] = "right" if numeric else "left"
        drawn.add_column(name, justify=justify, header_style="dim", no_wrap=True)
    for row in listed:
        drawn.add_row(*(cell(value) for value in row))
    return drawn


def cell(value: Any) -> Text:
    if value is None:
        return Text(MISSING, style="dim")
    if isinstance(value, Text):
        return value
    if isinstance(value, float):
        return Text(number(value))
    return Text(str(value))


def number(value: float) -> str:
    """Three significant digits, without trailing zeros."""
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}"


def complain(error: TrilithonError) -> None:
    """Prints an error to stderr: what is wrong, where, and what to do."""
    console = message_console()
    problems = error.problems if isinstance(error, InvalidJob) else ()
    console.print(
        Text.assemble(
            ("error ", "bold red"),
            (error.code, "bold"),
            f": {error.message}",
        )
    )
    if error.hint:
        console.print(Text(f"  {error.hint}", style="dim"))
    draw_problems(problems, console)


def draw_problems(problems: Sequence[Problem], console: Console) -> None:
    """The first problems; a file that is wrong throughout would fill the screen."""
    for problem in problems[:MOST_PROBLEMS]:
        console.print(problem_text(problem), soft_wrap=True)
    if (more := len(problems) - MOST_PROBLEMS) > 0:
        console.print(f"  and {more} more; -o json prints all", soft_wrap=True)


def problem_text(problem: Problem) -> Text:
    place = ":".join(str(part) for part in (problem.file, problem.line) if part is not None)
    return Text.assemble(
        "  ",
        (f"{place} " if place else "", "cyan"),
        (problem.code, "bold"),
        f" {problem.path}" if problem.path else "",
        f"\n      {problem.message}",
        (f" {problem.hint}" if problem.hint else "", "dim"),
    )
