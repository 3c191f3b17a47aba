"""Owns the command `top`: jobs, figures and decisions of the daemon, live on the screen."""

import contextlib
import time
from typing import Annotated, Any

import typer
from rich.live import Live

from trilithon.cli.client import Client, client
from trilithon.cli.cluster_commands import headline
from trilithon.cli.job_rows import job_row
from trilithon.cli.keys import pressed_keys
from trilithon.cli.output import data_console
from trilithon.cli.top_screen import TopScreen
from trilithon.errors import TrilithonError
from trilithon.spec.job_builder import build_job


def top_command(
    every: Annotated[float, typer.Option("--every", help="Seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
) -> None:
    """Show live what jobs do and what the controller decides. Keys: s sorts, g draws the graph, w
    explains, p pauses or resumes, q ends.
    """
    screen = TopScreen(has_keys=not once)
    with client() as daemon:
        if once:
            _look(daemon, screen)
            data_console().print(screen.draw(headline(daemon.get("/cluster"))), crop=False)
            return
        with (
            contextlib.suppress(KeyboardInterrupt),
            pressed_keys() as key,
            Live(auto_refresh=False, screen=True) as shown,
        ):
            while not screen.ended:
                _look(daemon, screen)
                head = headline(daemon.get("/cluster"))
                shown.update(screen.draw(head), refresh=True)
                until_s = time.monotonic() + every
                while (letter := key(until_s - time.monotonic())) is not None:
                    _press(daemon, screen, letter)
                    shown.update(screen.draw(head), refresh=True)
                    if screen.ended:
                        break


def _look(daemon: Client, screen: TopScreen) -> None:
    screen.take(_figures(daemon), daemon.get("/decisions", limit=8))
    _look_closer(daemon, screen)


def _look_closer(daemon: Client, screen: TopScreen) -> None:
    """What the open view shows of the selected job."""
    if screen.selected is None:
        return
    if screen.view == "why":
        path = f"/jobs/{screen.selected}/explanation"
        screen.explanations = daemon.get(path, limit=8)
    elif screen.view == "graph" and (screen.graph is None or screen.graph.id != screen.selected):
        screen.graph = build_job(daemon.get(f"/jobs/{screen.selected}")["spec"])


def _press(daemon: Client, screen: TopScreen, letter: str) -> None:
    command = screen.press(letter)
    if command is not None:
        what, job = command
        try:
            state = daemon.post(f"/jobs/{job}/{what}")["status"]["state"]
            screen.message = f"{job}: {state}   "
        except TrilithonError as error:
            screen.message = f"{error.message}   "
    _look_closer(daemon, screen)


def _figures(daemon: Client) -> list[dict[str, Any]]:
    """The figures of all jobs; of those that do not run, the state and the problem. What a job
    loses comes from the list of jobs, as on the dashboard.
    """
    figures = {job["job"]: job for job in daemon.get("/figures")}
    jobs = daemon.get("/jobs")
    unknown: dict[str, Any] = {"constraints": [], "operators": []}
    return [
        {
            **figures.get(job["job"], unknown),
            "job": job["job"],
            "health": job["state"],
            "reason": job["problem"],
            "max_utility": job["max_utility"],
            "lost_utility": job["lost_utility"],
        }
        for job in ({**job_row(each), **each["status"]["numbers"]} for each in jobs)
    ]
