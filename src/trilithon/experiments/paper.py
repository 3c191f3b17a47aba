"""Defines `Paper`: everything that the experiments of one paper add to the common frame.

A new paper is a catalogue of experiments (data), a measure per experiment, reasons why figures
differ, a list of plots, a part of `scenarios/chosen.yaml` with the paper's name, and an entry in
`experiments/papers.py`. Building, running, searching, ranking, results, pages and plots are common.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trilithon.experiments.definition import Experiment, Topology, Variant
from trilithon.experiments.mixes import MixResult
from trilithon.experiments.runs import Run
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.seeds import SEEDS
from trilithon.experiments.strategies import Strategy, StrategyKind
from trilithon.policies.parameters import ParameterInfo
from trilithon.scenarios.chosen import ChosenNumbers

if TYPE_CHECKING:
    from trilithon.experiments.experiment_result import ExperimentResult
    from trilithon.experiments.plots import Plot
    from trilithon.experiments.results import PaperResults
    from trilithon.scenarios.chosen import ChosenNumbers

# By variant, then by the name of the strategy.
Runs = Mapping[str, Mapping[str, Run]]


@dataclass(frozen=True, slots=True)
class NothingDecided:
    """In the place of a number: why the runs say nothing about a figure, in a sentence."""

    why: str


# Our numbers, by the name of the paper's figure; None for what is never reached.
Values = dict[str, float | NothingDecided | None]
Facts = Mapping[str, float | str | None]


@dataclass(frozen=True)
class Finding:
    """Something that the runs show and the paper gives no number for.

    The results keep the facts; the page turns them into a sentence.
    """

    measure: Callable[[Runs], Facts]
    sentence: Callable[[Facts], str]
    # Whether the first page has it also if the experiment has no plot there.
    first_page: bool = False


@dataclass(frozen=True)
class SensitivityPlan:
    """In which runs the chosen numbers are halved and raised by half, to see how much each matters.

    A number is moved in the first of `runs` that can depend on it, and in `tight`, in which the
    machines are nearly full. Words are tried in all of `runs`, and the policy's own parameters are
    moved in `policy_runs`.
    """

    runs: tuple[tuple[str, str], ...]
    tight: tuple[str, str]
    policy_runs: tuple[tuple[str, str], ...]
    # The policy's parameters that had to be chosen.
    parameters: tuple[ParameterInfo, ...] = ()
    # Other words for a number's path that holds a word.
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The path of a word whose results stand beside those with the chosen one on the page.
    beside: str = ""
    # Variants that only this plan uses, by name.
    variants: Mapping[str, Variant] = field(default_factory=dict)


@dataclass(frozen=True)
class SparkComparison:
    """Policies that run one after the other on Spark, under the same load; `none` acts never.

    `parameters` are those of each policy on a small machine, where a run takes minutes, not hours.
    """

    policies: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class PartRun:
    """What a part needs to run: what an interrupted run of it has done already, if any. Results
    that were made by other code or numbers are not among it.
    """

    done: Any
    tell: Callable[[str], None]
    workers: int
    chosen: "ChosenNumbers"


@dataclass(frozen=True)
class PaperPart:
    """Something that a paper has beside its experiments, by its name in `trilithon experiment`.

    `run` yields its results as JSON data, more with each; `text` turns them into Markdown. That is
    a section of the paper's page, with results among the paper's, or a page with results of its
    own (`own_page`), with plots that `draw` writes into the page's folder. `in_all` is whether
    `all` runs it. `made_by` identifies what its results are
    made by, as the fingerprint of the paper's experiments does, which is used without it.
    """

    name: str
    about: str
    run: Callable[[PartRun], Iterator[Any]]
    text: Callable[[Any], str]
    own_page: bool = True
    in_all: bool = True
    made_by: Callable[[ChosenNumbers], str] | None = None
    draw: Callable[[Any, Path], None] | None = None

    def write_page(self, data: Any, file: Path) -> None:
        """Writes its own page with its plots, from stored results."""
        file.write_text(self.text(data), encoding="utf-8")
        if self.draw is not None:
            self.draw(data, file.parent)


@dataclass(frozen=True)
class Paper:
    """One paper: what it ran, what it measured, what is compared, and how its page is told."""

    # The argument of `trilithon experiment`, the part in the chosen numbers, the name of the page.
    name: str
    # What sentences call the policy.
    title: str
    # What the page says before the tables.
    introduction: str
    experiments: tuple[Experiment, ...]
    # The paper's own policy first.
    strategies: tuple[Strategy, ...]
    measures: Mapping[str, Callable[[Runs], Values]]
    findings: Mapping[str, Finding] = field(default_factory=dict)
    # Why a figure is not as in the paper: by experiment and figure, one sentence, or None where
    # the numbers do not show it.
    reasons: Mapping[tuple[str, str], "Callable[[ExperimentResult], str | None]"] = field(
        default_factory=dict
    )
    # Why nothing was decided in the runs of a figure: as above, after the sentence that says so.
    void_reasons: Mapping[tuple[str, str], "Callable[[ExperimentResult], str | None]"] = field(
        default_factory=dict
    )
    plots: "tuple[Plot, ...]" = ()
    # What the jobs of random mixes are drawn from; no mixes without any.
    mixed_topologies: tuple[Topology, ...] = ()
    # One random mix by its seed, where a paper draws its own; else jobs of `mixed_topologies`.
    mix: Callable[[int, ChosenNumbers], MixResult] | None = None
    # What the page says about the mixes, from their results; else the common text.
    mixes_text: Callable[[Sequence[MixResult]], str] | None = None
    sensitivity: SensitivityPlan | None = None
    spark: SparkComparison | None = None
    # The part of the page that compares strategies, where satisfaction is not what the paper is
    # about.
    overview: "Callable[[PaperResults, Paper], str] | None" = None
    parts: tuple[PaperPart, ...] = ()
    # Builds the simulated runs; seeds of those that are random.
    builder: Callable[[ChosenNumbers, str], ScenarioBuilder] = ScenarioBuilder
    seeds: tuple[int, ...] = SEEDS
    # How the page says that it was run; else the common text.
    method: str = ""

    @property
    def command(self) -> str:
        """The command that runs it, as its pages print it."""
        return f"trilithon experiment {self.name}"

    @property
    def pages(self) -> tuple[PaperPart, ...]:
        """The parts with a page of their own."""
        return tuple(part for part in self.parts if part.own_page)

    @property
    def sections(self) -> tuple[PaperPart, ...]:
        """The parts that are told on the paper's page."""
        return tuple(part for part in self.parts if not part.own_page)

    @property
    def has_mixes(self) -> bool:
        return self.mix is not None or bool(self.mixed_topologies)

    @property
    def policy(self) -> Strategy:
        """The paper's own."""
        return self.strategies[0]

    @cached_property
    def by_name(self) -> Mapping[str, Experiment]:
        return {experiment.name: experiment for experiment in self.experiments}

    @cached_property
    def topologies(self) -> set[Topology]:
        """All jobs of which the chosen numbers must have rates and costs."""
        used = {
            jobs.topology
            for experiment in self.experiments
            for variant in experiment.variants
            for jobs in variant.jobs
        }
        return used | set(self.mixed_topologies)

    @property
    def engines(self) -> str:
        """The simulated engines that its experiments run on, for the page."""
        used = {variant.engine for e in self.experiments for variant in e.variants}
        return " and ".join(f"`{engine}`" for engine in sorted(used))

    def label(self, strategy: str) -> str:
        """What tables and legends call a strategy."""
        return self.title if strategy == self.policy.name else strategy

    def values(self, experiment: str, runs: Runs) -> Values:
        """Our numbers for the figures of an experiment, as plain floats."""
        measured = self.measures[experiment](runs)
        return {
            name: value if value is None or isinstance(value, NothingDecided) else float(value)
            for name, value in measured.items()
        }

    @property
    def plotted_strategies(self) -> tuple[Strategy, ...]:
        """Each policy once, and the allocations without one."""
        return tuple(s for s in self.strategies if not s.other_timing)

    @property
    def cheap_strategies(self) -> tuple[Strategy, ...]:
        """Those of the plots without a search over whole runs, each policy and each way of choosing
        an allocation once.
        """
        return tuple(
            s
            for s in self.plotted_strategies
            if s.kind is not StrategyKind.BEST_STATIC and s.headroom == 1 and not s.difference
        )
