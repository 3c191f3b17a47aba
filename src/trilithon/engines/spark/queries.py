"""Starts and stops the query of a job on its checkpoint."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from trilithon import logs
from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import (
    clear_fault,
    clear_leftovers,
    delete_checkpoints,
    last_committed,
    offsets_at,
    partition_offsets,
)
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.cuts import is_part, job_of
from trilithon.engines.spark.failures import describe
from trilithon.engines.spark.file_path import CheckpointPath
from trilithon.engines.spark.flush_time import writer_waits
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.held_tasks import grown_tasks, held_tasks
from trilithon.engines.spark.incarnations import Incarnations
from trilithon.engines.spark.kafka import Kafka, check_not_expired
from trilithon.engines.spark.ledger import Ledger
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.start import plan_with_partitions, start_frame
from trilithon.engines.spark.state_partitions import fit_state
from trilithon.engines.spark.watchdog import Watchdog
from trilithon.errors import EngineFailed
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job

# The engine ends batches. If nobody asks it for reports, Spark does after so many times the length.
UNPACED_BATCHES: Final = 2.0
_log = logs.logger()


@dataclass
class JobQueries:
    """The queries of an application. The caller holds the job's lock."""

    spark: SparkSession
    kafka: Kafka
    # The folder of the checkpoints of all jobs.
    root: CheckpointPath
    control: ProbeControl
    boundaries: Boundaries
    watchdog: Watchdog
    ledger: Ledger
    # The names of the machines, over which Spark spreads tasks.
    machines: Callable[[], Collection[str]]
    incarnations: Incarnations
    steady_clock: Callable[[], float] = time.monotonic

    def plan(self, job: Job, wanted: Allocation, held: Mapping[str, int] | None = None) -> Chain:
        """The chain of a job with the current partitions of its topics, and with the tasks for an
        allocation; `held` are those that its query had before.
        """
        chain = plan_with_partitions(self.spark, job, self.kafka.of_tenant(job.tenant))
        return self.with_tasks(chain, wanted, held)

    def with_tasks(
        self, chain: Chain, wanted: Allocation, held: Mapping[str, int] | None = None
    ) -> Chain:
        """A chain with the tasks for an allocation."""
        return replace(chain, tasks=held_tasks(chain.job, wanted, self._machine_count, held))

    def grown(self, managed: ManagedJob, wanted: Allocation, free: int) -> dict[str, int] | None:
        """The tasks of each operator for a restart that an allocation needs; None if those that the
        job holds suffice. `free` are the tasks that no job holds.
        """
        return grown_tasks(managed.job, wanted, self._machine_count, managed.tasks, free)

    @property
    def _machine_count(self) -> int:
        return max(1, len(self.machines()))

    def frame(self, chain: Chain) -> DataFrame:
        return build_frame(self.spark, chain, self.kafka.of_tenant(chain.job.tenant))

    def start(self, managed: ManagedJob, chain: Chain | None = None) -> None:
        """Starts the job's query from its checkpoint. Without a chain the job is planned anew: its
        topics may have more partitions by now.
        """
        if chain is None:
            chain = self.plan(managed.job, managed.allocation, managed.tasks)
            self.ledger.change(managed.job.id, tasks=sum(chain.tasks_per_stage))
        checkpoint = self.checkpoint(managed)
        clear_leftovers(checkpoint)
        if (committed := last_committed(checkpoint)) is not None:
            offsets = partition_offsets(checkpoint, committed, len(chain.sources))
            check_not_expired(self.spark, self.kafka.of_tenant(managed.job.tenant), offsets)
        self.run(managed, chain, self.frame(chain))

    def run(self, managed: ManagedJob, chain: Chain, frame: DataFrame) -> None:
        """Starts the query of a frame with the routing tables of the desired allocation."""
        checkpoint, sources = self.checkpoint(managed), len(chain.sources)
        clear_leftovers(checkpoint)
        fit_state(self.spark, checkpoint, chain.operators)
        self.watchdog.records.forget(managed.job.id)
        clear_fault(self.checkpoints(managed.job.id))
        managed.tasks = {operator.name: chain.tasks_of(operator) for operator in chain.operators}
        managed.groups = routing_tables.push(
            self.control, managed.job, managed.allocation, managed.groups, managed.tasks
        )
        committed = last_committed(checkpoint)
        managed.running = start_frame(
            self.spark,
            chain,
            frame,
            self.kafka.of_tenant(managed.job.tenant),
            checkpoint,
            batch_s=UNPACED_BATCHES * managed.job.batch_s,
            waits=writer_waits(managed.job, managed.allocation),
        )
        self.incarnations.note(managed.running.incarnation)
        managed.base = offsets_at(checkpoint, committed, sources)
        managed.supervision = managed.supervision.started(self.steady_clock())
        managed.unread_partitions = managed.overrun = ""

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

    def checkpoint(self, managed: ManagedJob) -> CheckpointPath:
        return self.checkpoints(managed.job.id) / (managed.checkpoint or "first")

    def checkpoints(self, job: str) -> CheckpointPath:
        """The folder of all checkpoints of a job."""
        tenant, _, name = job.partition("/")
        return self.root / tenant / name

    def delete_checkpoint(self, job: str, checkpoint: str) -> None:
        """Deletes one checkpoint of a job."""
        delete_checkpoints(self.root, job, checkpoint or "first")

    def parts_of(self, job: str) -> list[str]:
        """The parts of a job that have checkpoints."""
        tenant, _, name = job.partition("/")
        try:
            names = [path.name for path in (self.root / tenant).iterdir()]
        except OSError:
            return []
        return [f"{tenant}/{part}" for part in names if is_part(part) and job_of(part) == name]

    def delete_checkpoints(self, job: str) -> None:
        delete_checkpoints(self.root, job)
