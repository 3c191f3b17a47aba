"""Owns the options of the commands whose processes write logs."""

from typing import Annotated

import typer

from trilithon.logs import LogLevel

Level = Annotated[
    LogLevel, typer.Option("--log-level", help="The least severe events that are logged.")
]
AsJson = Annotated[
    bool, typer.Option("--log-json", help="Log a JSON object per line instead of text.")
]


def log_arguments(level: LogLevel, *, as_json: bool) -> list[str]:
    """These options for a process that this one starts."""
    return ["--log-level", level.value, *(["--log-json"] if as_json else [])]
