"""Owns what an experiment is made of: jobs, intents, loads, faults and machines, and the paper's figures.

All of it is data. What a paper does not say is in `chosen`, in words, beside the number that was chosen.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from trilithon.model.intent import Intent, Metric, Threshold


class Shape(StrEnum):
    """The jobs that the papers use."""

    PAGELOAD = "pageload"  # Yahoo!'s: filter, transform, join, aggregate
    LINEAR = "linear"
    DIAMOND = "diamond"
    STAR = "star"
    WORDCOUNT = "wordcount"
    JOIN = "join"  # keeps records to join them with later ones


@dataclass(frozen=True, slots=True)
class Change:
    """From a moment on the load is this many times what it was at the beginning."""

    at_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class Load:
    """What comes in, relative to the load that a job was sized for. By a trace, each of its rows
    lasts `row_s` and its mean is `factor`.
    """

    factor: float = 1.0
    changes: tuple[Change, ...] = ()
    trace: str | None = None
    row_s: float | None = None


@dataclass(frozen=True, slots=True)
class Jobs:
    """Some jobs that are alike but for their names, and for their priorities where several are given."""

    name: str
    count: int
    shape: Shape
    thresholds: tuple[Threshold, ...]
    priorities: tuple[float, ...]
    load: Load = field(default_factory=Load)
    arrive_s: float = 0.0
    # At the start, of some operators; of the others as many as was chosen for their shape.
    instances: tuple[tuple[str, int], ...] = ()
    workers: int | None = None
    tasks: int | None = None
    # The operator that keeps state, if one does.
    state: str | None = None

    @property
    def intents(self) -> tuple[Intent, ...]:
        """One for each job; the last priority serves those that have none of their own."""
        last = self.priorities[-1]
        given = [*self.priorities, *([last] * self.count)][: self.count]
        return tuple(Intent(self.thresholds, priority) for priority in given)

    @property
    def max_utility(self) -> float:
        return sum(intent.max_utility for intent in self.intents)


class FaultKind(StrEnum):
    LOST = "lost"  # the controller gets no numbers
    CPU_LOAD = "cpu_load"  # other processes on the machines


@dataclass(frozen=True, slots=True)
class Fault:
    kind: FaultKind
    from_s: float
    to_s: float
    size: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that the paper prints. `at_least` is True where more is better, None where neither is.
    `apart` says why ours cannot be held against it, where that is so.
    """

    what: str
    value: float
    unit: str
    source: str
    at_least: bool | None
    apart: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """One run of an experiment. `resources` is the share that the cluster has of what all jobs would
    have in clusters of their own; None where the paper does not speak of it.
    """

    name: str
    jobs: tuple[Jobs, ...]
    machines: int = 10
    cores: int | None = None
    memory_gb: float | None = None
    resources: float | None = None
    faults: tuple[Fault, ...] = ()
    parameters: tuple[tuple[str, float], ...] = ()

    @property
    def max_utility(self) -> float:
        return sum(jobs.max_utility for jobs in self.jobs)

    @property
    def count(self) -> int:
        return sum(jobs.count for jobs in self.jobs)


@dataclass(frozen=True, slots=True)
class Experiment:
    """What was run, for how long, and what came of it in the paper.

    Jobs run by themselves for `held_back_s` before the policy may act (SoCC'18, section 8).
    """

    name: str
    about: str
    source: str
    duration_s: float
    variants: tuple[Variant, ...]
    figures: tuple[Figure, ...]
    chosen: tuple[str, ...] = ()
    held_back_s: float = 900.0

    def variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)


def latency(ms: float) -> tuple[Threshold, ...]:
    """A mean latency, as in all of Henge's experiments."""
    return (Threshold(Metric.LATENCY, ms),)


def juice(least: float = 1.0) -> tuple[Threshold, ...]:
    return (Threshold(Metric.JUICE, least),)
