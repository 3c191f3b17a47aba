"""Owns the command `run`: jobs on a host in this process, with a live view and no controller."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from trilithon import logs
from trilithon.cli import live
from trilithon.cli.job_files import jobs_for_spark
from trilithon.cli.log_options import AsJson, Level, announcing
from trilithon.cli.output import Format, Listing, Output, answer, message_console, plural
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
from trilithon.contract.totals import Totals
from trilithon.contract.watch import Watcher
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.application import Setup, application
from trilithon.errors import Refused, TrilithonError
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.recording.snapshot_folder import SnapshotFolder
from trilithon.spec.durations import format_duration

_log = logs.logger()
# Without a terminal: how often a line per job is printed.
LINES_EVERY_S = 5.0
RUN_COLUMNS = {
    "in": "arrived",
    "out": "written",
    "failed": "failed",
    "in/s": "input_per_s",
    "out/s": "output_per_s",
    "p50 ms": "p50_ms",
    "p95 ms": "p95_ms",
}


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
    keep_broker: Annotated[
        bool,
        typer.Option("--keep-broker", help="Leave the embedded broker running at the end."),
    ] = False,
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
    jobs = jobs_for_spark(files)
    logs.configure(log_level, json=log_json)
    if keep_broker and kafka is not None:
        raise typer.BadParameter("--keep-broker is for the embedded broker, without --kafka.")
    setup = setup_of(
        master,
        slots,
        kafka,
        kafka_settings,
        executors,
        spark_settings,
        quota,
        keep_broker=keep_broker,
    )
    with contextlib.ExitStack() as ending:
        tell = ending.enter_context(announcing(as_json=log_json))
        # Before Spark starts: a folder that cannot be written is refused at once.
        recorder = None if record is None else ending.enter_context(SnapshotFolder(record))
        engine = ending.enter_context(running(setup, jobs, tell))
        figures = watch(Watcher(engine), length_s, recorder)
    answer(output, figures, lambda console: draw_run(figures, console))
    if keep_broker:
        message_console().print("The broker goes on; `trilithon broker stop` ends it.", style="dim")


def watch(
    watcher: Watcher, length_s: float | None, recorder: SnapshotFolder | None = None
) -> list[dict[str, Any]]:
    """Shows the figures every second, and records the snapshots they come from, until the time is
    over or Ctrl-C. Returns the last figures, each with those of the whole run.
    """
    began = time.monotonic()
    totals = Totals(time.time())
    figures: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt), _screen() as show:
        while (at_s := time.monotonic() - began) < (math.inf if length_s is None else length_s):
            # A look or a recording that fails is no reason to end jobs that run.
            try:
                figures = watcher.look(time.time())
                totals.add(watcher.observer.series.last, figures)
                if recorder is not None:
                    recorder.write(watcher.observer.series.last)
            except TrilithonError as error:
                _log.warning("look_failed", code=error.code, message=error.message)
            except OSError:
                _log.exception("recording_stopped")
                recorder = None
            show(at_s, figures)
            time.sleep(1.0)
    whole = totals.figures()
    return [{**job, "run": whole.get(job["job"])} for job in figures]


Show = Callable[[float, list[dict[str, Any]]], None]


@contextlib.contextmanager
def _screen() -> Iterator[Show]:
    """Shows figures on stderr: live on a terminal, which is left as it was before; else a line per
    job every few seconds.
    """
    console = message_console()
    if console.is_terminal:
        # The last message of the start is still on this line.
        console.file.write("\r\x1b[K")
        hint = Text("Ctrl-C stops the jobs", "dim")
        with Live(console=console, auto_refresh=False, transient=True) as shown:
            yield lambda _, figures: shown.update(
                Group(live.draw(figures), Text(), hint), refresh=True
            )
        return
    next_s = LINES_EVERY_S

    def print_lines(at_s: float, figures: list[dict[str, Any]]) -> None:
        nonlocal next_s
        if at_s >= next_s:
            next_s = at_s + LINES_EVERY_S
            for job in figures:
                console.print(Text(f"{at_s:.0f} s  {live.line(job)}"), soft_wrap=True)

    yield print_lines


def draw_run(figures: list[dict[str, Any]], console: Console) -> None:
    """What each job did in the whole run, in one table."""
    rows = []
    for job in figures:
        run = job["run"] or {}
        met = run.get("intent_met")
        rows.append(
            (
                job["job"],
                live.state_text(job["health"]),
                *(run.get(key) for key in RUN_COLUMNS.values()),
                job.get("lag"),
                None if met is None else f"{met:.0%}",
            )
        )
    if figures and figures[0]["run"]:
        console.print(f"The whole run of {format_duration(round(figures[0]['run']['seconds']))}:")
    columns = ("job", "state", *RUN_COLUMNS, "lag at end", "intent met")
    notes = map(live.problem_notes, figures)
    console.print(Listing(columns, rows, notes, ("out/s", "p50 ms", "failed")), crop=False)


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
        tell(
            f"{plural(len(jobs), 'job')} running; Ctrl-C stops {'it' if len(jobs) == 1 else 'them'}"
        )
        yield remote


def _check_started(job: Job, outcome: Outcome) -> None:
    if outcome.status is not Status.DONE:
        raise Refused(outcome.code, f"{job.id} was not started. {outcome.message}")
