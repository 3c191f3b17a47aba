"""Computes how many instances and cores the operators of a job need at its highest load.

The numbers come from the profiles alone; nothing is run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from trilithon.model.job import Operator
from trilithon.scenarios.scenario import ScheduledJob


@dataclass(frozen=True, slots=True)
class OperatorDemand:
    """How many instances of an operator are busy at the job's highest load, and how many cores."""

    operator: Operator
    busy: float
    cores: float


def operator_demands(scheduled: ScheduledJob) -> Iterator[OperatorDemand]:
    """One per operator, in topological order. Every operator must have a service time."""
    rates = {source: shape.peak_per_s for source, shape in scheduled.loads.items()}
    operators = {operator.name: operator for operator in scheduled.job.operators}
    for node in scheduled.job.order:
        if (operator := operators.get(node)) is None:
            continue
        profile = operator.profile
        assert profile is not None  # noqa: S101 - every operator of an experiment has one
        assert profile.service_ms is not None  # noqa: S101
        rate = sum(rates.get(edge.source, 0.0) for edge in scheduled.job.parents[node])
        busy = rate * profile.service_ms / 1000
        cpu_share = 1.0 if profile.cpu_share is None else profile.cpu_share
        yield OperatorDemand(operator, busy, busy * cpu_share)
        rates[node] = rate * (1.0 if profile.selectivity is None else profile.selectivity)
