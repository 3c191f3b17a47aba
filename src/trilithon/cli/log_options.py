"""Owns the options of the commands whose processes write logs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from trilithon import logs
from trilithon.cli.output import progress
from trilithon.logs import LogLevel

Level = Annotated[
    LogLevel, typer.Option("--log-level", help="The least severe events that are logged.")
]
AsJson = Annotated[
    bool, typer.Option("--log-json", help="Log a JSON object per line instead of text.")
]


@contextmanager
def announcing(*, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Progress of a process that writes logs: events among its JSON lines, else text for people."""
    if as_json:
        yield lambda message: logs.logger().info("progress", message=message)
    else:
        with progress() as tell:
            yield tell


def log_arguments(level: LogLevel, *, as_json: bool) -> list[str]:
    """These options for a process that this one starts."""
    return ["--log-level", level.value, *(["--log-json"] if as_json else [])]
