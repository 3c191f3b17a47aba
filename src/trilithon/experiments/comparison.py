"""Compares strategies over many runs: satisfaction, instance-hours, and who is ahead."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trilithon.experiments.experiment_result import ExperimentResult, RunSummary
from trilithon.experiments.strategies import SAME

Outcomes = Mapping[str, RunSummary]


@dataclass(frozen=True)
class StrategyRecord:
    """A strategy over all runs that have it: means, the sum of instance-hours, and in how many runs
    the paper's policy is better, the same or worse. None where some run does not tell.
    """

    name: str
    runs: int
    satisfaction: float
    worst_tenth: float | None
    instance_hours: float | None
    policy_better: int
    same: int
    policy_worse: int


def all_runs(results: Sequence[ExperimentResult]) -> list[Outcomes]:
    """Every variant that was run under all strategies: those that try parameters were not."""
    return [
        by_strategy
        for result in results
        if not result.experiment.policy_only
        for by_strategy in result.summaries.values()
    ]


def compare_strategies(
    runs: Sequence[Outcomes], names: Sequence[str], own: str
) -> Iterator[StrategyRecord]:
    """A record per strategy that at least one run has; `own` is the paper's policy."""
    for name in names:
        known = [by_strategy for by_strategy in runs if name in by_strategy and own in by_strategy]
        if not known:
            continue
        summaries = [by_strategy[name] for by_strategy in known]
        gaps = np.array([by_strategy[own].average for by_strategy in known]) - np.array(
            [summary.average for summary in summaries]
        )
        yield StrategyRecord(
            name,
            len(known),
            float(np.mean([summary.average for summary in summaries])),
            _mean([summary.worst_tenth for summary in summaries]),
            _sum([summary.instance_hours for summary in summaries]),
            int((gaps > SAME).sum()),
            int((np.abs(gaps) <= SAME).sum()),
            int((gaps < -SAME).sum()),
        )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    total = _sum(values)
    return None if total is None else total / len(values)
