"""Starts and stops the query of a job on its checkpoint."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from trilithon import logs
from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import (
    clear_fault,
    last_committed,
    offsets_at,
    partition_offsets,
)
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.failures import describe
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka, check_not_expired
from trilithon.engines.spark.ledger import Ledger
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.start import plan_with_partitions, start_frame
from trilithon.engines.spark.watchdog import Watchdog
from trilithon.errors import EngineFailed
from trilithon.model.job import Job

# The engine ends batches. If nobody asks it for reports, Spark does after so many times the length.
UNPACED_BATCHES: Final = 2.0
_log = logs.logger()


@dataclass
class JobQueries:
    """The queries of an application. The caller holds the job's lock."""

    spark: SparkSession
    kafka: Kafka
    folder: Path
    control: ProbeControl
    boundaries: Boundaries
    watchdog: Watchdog
    ledger: Ledger
    steady_clock: Callable[[], float] = time.monotonic

    def plan(self, job: Job) -> Chain:
        """The chain of a job with the current partitions of its topics."""
        return plan_with_partitions(self.spark, job, self.kafka)

    def frame(self, chain: Chain) -> DataFrame:
        return build_frame(self.spark, chain, self.kafka)

    def start(self, managed: ManagedJob, chain: Chain | None = None) -> None:
        """Starts the job's query from its checkpoint. Without a chain the job is planned anew: its
        topics may have more partitions by now.
        """
        if chain is None:
            chain = self.plan(managed.job)
            self.ledger.change(managed.job.id, tasks=sum(chain.tasks_per_stage))
        checkpoint = self.checkpoint(managed)
        if (committed := last_committed(checkpoint)) is not None:
            offsets = partition_offsets(checkpoint, committed, len(chain.sources))
            check_not_expired(self.spark, self.kafka, offsets)
        self.run(managed, chain, self.frame(chain))

    def run(self, managed: ManagedJob, chain: Chain, frame: DataFrame) -> None:
        """Starts the query of a frame with the routing tables of the desired allocation."""
        self.watchdog.records.forget(managed.job.id)
        clear_fault(self.checkpoints(managed.job.id))
        managed.groups = routing_tables.push(
            self.control, managed.job, managed.allocation, managed.groups
        )
        checkpoint, sources = self.checkpoint(managed), len(chain.sources)
        committed = last_committed(checkpoint)
        managed.running = start_frame(
            self.spark,
            chain,
            frame,
            self.kafka,
            checkpoint,
            batch_s=UNPACED_BATCHES * managed.job.batch_s,
        )
        managed.base = offsets_at(checkpoint, committed, sources)
        managed.supervision = managed.supervision.started(self.steady_clock())

    def stop(self, managed: ManagedJob, *, clean: bool) -> str:
        """Stops the job's query; with `clean`, between two batches. Returns why records will be
        replayed, or an empty string if none will. A query that does not end stays the job's, and
        `EngineFailed` is raised.
        """
        if (running := managed.running) is None:
            return ""
        why = "the query was stopped at once"
        if clean:
            name = managed.job.id
            try:
                why = self.boundaries.end_and_hold(
                    name, self.checkpoint(managed), lambda: running.active
                )
            except Exception as error:  # noqa: BLE001 - it is stopped all the same
                _log.exception("batch_not_ended", job=name)
                why = f"the batch could not be ended ({describe(error)})"
        if not running.end():
            raise EngineFailed(f"The query of {managed.job.id} does not stop.")
        managed.running = None
        self.boundaries.forget(managed.job.id)
        return why

    def position(self, managed: ManagedJob) -> str:
        """The last committed batch of a job: where its query starts again."""
        try:
            return str(last_committed(self.checkpoint(managed)))
        except OSError:
            return ""

    def checkpoint(self, managed: ManagedJob) -> Path:
        return self.checkpoints(managed.job.id) / (managed.checkpoint or "first")

    def checkpoints(self, job: str) -> Path:
        """The folder of all checkpoints of a job."""
        tenant, _, name = job.partition("/")
        return self.folder / "checkpoints" / tenant / name

    def delete_checkpoints(self, job: str) -> None:
        folder = self.checkpoints(job)
        # The name comes from the caller: never delete anything outside the checkpoint folder.
        if folder.resolve().parent.parent == (self.folder / "checkpoints").resolve():
            shutil.rmtree(folder, ignore_errors=True)
