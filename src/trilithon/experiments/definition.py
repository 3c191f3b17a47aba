"""Defines an experiment of a paper: jobs, intents, loads, faults, machines, the paper's figures.

All of it is data. What a paper leaves open is listed in `chosen`, in words; the numbers chosen for
it stand in `scenarios/chosen.yaml`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final, Literal

from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.policies.requests import ScalingKind


class Topology(StrEnum):
    """The jobs of the papers' experiments, by the name of their file in `workloads/topologies`."""

    PAGELOAD = "pageload"
    LINEAR = "linear"
    DIAMOND = "diamond"
    STAR = "star"
    NETWORK = "network"
    PROCESSING = "processing"
    WORDCOUNT = "wordcount"
    # Word count with spouts that make its sentences.
    SENTENCES = "sentences"
    PRIMETESTER = "primetester"
    TWITTERSENTIMENT = "twittersentiment"
    # Retains records for a while to join later ones with them.
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class LoadChange:
    """From `at_s` on, the load is `factor` times the rate that the job was sized for."""

    at_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class RelativeLoad:
    """The load of a job, relative to the rate that it was sized for.

    With a trace, each of its rows lasts `row_s`, and the mean over all rows is `factor`; rows above
    `trace_most` count as that, where the source of the load cannot send more.
    """

    factor: float = 1.0
    changes: tuple[LoadChange, ...] = ()
    trace: str | None = None
    row_s: float | None = None
    trace_most: float | None = None


@dataclass(frozen=True, slots=True)
class JobSet:
    """Identical jobs, except for their names and, where several are given, their priorities."""

    name: str
    count: int
    topology: Topology
    thresholds: tuple[Threshold, ...]
    priorities: tuple[float, ...]
    load: RelativeLoad = field(default_factory=RelativeLoad)
    arrive_s: float = 0.0
    # First parallelism of some operators; the others begin with what was chosen for the topology.
    instances: tuple[tuple[str, int], ...] = ()
    workers: int | None = None
    tasks: int | None = None
    # The operator that keeps state, if one does.
    state: str | None = None
    # The part of the records that one key has, at an operator.
    hot_key: tuple[str, float] | None = None
    # Operators whose number of instances nobody may change.
    fixed: tuple[str, ...] = ()

    @property
    def intents(self) -> tuple[Intent, ...]:
        """One intent per job; the last priority serves all jobs beyond the list."""
        last = self.priorities[-1]
        given = [*self.priorities, *([last] * self.count)][: self.count]
        return tuple(Intent(self.thresholds, priority) for priority in given)

    @property
    def max_utility(self) -> float:
        return sum(intent.max_utility for intent in self.intents)


@dataclass(frozen=True, slots=True)
class PlannedScaling:
    """Machines that people add, or take away, at a time."""

    at_s: float
    kind: ScalingKind
    machines: int


