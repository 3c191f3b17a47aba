"""Finds the host of a machine: several executors on one host each report numbers of the host."""

import math
from collections.abc import Iterable, Sequence


def host_of(machine: str) -> str:
    """The host of a machine: `10.0.0.7/2` is executor 2 on 10.0.0.7; `m1` is a host by itself."""
    return machine.partition("/")[0]


def application_of(machine: str) -> str:
    """The application of a machine, where there are several: `10.0.0.7/ads/2` is one of `ads`.
    Empty where there is one for all.
    """
    return machine.split("/")[1] if machine.count("/") > 1 else ""


def sum_over_hosts(machines: Sequence[str], values: Iterable[float]) -> float:
    """The sum over hosts of a number that each machine reports for its host; NaN if none does."""
    reported: dict[str, list[float]] = {}
    for machine, value in zip(machines, values, strict=True):
        if not math.isnan(value):
            reported.setdefault(host_of(machine), []).append(float(value))
    means = [sum(of_host) / len(of_host) for of_host in reported.values()]
    return sum(means) if means else math.nan
