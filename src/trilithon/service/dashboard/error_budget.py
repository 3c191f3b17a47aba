"""Computes error budgets: how long a job may miss its intent within the kept time, and did."""

from dataclasses import dataclass
from typing import Final

from trilithon.control.compact import CompactSeries
from trilithon.service.daemon import Daemon

KEPT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """How long a job may miss its intent within a window, and did."""

    objective: float
    window_s: float
    known_s: float
    missed_s: float

    @property
    def allowed_s(self) -> float:
        return (1 - self.objective) * self.window_s

    @property
    def used(self) -> float | None:
        """The used share of the budget; above 1 if the objective is missed. None if unknown."""
        if not self.known_s or not self.allowed_s:
            return None
        return self.missed_s / self.allowed_s


class ErrorBudgets:
    """The error budgets of jobs. They change slowly: computed anew after half a minute."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._budgets: dict[str, tuple[float, ErrorBudget]] = {}

    def of(self, job: str, now_s: float) -> ErrorBudget:
        """The error budget of a job over the kept time."""
        kept = self._budgets.get(job)
        if kept is not None and 0 <= now_s - kept[0] < KEPT_S:
            return kept[1]
        limits = self._daemon.controller.rules.limits
        since_s = now_s - limits.keep_series_s
        known_s = missed_s = 0.0
        before_s: float | None = None
        for point in CompactSeries(self._daemon.journal).read(job, since_s):
            met = point.numbers.get("met")
            if before_s is not None and met is not None:
                span_s = min(point.time_s - before_s, 2 * limits.series_every_s)
                known_s += span_s
                missed_s += span_s * (1 - met)
            before_s = point.time_s
        budget = ErrorBudget(limits.objective, limits.keep_series_s, known_s, missed_s)
        self._budgets[job] = (now_s, budget)
        return budget
