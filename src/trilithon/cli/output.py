"""Owns the output of commands: data on stdout as table, JSON or YAML, messages on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
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
# Of what is not a terminal: wide enough for every line, so that nothing is cut or wrapped.
UNLIMITED = 100_000


def data_console() -> Console:
    """As wide as the terminal; without one, as wide as its lines."""
    width = None if sys.stdout.isatty() else UNLIMITED
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


class Listing:
    """A table in which a row may have notes, each on a line of its own. No cell is ever cut: where
    the terminal is too narrow, `optional` columns are left out, the first of them first.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        notes: Iterable[Sequence[Text]] = (),
        optional: Sequence[str] = (),
    ) -> None:
        self.columns, self.rows = tuple(columns), [tuple(row) for row in rows]
        self.notes = [tuple(row) for row in notes] or [()] * len(self.rows)
        self.optional = tuple(optional)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unlimited = options.update(width=UNLIMITED)
        for left_out in range(len(self.optional) + 1):
            drawn = self._table(set(self.optional[:left_out]))
            width = Measurement.get(console, unlimited, drawn).maximum
            if width <= options.max_width:
                break
        lines = console.render_lines(drawn, unlimited.update(width=width), pad=False)
        for line, notes in zip(lines, [(), *self.notes], strict=True):
            yield from line
            yield Segment.line()
            for note in notes:
                yield Padding(note, (0, 0, 0, 2), expand=False)

    def _table(self, left_out: set[str]) -> Table:
        kept = [i for i, name in enumerate(self.columns) if name not in left_out]
        rows = [[row[i] for i in kept] for row in self.rows]
        return table(None, [self.columns[i] for i in kept], rows)


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 job`, `2 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