class FaultKind(StrEnum):
    METRICS_LOST = "lost"  # the controller receives no metrics
    CPU_LOAD = "cpu_load"  # other processes compute on the machines
    SLOW_INSTANCE = "slow_instance"  # one instance takes longer for each record


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault on all machines; `threads` is the size of a CPU load, by default the chosen one. A
    slow instance is the first of `operator` of a job, `slower` times as slow as its peers.
    """

    kind: FaultKind
    from_s: float
    to_s: float
    threads: float | None = None
    job: str = ""
    operator: str = ""
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class FigureScope:
    """Which runs a figure is about, and what must have happened in them for it to say something.

    `decided_s` is the time in which the policy must have acted, as the paper's did. Times are
    compared from `since_s` on. A figure of `recovery` is the time by which jobs recover from a
    fault, while it lasts.
    """

    # All variants of the experiment if empty.
    variants: tuple[str, ...] = ()
    # The paper's own policy if empty.
    strategy: str = ""
    decided_s: tuple[float, float] = (0.0, inf)
    since_s: float = 0.0
    recovery: bool = False


WHOLE_EXPERIMENT: Final = FigureScope()


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """A number that the paper prints.

    `more_is_better` is None where neither direction is better. `not_comparable` says why our number
    cannot be compared with it, where that is so. Headline figures stand in the table at the top of
    the result page. Where a text has `words` and no number, `between` is where they hold, and
    `value` what they are about: 0 for a gain.
    """

    name: str
    value: float
    unit: str
    source: str
    more_is_better: bool | None
    not_comparable: str = ""
    headline: bool = False
    scope: FigureScope = WHOLE_EXPERIMENT
    words: str = ""
    between: tuple[float, float] = (-inf, inf)


def at_least(
    name: str,
    value: float,
    unit: str,
    source: str,
    not_comparable: str = "",
    *,
    headline: bool = False,
    scope: FigureScope = WHOLE_EXPERIMENT,
) -> PaperFigure:
    """A figure of which more is better."""
    return PaperFigure(name, value, unit, source, True, not_comparable, headline, scope)


def at_most(
    name: str,
    value: float,
    unit: str,
    source: str,
    not_comparable: str = "",
    *,
    headline: bool = False,
    scope: FigureScope = WHOLE_EXPERIMENT,
) -> PaperFigure:
    """A figure of which less is better."""
    return PaperFigure(name, value, unit, source, False, not_comparable, headline, scope)


def neither(
    name: str,
    value: float,
    unit: str,
    source: str,
    *,
    headline: bool = False,
    scope: FigureScope = WHOLE_EXPERIMENT,
) -> PaperFigure:
    """A figure of which neither more nor less is better."""
    return PaperFigure(name, value, unit, source, None, "", headline, scope)


def in_words(
    name: str,
    words: str,
    value: float,
    between: tuple[float, float],
    unit: str,
    source: str,
    *,
    scope: FigureScope = WHOLE_EXPERIMENT,
) -> PaperFigure:
    """A figure of which the text says in words which way it goes."""
    return PaperFigure(name, value, unit, source, None, scope=scope, words=words, between=between)


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration of an experiment.

    `resources` is the share that the cluster has of what all jobs would have in clusters of their
    own; None where the paper does not speak of it.
    """

    name: str
    jobs: tuple[JobSet, ...]
    machines: int = 10
    cores: int | None = None
    memory_gb: float | None = None
    resources: float | None = None
    faults: tuple[PlannedFault, ...] = ()
    # How irregularly records come, by default as chosen for all experiments.
    arrivals: Literal["poisson", "bursty", "even"] | None = None
    engine: Literal["storm", "heron", "spark-rtm"] = "storm"
    # Parameters of the paper's policy in this variant only.
    parameters: tuple[tuple[str, float], ...] = ()
    # One of the kinds of machines in the chosen numbers.
    machine_kind: str | None = None
    scaling: PlannedScaling | None = None
    # Whether each machine begins with the instances of one operator alone.
    operators_apart: bool = False
    # The strategies that it is run under, by name; all of the experiment's if empty.
    strategies: tuple[str, ...] = ()

    @property
    def max_utility(self) -> float:
        return sum(jobs.max_utility for jobs in self.jobs)

    @property
    def count(self) -> int:
        return sum(jobs.count for jobs in self.jobs)


@dataclass(frozen=True, slots=True)
class Experiment:
    """What the paper ran, for how long, and the figures that it prints.

    The policy only observes until `policy_from_s`. `plotted` names the variants of which the
    results keep short series, so that plots can be drawn without running them again. With
    `policy_only`, no other strategy is run: it tries parameters of the policy in runs of other
    experiments.
    """

    name: str
    about: str
    source: str
    duration_s: float
    variants: tuple[Variant, ...]
    figures: tuple[PaperFigure, ...]
    chosen: tuple[str, ...] = ()
    policy_from_s: float = 900.0
    plotted: tuple[str, ...] = ()
    # Whether the series of the plotted variants have the instances of each operator.
    with_instances: bool = False
    policy_only: bool = False
    # The strategies that it compares, of those of the paper; all if empty.
    strategies: tuple[str, ...] = ()

    def variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)


def latency(ms: float) -> tuple[Threshold, ...]:
    """An intent on the mean latency."""
    return (Threshold(Metric.LATENCY, ms),)


def juice(least: float = 1.0) -> tuple[Threshold, ...]:
    return (Threshold(Metric.JUICE, least),)
