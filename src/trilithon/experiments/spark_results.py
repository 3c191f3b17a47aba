"""Holds the results of runs on Spark: what all jobs were worth under a policy, run by run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

# The policy that never acts.
NONE: Final = "none"


@dataclass(frozen=True)
class SparkRunResult:
    """The satisfaction of all jobs under a policy.

    The mean, what it exceeds for nine tenths of the time, the mean of each job, and the mean in
    each hour of the traces. Runs of the same code and loads have the same `made_by`; `turn` is the
    number of the run among those of its policy.
    """

    policy: str
    satisfaction: float
    worst_tenth: float
    actions: int
    by_job: dict[str, float]
    by_hour: list[float] = field(default_factory=list)
    turn: int = 0
    made_by: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def of_earlier_set_up(runs: Sequence[SparkRunResult]) -> bool:
    """Whether some are of a version that did not say what made them."""
    return not all(run.made_by for run in runs)


@dataclass(frozen=True)
class PolicyRuns:
    """All runs under one policy: means, and the least and the most satisfaction of a run."""

    policy: str
    runs: int
    satisfaction: float
    least: float
    most: float
    worst_tenth: float
    actions: float
    by_job: dict[str, float]
    by_hour: list[float]

    @property
    def spread(self) -> float:
        return self.most - self.least


def by_policy(runs: Sequence[SparkRunResult]) -> list[PolicyRuns]:
    """The runs of each policy together, in the order in which the policies first occur."""
    together = []
    for policy in dict.fromkeys(run.policy for run in runs):
        mine = [run for run in runs if run.policy == policy]
        shares = [run.satisfaction for run in mine]
        hours = min(len(run.by_hour) for run in mine)
        together.append(
            PolicyRuns(
                policy,
                len(mine),
                _mean(shares),
                min(shares),
                max(shares),
                _mean([run.worst_tenth for run in mine]),
                _mean([float(run.actions) for run in mine]),
                {job: _mean([run.by_job[job] for run in mine]) for job in mine[0].by_job},
                [_mean([run.by_hour[hour] for run in mine]) for hour in range(hours)],
            )
        )
    return together


def gains_over(runs: Sequence[SparkRunResult], policy: str, other: str) -> list[float]:
    """By how much a policy is better than another in each turn in which both were run."""
    mine, theirs = (
        {run.turn: run.satisfaction for run in runs if run.policy == name}
        for name in (policy, other)
    )
    return [mine[turn] - theirs[turn] for turn in sorted(mine.keys() & theirs.keys())]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
