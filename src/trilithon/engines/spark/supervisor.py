"""Decides when a query that died is restarted, and when a job has failed by its own fault.

Spark does not restart a query by itself, not even after the loss of an executor. A restart from the
checkpoint loses nothing and replays the open batch. Pure: times are given, of a clock that does not
jump.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trilithon.contract.condition import Cause, Condition, Health
from trilithon.engines.spark.failures import Failure, remedy

__all__ = ["Health", "RestartBackoff", "Supervision", "WaitingJob", "to_start"]


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """The exponential back-off between restarts. Chosen values."""

    initial_s: float = 1.0
    # Short enough that a job runs again within a minute of the end of an outage.
    maximum_s: float = 30.0
    # A query that has run for this long is healthy again: the next back-off is the initial one.
    healthy_after_s: float = 120.0
    # How often a query may die at the same offsets by a fault of the job's own.
    own_fault_tries: int = 3
    # The same for a cause that is not known: a record that kills the query, or an outage.
    unknown_tries: int = 8
    # How often a query may die with an executor, at the same offsets and within `suspect_within_s`,
    # before it is suspected of killing executors. Suspects start one at a time.
    suspect_after: int = 3
    suspect_within_s: float = 600.0
    # How often an executor may die while the only suspect that runs is this one.
    strikes: int = 3
    # When the batch of a suspect is ended: what it commits clears it.
    probation_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Supervision:
    """The restart state of one job; each event makes a new value."""

    health: Health = Health.RUNNING
    # Deaths since the query was last healthy: they set the back-off.
    failures: int = 0
    started_s: float = 0.0
    retry_at_s: float | None = None
    reason: str = ""
    cause: Cause | None = None
    since_s: float | None = None
    # The last committed batch when the query died, and how often it died there by a fault that may
    # be the job's own.
    position: str = ""
    suspicions: int = 0
    # When it died together with an executor, at that position.
    executor_deaths_s: tuple[float, ...] = ()
    # It is suspected of killing executors, and the only one of those that runs.
    on_probation: bool = False
    strikes: int = 0

    def started(self, now_s: float) -> "Supervision":
        """The query runs. Its failures count until it is healthy."""
        return replace(
            self,
            health=Health.RUNNING,
            started_s=now_s,
            retry_at_s=None,
            reason="",
            cause=None,
            since_s=now_s,
        )

    def progressed(self, position: str) -> "Supervision":
        """The query runs and has committed up to a position: what killed executors before it is
        behind it.
        """
        if position == self.position:
            return self
        return replace(self, executor_deaths_s=(), on_probation=False, strikes=0)

    def observed(self, now_s: float, backoff: RestartBackoff) -> "Supervision":
        """The query runs. After `healthy_after_s` the next back-off is short again."""
        if self.failures and now_s - self.started_s >= backoff.healthy_after_s:
            return replace(self, failures=0)
        return self

    def died(
        self,
        now_s: float,
        failure: Failure,
        backoff: RestartBackoff,
        *,
        job: str = "",
        position: str = "",
    ) -> "Supervision":
        """The query died: schedules a restart. A job that dies at the same `position` (the last
        committed batch) again and again has failed, unless the cause is outside of it.
        """
        failures = self.failures + 1
        if failure.cause is Cause.EXECUTOR:
            known = self.progressed(position)
            recent = [s for s in known.executor_deaths_s if now_s - s < backoff.suspect_within_s]
            deaths, strikes = (*recent, now_s), known.strikes + known.on_probation
        else:
            deaths, strikes = self.executor_deaths_s, self.strikes
        suspicions = self.suspicions if position == self.position else 0
        suspicions += not failure.cause.outside
        most = backoff.unknown_tries if failure.cause is Cause.UNKNOWN else backoff.own_fault_tries
        after = replace(
            self,
            failures=failures,
            reason=failure.reason,
            cause=failure.cause,
            # A try that fails does not begin another outage.
            since_s=now_s if self.health is Health.RUNNING else self.since_s,
            position=position,
            suspicions=suspicions,
            executor_deaths_s=deaths,
            on_probation=False,
            strikes=strikes,
        )
        if failure.cause is Cause.EXECUTOR and strikes >= backoff.strikes:
            return after.failed(now_s, _killer(failure, len(deaths), strikes), job)
        if not failure.cause.outside and suspicions >= most:
            return after.failed(now_s, _blamed(failure, suspicions), job)
        wait_s = min(backoff.maximum_s, backoff.initial_s * 2 ** min(failures - 1, 30))
        return replace(after, health=Health.DEGRADED, retry_at_s=now_s + wait_s)

    def failed(self, now_s: float, failure: Failure, job: str) -> "Supervision":
        """The job failed by its own fault: it starts again when its owner says so."""
        reason = f"{failure.reason.rstrip('.')}. {remedy(failure.cause, job)}"
        return replace(
            self,
            health=Health.FAILED,
            cause=failure.cause,
            reason=reason,
            since_s=now_s,
            retry_at_s=None,
        )

    def suspect(self, backoff: RestartBackoff) -> bool:
        """Whether it may be a record of this job that kills executors."""
        return len(self.executor_deaths_s) >= backoff.suspect_after

    def waits(self, reason: str, cause: Cause = Cause.TASKS) -> "Supervision":
        """It would be started now, but the live executors have no room for it, or it has to wait
        for another job.
        """
        return replace(self, cause=cause, reason=reason)

    def restarting(self, backoff: RestartBackoff) -> "Supervision":
        """The query is being restarted: no second restart is due."""
        return replace(self, retry_at_s=None, on_probation=self.suspect(backoff))

    def at_once(self, now_s: float) -> "Supervision":
        """The outage is over: the next try is due."""
        return self if self.retry_at_s is None else replace(self, retry_at_s=now_s)

    def due(self, now_s: float) -> bool:
        return self.retry_at_s is not None and now_s >= self.retry_at_s

    def condition(self, offset_s: float = 0.0) -> Condition:
        """As others see it. `offset_s` turns the steady clock's times into those of the day."""
        since_s = None if self.since_s is None else self.since_s + offset_s
        retry_s = None if self.retry_at_s is None else self.retry_at_s + offset_s
        return Condition(self.health, self.reason, self.cause, since_s, retry_s)


