"""Owns which machines are the same host: several executors on one each tell of the whole of it."""

import math
from collections.abc import Iterable, Sequence


def host_of(machine: str) -> str:
    """`10.0.0.7/2` is the executor 2 on the host 10.0.0.7; a name without a slash is a host of its own."""
    return machine.partition("/")[0]


def sum_over_hosts(machines: Sequence[str], values: Iterable[float]) -> float:
    """The sum over hosts of something that each machine tells of its host; missing if nobody tells it."""
    told: dict[str, list[float]] = {}
    for machine, value in zip(machines, values, strict=True):
        if not math.isnan(value):
            told.setdefault(host_of(machine), []).append(float(value))
    return sum(sum(found) / len(found) for found in told.values()) if told else math.nan
