"""Holds the result of a run on Spark: what all jobs were worth under a policy."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SparkRunResult:
    """The satisfaction of all jobs under a policy.

    The mean, what it exceeds for nine tenths of the time, the mean of each job, and the mean in
    each hour of the traces.
    """

    policy: str
    satisfaction: float
    worst_tenth: float
    actions: int
    by_job: dict[str, float]
    by_hour: list[float] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
