"""Runs a whole system in one process, for demos, experiments and tests: Spark, host, controller,
jobs.

The parts talk over the host's socket, as separate processes do. The system ends with the process.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trilithon.contract.engine import Engine
from trilithon.contract.watch import Watcher
from trilithon.control.journal.rows import DecisionRow
from trilithon.control.rules import Rules
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.application import Setup, application
from trilithon.engines.spark.engine import SparkEngine
from trilithon.errors import SparkNotStarted
from trilithon.model.job import Job
from trilithon.model.series import Window
from trilithon.service.daemon import Daemon, daemon

PATIENCE_S = 300.0
ALL = 1_000_000


@dataclass
class RunningSystem:
    """A running system."""

    daemon: Daemon
    engine: Engine
    kafka: str
    _watcher: Watcher
    # The batch that a job is in.
    batch: Callable[[str], str]

    def look(self) -> list[dict[str, Any]]:
        return self._watcher.look(time.time())

    def window(self, length_s: float) -> Window | None:
        """The last seconds, up to the last look."""
        return self._watcher.observer.series.window(length_s)

    def decided(self, since_s: float) -> list[DecisionRow]:
        """The decisions after a time, the oldest first."""
        rows = self.daemon.journal.decisions(None, ALL, since_s)
        return sorted((row for row in rows if row.time_s > since_s), key=lambda row: row.time_s)


@contextmanager
def running_system(
    setup: Setup, jobs: Sequence[Job], rules: Rules, folder: Path, tell: Callable[[str], None]
) -> Iterator[RunningSystem]:
    """Starts Spark and runs the jobs under a controller with these rules; yields when all of them
    run.
    """
    with (
        application(setup, jobs, tell) as spark,
        controlled_system(spark, jobs, rules, folder, tell) as system,
    ):
        yield system


@contextmanager
def controlled_system(
    spark: SparkEngine, jobs: Sequence[Job], rules: Rules, folder: Path, tell: Callable[[str], None]
) -> Iterator[RunningSystem]:
    """The same on an engine that runs already."""
    with ExitStack() as ending:
        host = Host(spark, folder / "host.sock")
        ending.enter_context(host.in_background())
        engine, other = (RemoteEngine(host.path, PATIENCE_S) for _ in range(2))
        for client in (engine, other):
            ending.callback(client.close)
        running = ending.enter_context(daemon(engine, rules, folder / "daemon"))
        for job in jobs:
            running.commands.apply(job)
        running.wake()
        tell(f"starting {len(jobs)} jobs")
        _await(running, other, jobs)
        yield RunningSystem(
            running, other, spark.kafka.servers, Watcher(other), spark.control.batch
        )


def _await(running: Daemon, engine: Engine, jobs: Sequence[Job]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while set(engine.jobs()) != {job.id for job in jobs}:
        problems = [
            record.problem for record in running.controller.state.jobs.values() if record.problem
        ]
        if problems or time.monotonic() > deadline:
            raise SparkNotStarted(f"Not all jobs start. {' '.join(problems)}".strip())
        time.sleep(0.2)
