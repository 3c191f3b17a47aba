"""Owns the command `run`: jobs on a host in this process, with a live view and no controller."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from trilithon import logs
from trilithon.cli import live
from trilithon.cli.job_files import jobs_in
from trilithon.cli.log_options import AsJson, Level, announcing
from trilithon.cli.output import Format, Output, answer, message_console
from trilithon.cli.processes import socket_path
from trilithon.cli.settings import span
from trilithon.cli.spark_options import (
    MASTER,
    SLOTS,
    Executors,
    Kafka,
    KafkaSettings,
    Master,
    Slots,
    SparkSettings,
)
from trilithon.cli.spark_setup import setup_of
from trilithon.contract.engine import Engine, Outcome, Status
from trilithon.contract.watch import Watcher
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.application import Setup, application
from trilithon.errors import Refused, TrilithonError
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.recording.snapshot_folder import SnapshotFolder

_log = logs.logger()


def run_command(
    files: Annotated[list[Path], typer.Argument(help="Job files.", show_default=False)],
    master: Master = MASTER,
    kafka: Kafka = None,
    kafka_settings: KafkaSettings = None,
    length_s: Annotated[
        float | None,
        typer.Option("--for", help="How long to run, such as 60s.", parser=span, metavar="SPAN"),
    ] = None,
    slots: Slots = SLOTS,
    quota: Annotated[
        list[str] | None,
        typer.Option("--quota", help="TENANT=SLOTS: how many slots a tenant may use; repeatable."),
    ] = None,
    executors: Executors = None,
    spark_settings: SparkSettings = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Record a snapshot each second in this folder.")
    ] = None,
    log_level: Level = logs.LogLevel.WARNING,
    log_json: AsJson = False,
    output: Output = Format.TABLE,
) -> None:
    """Run jobs on Spark without a controller and show live figures. Ctrl-C or --for ends them."""
    jobs = [job for file in files for job in jobs_in(file)]
    logs.configure(log_level, json=log_json)
    setup = setup_of(master, slots, kafka, kafka_settings, executors, spark_settings, quota)
    with contextlib.ExitStack() as ending:
        tell = ending.enter_context(announcing(as_json=log_json))
        # Before Spark starts: a folder that cannot be written is refused at once.
        recorder = None if record is None else ending.enter_context(SnapshotFolder(record))
        engine = ending.enter_context(running(setup, jobs, tell))
        figures = watch(Watcher(engine), length_s, recorder)
    answer(output, figures, lambda console: console.print(live.draw(figures)))


def watch(
    watcher: Watcher, length_s: float | None, recorder: SnapshotFolder | None = None
) -> list[dict[str, Any]]:
    """Shows the figures every second, and records the snapshots they come from, until the time is
    over or Ctrl-C.
    """
    console = message_console()
    began = time.monotonic()
    figures: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as shown:
        while length_s is None or time.monotonic() - began < length_s:
            # A look or a recording that fails is no reason to end jobs that run.
            try:
                figures = watcher.look(time.time())
                if recorder is not None:
                    recorder.write(watcher.observer.series.last)
            except TrilithonError as error:
                _log.warning("look_failed", code=error.code, message=error.message)
            except OSError:
                _log.exception("recording_stopped")
                recorder = None
            shown.update(live.draw(figures), refresh=True)
            time.sleep(1.0)
    return figures


@contextlib.contextmanager
def running(setup: Setup, jobs: list[Job], tell: Callable[[str], None]) -> Iterator[Engine]:
    """Starts Spark, a host and these jobs, and stops them all at the end.

    This process is a client of its own host: it talks to it over the socket, as `rescale` does.
    """
    with application(setup, jobs, tell) as engine, contextlib.ExitStack() as ending:
        host = Host(engine, socket_path())
        ending.enter_context(host.in_background())
        remote = RemoteEngine(host.path, timeout_s=300)
        ending.callback(remote.close)
        ending.callback(tell, "stopping")
        for job in jobs:
            tell(f"starting {job.id}")
            _check_started(job, remote.submit(job, initial(job)))
        tell(f"{len(jobs)} jobs are running; Ctrl-C stops them")
        yield remote


def _check_started(job: Job, outcome: Outcome) -> None:
    if outcome.status is not Status.DONE:
        raise Refused(outcome.code, f"{job.id} was not started. {outcome.message}")
