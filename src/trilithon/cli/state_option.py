"""Owns the option `--state` of every command that uses the state folder."""

import os
from pathlib import Path
from typing import Annotated

import typer.main
from typer.core import TyperOption

VARIABLE = "TRILITHON_STATE"


def _use(folder: str | None) -> None:
    """By the environment, so that processes that a command starts use the same folder."""
    if folder is not None:
        os.environ[VARIABLE] = str(Path(folder).expanduser().absolute())


State = Annotated[
    str | None,
    typer.Option(
        "--state",
        help=f"The state folder; default: ${VARIABLE}, or ~/.local/state/trilithon.",
        metavar="FOLDER",
        callback=_use,
        is_eager=True,
        expose_value=False,
        show_default=False,
    ),
]


def state_option() -> TyperOption:
    """The option for a command whose function does not know it."""

    def carrier(state: State = None) -> None:
        del state

    only = typer.Typer(add_completion=False)
    only.command()(carrier)
    for option in typer.main.get_command(only).params:
        if isinstance(option, TyperOption) and option.name == "state":
            return option
    raise AssertionError
