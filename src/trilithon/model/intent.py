"""Owns what a tenant asks of a job: thresholds, their utilities, a priority, and constraints."""

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
    """What a threshold is about."""

    LATENCY = "latency"  # ms, from the origin time of the latest input to the sink
    JUICE = "juice"  # 0…1 (above 1 while a backlog is worked off), processed of what arrived
    THROUGHPUT = "throughput"  # records per second written by all sinks


@dataclass(frozen=True, slots=True)
class Threshold:
    """One bound on one metric, and what it is worth to come near it."""

    metric: Metric
    value: float
    statistic: str | None = None
    utility: Utility = field(default_factory=Utility)

    @property
    def sense(self) -> Sense:
        return Sense.AT_MOST if self.metric is Metric.LATENCY else Sense.AT_LEAST

    @property
    def quantile(self) -> float | None:
        """The quantile that a latency threshold is about, in (0, 1); None for the mean."""
        return quantile_of(self.statistic) if self.statistic else None

    @property
    def key(self) -> str:
        """Under which name measures give the value: `latency.p95`, `latency.mean`, `juice` …"""
        return latency_key(self.quantile) if self.metric is Metric.LATENCY else str(self.metric)

    def met(self, value: float | None) -> bool | None:
        if value is None or math.isnan(value):
            return None
        return value <= self.value if self.sense is Sense.AT_MOST else value >= self.value

    def __str__(self) -> str:
        sign = "≤" if self.sense is Sense.AT_MOST else "≥"
        unit = {"latency": " ms", "juice": "", "throughput": "/s"}[self.metric]
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
    """The mean latency of a part of the job stays below a bound in any span of `over_s` seconds
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


@dataclass(frozen=True, slots=True)
class Intent:
    """Thresholds, how much the job matters, and constraints over its parts.

    The maximum utility is proportional to the priority (Henge, section 4): here it *is* the
    priority, so that the papers' figures (35 per job, 10 to 90) can be written down as they are.
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
        """What the measured values are worth: the average over the thresholds (a hybrid SLO,
        section 8.1.1), times the maximum. None when a value is missing or nothing is asked.
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
        """Whether every threshold is met; None when one cannot be told and none is missed."""
        verdicts = [threshold.met(values.get(threshold.key)) for threshold in self.thresholds]
        if False in verdicts:
            return False
        return None if None in verdicts or not verdicts else True


def latency_key(quantile: float | None) -> str:
    """The name of a latency among measured values: `latency.p95`, or `latency.mean`."""
    return "latency.mean" if quantile is None else f"latency.p{quantile * 100:g}"


def quantile_of(statistic: str) -> float | None:
    """`p95` → 0.95, `p99.9` → 0.999, `mean` → None. p50 to p99.9."""
    if statistic == "mean":
        return None
    found = _PERCENTILE.fullmatch(statistic)
    if found is None or not 50 <= float(found.group(1)) <= 99.9:
        raise InvalidIntent(
            f"{statistic!r} is not a statistic of latency.",
            "Use mean, or a percentile from p50 to p99.9.",
        )
    return round(float(found.group(1)) / 100, 6)


def sequence_of(parts: Sequence[str]) -> tuple[str | EdgeName, ...]:
    """A sequence from names of operators and `from->to` edges.

    Between two operators that follow each other directly, the edge between them is meant too.
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
