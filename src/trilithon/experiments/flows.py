"""Owns what comes to each operator of a job at its highest load, by the profiles alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from trilithon.model.job import Operator
from trilithon.scenarios.scenario import ScheduledJob


@dataclass(frozen=True, slots=True)
class Flow:
    """What comes to an operator: how many of its instances are busy with it, and how many cores."""

    operator: Operator
    busy: float
    cores: float


def flows(fed: ScheduledJob) -> Iterator[Flow]:
    """Every operator, in the order in which records come by. Each has a profile with a service time."""
    flow = {source: shape.peak_per_s for source, shape in fed.loads.items()}
    operators = {operator.name: operator for operator in fed.job.operators}
    for node in fed.job.order:
        if (operator := operators.get(node)) is None:
            continue
        profile = operator.profile
        assert profile is not None  # noqa: S101 - every operator of an experiment has one
        assert profile.service_ms is not None  # noqa: S101
        into = sum(flow.get(edge.source, 0.0) for edge in fed.job.parents[node])
        busy = into * profile.service_ms / 1000
        yield Flow(operator, busy, busy * (1.0 if profile.cpu_share is None else profile.cpu_share))
        flow[node] = into * (1.0 if profile.selectivity is None else profile.selectivity)
