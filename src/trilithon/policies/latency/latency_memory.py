"""Defines what the policy `latency` remembers of a job between rounds, as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.measured_waiting import MeasuredWaiting
from trilithon.policies.latency.predictions import CheckedPrediction, WaitingPrediction
from trilithon.policies.scene import JobStatus

# Chosen: the share of an interval within which a change takes effect. A change ends a little after
# the round that decided it; without this, the next rounds would always come too early.
SETTLING: Final = 0.1


@dataclass
class LatencyMemory:
    """What is remembered of a job.

    `counts` is the parallelism that was last seen, `raised_s` when it was last seen to grow,
    whoever made it grow. `pending` are predictions that were not measured yet, `checked` those of
    the latest adjustments that were. `measured` is how long records waited with each number of
    instances. `held` are the operators whose scale-down was held in the last
    round. `alerts` are those that were raised lately, with their times. `last` is the id of the
    last scaling decision.
    """

    counts: dict[str, int] = field(default_factory=dict)
    raised_s: float | None = None
    pending: list[WaitingPrediction] = field(default_factory=list)
    checked: list[CheckedPrediction] = field(default_factory=list)
    measured: list[MeasuredWaiting] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    alerts: dict[str, float] = field(default_factory=dict)
    last: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        if not data:
            return cls()
        return cls(
            dict(data["counts"]),
            data["raised_s"],
            [WaitingPrediction.from_json(item) for item in data["pending"]],
            [CheckedPrediction.from_json(item) for item in data["checked"]],
            # Journals of earlier versions have none.
            [MeasuredWaiting.from_json(item) for item in data.get("measured", ())],
            list(data["held"]),
            dict(data["alerts"]),
            data["last"],
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "raised_s": self.raised_s,
            "pending": [item.to_json() for item in self.pending],
            "checked": [item.to_json() for item in self.checked],
            "measured": [item.to_json() for item in self.measured],
            "held": self.held,
            "alerts": self.alerts,
            "last": self.last,
        }

    def see(self, status: JobStatus, now_s: float) -> None:
        """Notes the parallelism, and whether it grew since the last round."""
        counts = dict(status.allocation.parallelism)
        before, self.counts = self.counts, counts
        if any(count > before.get(name, count) for name, count in counts.items()):
            self.raised_s = now_s if status.changed_s is None else status.changed_s

    def inactive_until_s(self, parameters: LatencyParameters) -> float:
        """When decisions may be made again after the last scale-up; 0 if there was none."""
        if self.raised_s is None:
            return 0.0
        return self.raised_s + (parameters.inactive - SETTLING) * parameters.interval_s
