"""Owns what happens to a query that dies: when it is started again, and when that ends.

Spark does not restart a query by itself, also not after the loss of an executor. From its checkpoint
nothing is lost; the open batch is done again.
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Health(StrEnum):
    RUNNING = "running"
    DEGRADED = "degraded"  # it died and will be started again, or has not run well for long enough
    FAILED = "failed"  # it was given up


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait before a try, and how many tries there are. Chosen."""

    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    tries: int = 8
    # A query that ran for so long is well again, and what was before is forgotten.
    well_after_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Supervision:
    """The state of one job: a value, changed by what happens."""

    health: Health = Health.RUNNING
    failures: int = 0
    started_s: float = 0.0
    try_at_s: float | None = None
    reason: str = ""

    def started(self, now_s: float) -> "Supervision":
        """The query was started; it is degraded until it has run well for long enough."""
        health = Health.DEGRADED if self.failures else Health.RUNNING
        return replace(self, health=health, started_s=now_s, try_at_s=None)

    def observed(self, now_s: float, limits: Limits) -> "Supervision":
        """The query runs. After a while its failures are forgotten."""
        if (
            self.failures
            and self.try_at_s is None
            and now_s - self.started_s >= limits.well_after_s
        ):
            return Supervision(started_s=self.started_s)
        return self

    def died(self, now_s: float, reason: str, limits: Limits) -> "Supervision":
        """The query died: when to try again, or that it is given up, with the reason of the last time."""
        failures = self.failures + 1
        if failures > limits.tries:
            why = f"It died {failures} times; the last time: {reason}"
            return replace(self, health=Health.FAILED, failures=failures, try_at_s=None, reason=why)
        wait_s = min(limits.longest_wait_s, limits.first_wait_s * 2 ** (failures - 1))
        return Supervision(Health.DEGRADED, failures, self.started_s, now_s + wait_s, reason)

    def trying(self) -> "Supervision":
        """The query is being started: nobody else is to."""
        return replace(self, try_at_s=None)

    def due(self, now_s: float) -> bool:
        return self.try_at_s is not None and now_s >= self.try_at_s
