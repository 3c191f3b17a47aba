"""Owns running jobs from the command line: the host in this process, a live view on top of it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.text import Text

from trilithon import folders
from trilithon.cli import live
from trilithon.cli.jobs import jobs_in
from trilithon.cli.options import (
    MASTER,
    SLOTS,
    Executors,
    Kafka,
    KafkaSettings,
    Master,
    Slots,
    SparkSettings,
    setup_of,
    span,
)
from trilithon.cli.output import Format, Output, answer, message_console, progress
from trilithon.contract.engine import Engine, Outcome, Reallocate, Status
from trilithon.contract.watch import Watcher
from trilithon.engines.host import Host
from trilithon.engines.remote import RefusedByHost, RemoteEngine
from trilithon.errors import NotFound, TrilithonError
from trilithon.model.allocation import initial
from trilithon.model.job import Job

if TYPE_CHECKING:
    from trilithon.engines.spark.application import Setup


def socket_path() -> Path:
    return folders.state() / "host.sock"


def run_command(
    files: Annotated[list[Path], typer.Argument(help="Job files.", show_default=False)],
    master: Master = MASTER,
    kafka: Kafka = None,
    kafka_settings: KafkaSettings = None,
    length_s: Annotated[
        float | None,
        typer.Option("--for", help="How long to run, as in 60s.", parser=span, metavar="SPAN"),
    ] = None,
    slots: Slots = SLOTS,
    quota: Annotated[
        list[str] | None,
        typer.Option("--quota", help="TENANT=SLOTS: how many of them a tenant may use."),
    ] = None,
    executors: Executors = None,
    spark_settings: SparkSettings = None,
    output: Output = Format.TABLE,
) -> None:
    """Run jobs on Spark and show live what they do, until Ctrl-C or the time is over."""
    jobs = [job for file in files for job in jobs_in(file)]
    setup = setup_of(master, slots, kafka, kafka_settings, executors, spark_settings, quota)
    with progress() as tell, running(setup, jobs, tell) as engine:
        figures = _watch(Watcher(engine), length_s)
    answer(output, figures, lambda console: console.print(live.draw(figures)))


def _watch(watcher: Watcher, length_s: float | None) -> list[dict[str, Any]]:
    """Shows the figures every second until the time is over or somebody has had enough."""
    console = message_console()
    began = time.monotonic()
    figures: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as shown:
        while length_s is None or time.monotonic() - began < length_s:
            # A look that fails is no reason to end jobs that run.
            with contextlib.suppress(TrilithonError):
                figures = watcher.look(time.time())
            shown.update(live.draw(figures), refresh=True)
            time.sleep(1.0)
    return figures


@contextlib.contextmanager
def running(setup: "Setup", jobs: list[Job], tell: Callable[[str], None]) -> Iterator[Engine]:
    """These jobs on a host, and all that they need; everything is ended at the end.

    This process talks to the host like any other: over its socket.
    """
    from trilithon.engines.spark.application import application  # noqa: PLC0415

    with application(setup, jobs, tell) as engine, contextlib.ExitStack() as ending:
        host = Host(engine, socket_path())
        ending.enter_context(host.in_background())
        remote = RemoteEngine(host.path, patience_s=300)
        ending.callback(remote.close)
        ending.callback(tell, "stopping")
        for job in jobs:
            tell(f"starting {job.id}")
            _accepted(job, remote.submit(job, initial(job)))
        tell(f"{len(jobs)} jobs run; Ctrl-C ends them")
        yield remote


def _accepted(job: Job, outcome: Outcome) -> None:
    if outcome.status is not Status.DONE:
        raise RefusedByHost(outcome.code, f"{job.id} is not started. {outcome.message}")


def rescale_command(
    job: Annotated[str, typer.Argument(help="tenant/name, or just the name.", show_default=False)],
    changes: Annotated[list[str], typer.Argument(help="OPERATOR=INSTANCES …", show_default=False)],
    socket: Annotated[Path | None, typer.Option("--socket", help="Where the host answers.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Change how many instances a running job's operators have, from another terminal."""
    wanted = dict(_change(text) for text in changes)
    remote = RemoteEngine(socket or socket_path())
    try:
        found = remote.jobs()
        names = [name for name in found if job in {name, name.partition("/")[2]}]
        if len(names) != 1:
            raise NotFound(f"No job {job!r} runs.", f"There are: {', '.join(found) or 'none'}.")
        allocation = found[names[0]].allocation.rescaled(wanted)
        outcome = remote.apply(Reallocate(allocation))
    finally:
        remote.close()
    if outcome.status is not Status.DONE:
        raise RefusedByHost(outcome.code, outcome.message)
    data = {
        "job": names[0],
        "generation": allocation.generation,
        "parallelism": dict(allocation.parallelism),
    }
    line = ", ".join(f"{name} ×{count}" for name, count in allocation.parallelism.items())
    answer(output, data, lambda console: console.print(Text(f"{names[0]}: {line}"), soft_wrap=True))


def _change(text: str) -> tuple[str, int]:
    operator, _, count = text.partition("=")
    if not count.isdigit() or int(count) < 1:
        raise typer.BadParameter(f"{text!r}: write OPERATOR=INSTANCES, with 1 or more.")
    return operator, int(count)
