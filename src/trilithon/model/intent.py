"""Defines the intent of a job: thresholds with their utilities, a priority, and constraints."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from trilithon.errors import InvalidIntent
from trilithon.model.utility import UTILITIES, Sense, Utilities, Utility

_PERCENTILE: Final = re.compile(r"p([0-9]{2}(?:\.[0-9])?)")


class Metric(StrEnum):
    """The metric that a threshold bounds."""

    LATENCY = "latency"  # ms, from the origin time of the latest input to the sink
    JUICE = "juice"  # processed share of the input, 0…1 (above 1 while a backlog drains)
    THROUGHPUT = "throughput"  # records per second written by all sinks
    EMISSION = "emission"  # records per second that all sources emit


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound on a metric, and the utility of values that miss it."""

    metric: Metric
    value: float
    statistic: str | None = None
    utility: Utility = field(default_factory=Utility)

    @property
    def sense(self) -> Sense:
        return Sense.AT_MOST if self.metric is Metric.LATENCY else Sense.AT_LEAST

    @property
    def quantile(self) -> float | None:
        """The quantile of a latency threshold, in (0, 1); None for the mean."""
        return quantile_of(self.statistic) if self.statistic else None

    @property
    def key(self) -> str:
        """The key of the metric among measured values: `latency.p95`, `latency.mean`, `juice` …"""
        return latency_key(self.quantile) if self.metric is Metric.LATENCY else str(self.metric)

    def met(self, value: float | None) -> bool | None:
        if value is None or math.isnan(value):
            return None
        return value <= self.value if self.sense is Sense.AT_MOST else value >= self.value

    def __str__(self) -> str:
        sign = "≤" if self.sense is Sense.AT_MOST else "≥"
        unit = {"latency": " ms", "juice": "", "throughput": "/s", "emission": "/s"}[self.metric]
        name = (
            f"{self.statistic or 'mean'} latency" if self.metric is Metric.LATENCY else self.metric
        )
        return f"{name} {sign} {self.value:g}{unit}"


@dataclass(frozen=True, slots=True)
class EdgeName:
    """An edge by the names of its two ends."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on the mean latency along a path of the job, in any window of `over_s` seconds
    (latency guarantees, section II-A5). The sequence may begin or end with an edge.
    """

    sequence: tuple[str | EdgeName, ...]
    mean_latency_ms: float
    over_s: float

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(part for part in self.sequence if isinstance(part, str))

    @property
    def edges(self) -> tuple[EdgeName, ...]:
        return tuple(part for part in self.sequence if isinstance(part, EdgeName))

    @property
    def steps(self) -> tuple[str, ...]:
        """The sequence in short: edges between operators that are named anyway are left out."""
        last = len(self.sequence) - 1
        return tuple(
            str(part)
            for i, part in enumerate(self.sequence)
            if isinstance(part, str) or i in {0, last}
        )


@dataclass(frozen=True, slots=True)
class Intent:
    """Thresholds, the priority of the job, and constraints on paths through it.

    The maximum utility is proportional to the priority (Henge, section 4). Here it *is* the
    priority, so that the papers' values (35 per job, 10 to 90) can be used unchanged.
    """

    thresholds: tuple[Threshold, ...] = ()
    priority: float = 1.0
    constraints: tuple[Constraint, ...] = ()

    @property
    def max_utility(self) -> float:
        return self.priority

    def utility(
        self, values: Mapping[str, float | None], utilities: Utilities = UTILITIES
    ) -> float | None:
        """The utility of the measured values: the average over the thresholds (a hybrid SLO,
        section 8.1.1), times the maximum. None if a value is missing or there are no thresholds.
        """
        import numpy as np  # noqa: PLC0415 - whoever only reads a job does without

        fractions = []
        for threshold in self.thresholds:
            value = values.get(threshold.key)
            if value is None or math.isnan(value):
                return None
            fractions.append(
                utilities.fraction(
                    threshold.utility, np.array([value]), threshold.value, threshold.sense
                )[0]
            )
        return float(np.mean(fractions)) * self.max_utility if fractions else None

    def satisfied(self, values: Mapping[str, float | None]) -> bool | None:
        """Whether every threshold is met; None if none is missed but a value is missing."""
        met = [threshold.met(values.get(threshold.key)) for threshold in self.thresholds]
        if False in met:
            return False
        return None if None in met or not met else True


def latency_key(quantile: float | None) -> str:
    """The key of a latency among measured values: `latency.p95`, or `latency.mean`."""
    return "latency.mean" if quantile is None else f"latency.p{quantile * 100:g}"


def quantile_of(statistic: str) -> float | None:
    """`p95` → 0.95, `p99.9` → 0.999, `mean` → None. Raises `InvalidIntent` outside p50…p99.9."""
    if statistic == "mean":
        return None
    match = _PERCENTILE.fullmatch(statistic)
    if match is None or not 50 <= float(match.group(1)) <= 99.9:
        raise InvalidIntent(
            f"{statistic!r} is not a statistic of latency.",
            "Use mean, or a percentile from p50 to p99.9.",
        )
    return round(float(match.group(1)) / 100, 6)


def sequence_of(parts: Sequence[str]) -> tuple[str | EdgeName, ...]:
    """Parse a sequence of operator names and `from->to` edges.

    Between two operators in a row, the edge that connects them is inserted.
    """
    sequence: list[str | EdgeName] = []
    for part in parts:
        if "->" in part:
            source, _, target = part.partition("->")
            sequence.append(EdgeName(source.strip(), target.strip()))
        else:
            if sequence and isinstance(sequence[-1], str):
                sequence.append(EdgeName(sequence[-1], part))
            sequence.append(part)
    return tuple(sequence)
