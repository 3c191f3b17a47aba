"""Owns the commands of the embedded broker: start, stop, status."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trilithon.cli.output import Format, Output, answer, message_console, progress, table
from trilithon.engines.spark import broker
from trilithon.errors import BrokerUnavailable

app = typer.Typer(
    help="A Kafka broker for one machine: for demos and tests.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where its data and log are.", show_default="the state folder"),
]


@app.command()
def start(folder: Folder = None, output: Output = Format.TABLE) -> None:
    """Start the broker in the background and print its address; one that runs is left as it is."""
    with progress() as tell:
        running = broker.EmbeddedBroker.start(folder, detached=True, progress=tell)
    if not running.started:
        message_console().print("It was running already.", style="dim")
    data = {
        "address": running.address,
        "pid": running.pid,
        "started": running.started,
        "folder": str(running.folder),
    }
    answer(output, data, lambda console: console.print(running.address, soft_wrap=True))


@app.command()
def stop(folder: Folder = None, output: Output = Format.TABLE) -> None:
    """Stop the broker and wait until it is gone; its data stays."""
    pid = broker.stop(folder)

    def draw(console: Console) -> None:
        console.print("No broker was running." if pid is None else f"Stopped process {pid}.")

    answer(output, {"stopped": pid is not None, "pid": pid}, draw)


@app.command()
def status(folder: Folder = None, output: Output = Format.TABLE) -> None:
    """Tell whether the broker runs and answers; ends with 9 if it does not."""
    found = broker.status(folder)
    data: dict[str, Any] = {
        "running": found.pid is not None,
        "answers": found.answers,
        "address": found.address,
        "pid": found.pid,
        "folder": str(found.folder),
        "log": str(found.log),
    }

    def draw(console: Console) -> None:
        console.print(table(None, tuple(data), [tuple(data.values())]))

    answer(output, data, draw)
    if not found.answers:
        raise typer.Exit(BrokerUnavailable.exit_code)
