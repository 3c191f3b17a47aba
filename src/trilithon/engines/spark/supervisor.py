"""Decides when a query that died is restarted, and when the engine gives up.

Spark does not restart a query by itself, not even after the loss of an executor. A restart from the
checkpoint loses nothing and replays the open batch.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Health(StrEnum):
    RUNNING = "running"
    DEGRADED = "degraded"  # waits for a restart, or has run for less than `healthy_after_s` since
    FAILED = "failed"  # died more than `max_restarts` times


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """The exponential back-off between restarts and the number of restarts. Chosen values."""

    initial_s: float = 1.0
    maximum_s: float = 60.0
    max_restarts: int = 8
    # A query that has run for this long is healthy again, and its failures no longer count.
    healthy_after_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Supervision:
    """The restart state of one job; each event makes a new value."""

    health: Health = Health.RUNNING
    failures: int = 0
    started_s: float = 0.0
    retry_at_s: float | None = None
    reason: str = ""

    def started(self, now_s: float) -> "Supervision":
        """The query was started. After failures the job stays degraded until it is healthy."""
        health = Health.DEGRADED if self.failures else Health.RUNNING
        return replace(self, health=health, started_s=now_s, retry_at_s=None)

    def observed(self, now_s: float, backoff: RestartBackoff) -> "Supervision":
        """The query runs. After `healthy_after_s` its failures no longer count."""
        if (
            self.failures
            and self.retry_at_s is None
            and now_s - self.started_s >= backoff.healthy_after_s
        ):
            return Supervision(started_s=self.started_s)
        return self

    def died(self, now_s: float, reason: str, backoff: RestartBackoff) -> "Supervision":
        """The query died: schedules a restart, or gives up with the last reason."""
        failures = self.failures + 1
        if failures > backoff.max_restarts:
            why = f"The query died {failures} times; the last reason: {reason}"
            return replace(
                self, health=Health.FAILED, failures=failures, retry_at_s=None, reason=why
            )
        wait_s = min(backoff.maximum_s, backoff.initial_s * 2 ** (failures - 1))
        return Supervision(Health.DEGRADED, failures, self.started_s, now_s + wait_s, reason)

    def restarting(self) -> "Supervision":
        """The query is being restarted: no second restart is due."""
        return replace(self, retry_at_s=None)

    def due(self, now_s: float) -> bool:
        return self.retry_at_s is not None and now_s >= self.retry_at_s
