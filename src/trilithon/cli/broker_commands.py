"""Owns the commands `broker …` of the embedded Kafka broker."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trilithon.cli.output import (
    MISSING,
    Format,
    Listing,
    Output,
    answer,
    message_console,
    progress,
)
from trilithon.engines.spark import broker
from trilithon.errors import BrokerUnavailable

app = typer.Typer(
    help="A Kafka broker for one machine: for demos and tests.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="The folder of its data and its log.", show_default="the state folder"
    ),
]


@app.command()
def start(folder: Folder = None, output: Output = Format.TABLE) -> None:
    """Start the broker in the background and print its address. A running one is left alone."""
    with progress() as tell:
        running = broker.EmbeddedBroker.start(folder, detached=True, progress=tell)
    if not running.started:
        message_console().print("The broker was already running.", style="dim")
    data = {
        "address": running.address,
        "pid": running.pid,
        "started": running.started,
        "folder": str(running.folder),
    }
    answer(output, data, lambda console: console.print(running.address, soft_wrap=True))


@app.command()
def stop(folder: Folder = None, output: Output = Format.TABLE) -> None:
    """Stop the broker and wait for its end. Its data stays."""
    pid = broker.stop(folder)

    def draw(console: Console) -> None:
        console.print("No broker was running." if pid is None else f"Stopped process {pid}.")

    answer(output, {"stopped": pid is not None, "pid": pid}, draw)


@app.command()
def status(folder: Folder = None, output: Output = Format.TABLE) -> None:
    """Print whether the broker runs and answers. Exits with 9 if it does not."""
    current = broker.status(folder)
    data: dict[str, Any] = {
        "running": current.pid is not None,
        "answers": current.answers,
        "address": current.address,
        "pid": current.pid,
        "folder": str(current.folder),
        "log": str(current.log),
    }

    def draw(console: Console) -> None:
        rows = [(name, MISSING if value is None else str(value)) for name, value in data.items()]
        console.print(Listing(("", ""), rows), crop=False)

    answer(output, data, draw)
    if not current.answers:
        raise typer.Exit(BrokerUnavailable.exit_code)