def _blamed(failure: Failure, deaths: int) -> Failure:
    if failure.cause is not Cause.UNKNOWN:
        return failure
    reason = f"The query died {deaths} times at the same offsets: {failure.reason}"
    return Failure(Cause.RECORD, reason)


def _killer(failure: Failure, deaths: int, strikes: int) -> Failure:
    reason = (
        f"A record kills executors: {deaths} died while the job was at the same offsets, the last "
        f"{strikes} while no other suspected job ran ({failure.reason.rstrip('.')})"
    )
    return Failure(Cause.RECORD, reason)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job whose query does not run and is to be restarted."""

    job: str
    priority: float
    tasks: int
    since_s: float
    due: bool
    # It is suspected of killing executors.
    suspect: bool = False


def to_start(
    waiting: Iterable[WaitingJob], free: int, *, probation: bool = False
) -> tuple[list[str], dict[str, int]]:
    """The jobs to start now, the first first, and what was free for each that does not fit. Of the
    suspects one starts, unless one is on `probation` already: who is alone when an executor dies is
    to blame.

    Room is given in the order of priority, then of waiting. A job that is not due yet keeps its
    room, so that one of lower priority does not take it. A smaller job may take what is too little
    for a larger one: no running job is ever stopped for another.
    """
    starts: list[str] = []
    short: dict[str, int] = {}
    for job in sorted(waiting, key=lambda w: (-w.priority, w.since_s, w.job)):
        if job.tasks > free:
            short[job.job] = max(0, free)
            continue
        free -= job.tasks
        if job.due and not (job.suspect and probation):
            starts.append(job.job)
            probation |= job.suspect
    return starts, short
