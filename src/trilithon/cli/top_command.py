"""Owns the command `top`: jobs, figures and decisions of the daemon, live on the screen."""

import contextlib
import time
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from trilithon.cli import live
from trilithon.cli.client import Client, client
from trilithon.cli.cluster_commands import headline
from trilithon.cli.output import data_console


def top_command(
    every: Annotated[float, typer.Option("--every", help="Seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
) -> None:
    """Show live what jobs do and what the controller decides. Ends on Ctrl-C."""
    with client() as daemon:
        if once:
            data_console().print(_screen(daemon), crop=False)
            return
        with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=True) as shown:
            while True:
                shown.update(_screen(daemon), refresh=True)
                time.sleep(every)


def _screen(daemon: Client) -> RenderableType:
    lines = [
        Text.assemble(
            (decision["time"][11:], "dim"),
            "  ",
            (decision["job"] or "cluster", "bold"),
            "  ",
            decision["sentences"][0],
        )
        for decision in daemon.get("/decisions", limit=8)
    ]
    return Group(
        headline(daemon.get("/cluster")), Text(), live.draw(_figures(daemon)), Text(), *lines
    )


def _figures(daemon: Client) -> list[dict[str, Any]]:
    """The figures of all jobs; of those that do not run, the state and the problem."""
    figures = {job["job"]: job for job in daemon.get("/figures")}
    unknown: dict[str, Any] = {"constraints": [], "operators": []}
    return [
        {
            **figures.get(job["job"], unknown),
            "job": job["job"],
            "health": job["state"],
            "reason": job["problem"],
        }
        for job in daemon.get("/jobs")
    ]
