"""Decides what follows the death of a query: another start after a back-off, or a failed job."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trilithon import logs
from trilithon.contract.condition import Cause, Health
from trilithon.engines.spark.checkpoint import write_fault
from trilithon.engines.spark.cuts import job_of
from trilithon.engines.spark.failures import Failure, classify
from trilithon.engines.spark.ledger import Ledger
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.queries import JobQueries
from trilithon.engines.spark.supervisor import RestartBackoff, Supervision
from trilithon.engines.spark.watchdog import StuckRecord
from trilithon.errors import TrilithonError

# A query that dies so soon after an executor was lost, of a connection that closed, died of that.
EXECUTOR_LOST_S: Final = 30.0
_log = logs.logger()


@dataclass
class Deaths:
    """Takes the deaths of queries, and knows when executors were lost."""

    queries: JobQueries
    ledger: Ledger
    backoff: RestartBackoff = field(default_factory=RestartBackoff)
    steady_clock: Callable[[], float] = time.monotonic
    executors_lost_s: float = float("-inf")

    def query_died(self, managed: ManagedJob, now_s: float, error: BaseException) -> None:
        """Schedules the restart of a query that died or did not start, or fails the job."""
        name, lost = managed.job.id, now_s - self.executors_lost_s < EXECUTOR_LOST_S
        failure = classify(error, executor_lost=lost)
        self.ledger.vacate(name)
        managed.supervision = after = managed.supervision.died(
            now_s,
            failure,
            self.backoff,
            job=job_of(name),
            position=self.queries.position(managed),
        )
        fields = {"job": name, "cause": failure.cause.value, "reason": failure.reason}
        if after.health is Health.FAILED:
            # Its tasks and slots are for others, until its owner starts it again.
            self.ledger.release(name)
            if failure.cause is Cause.EXECUTOR:
                # A record that kills executors would kill those of a new host, too.
                write_fault(self.queries.checkpoints(name), managed.job, after.reason)
            _log.error("query_failed", **fields, failures=after.failures, exc_info=error)
            return
        wait_s = round((after.retry_at_s or now_s) - now_s, 3)
        _log.warning(
            "query_died", **fields, failures=after.failures, restart_in_s=wait_s, exc_info=error
        )

    def abandon(self, managed: ManagedJob, error: TrilithonError) -> None:
        """Stops a query that misbehaves; the supervisor restarts it."""
        self.queries.stop(managed, clean=False)
        self.query_died(managed, self.steady_clock(), error)

    def record_never_ends(self, managed: ManagedJob, stuck: StuckRecord) -> None:
        """Stops a job with a record that never ends. It stays stopped, on a new host too: the
        record would be read again.
        """
        name, now_s = managed.job.id, self.steady_clock()
        failure = Failure(Cause.RECORD, stuck.describe())
        managed.supervision = managed.supervision.failed(now_s, failure, job_of(name))
        reason = managed.supervision.reason
        _log.error("record_never_ends", job=name, operator=stuck.operator, reason=reason)
        write_fault(self.queries.checkpoints(name), managed.job, reason)
        self.queries.stop(managed, clean=False)
        self.queries.watchdog.records.forget(name)
        self.ledger.vacate(name)
        self.ledger.release(name)

    def fault(self, reason: str) -> Supervision:
        """The state of a job that is not started again by itself."""
        return Supervision(
            Health.FAILED, reason=reason, cause=Cause.RECORD, since_s=self.steady_clock()
        )
