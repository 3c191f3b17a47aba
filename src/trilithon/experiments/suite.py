"""Runs the experiments of a paper: every variant under every strategy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trilithon.experiments.definition import Experiment, PaperFigure
from trilithon.experiments.mixes import COUNT, FIRST_SEED, MixResult, run_mix
from trilithon.experiments.paper import Facts, Paper
from trilithon.experiments.papers import PAPERS
from trilithon.experiments.run_series import RunSeries
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import Run
from trilithon.experiments.scenario_builder import ScenarioBuilder, check_numbers
from trilithon.experiments.sensitivity import MovedRun, NumberMove, moves, run_move
from trilithon.experiments.worker_pool import each_done
from trilithon.scenarios.chosen import ChosenNumbers, load_chosen

Progress = Callable[[str], None]
PERCENTILES: Final = (15, 50, 90)


@dataclass(frozen=True)
class RunSummary:
    """One run in a few numbers: satisfaction while the policy may act, and at the end."""

    average: float
    percentiles: Mapping[int, float]
    at_end: float
    actions: int
    instances: int

    @classmethod
    def of(cls, run: Run) -> "RunSummary":
        return cls(
            average=run.average,
            percentiles={percent: run.percentile(percent) for percent in PERCENTILES},
            at_end=run.at_end,
            actions=len(run.changes()),
            instances=sum(sum(counts.values()) for counts in run.final_instances.values()),
        )


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of the paper beside ours.

    `worse` is None where they cannot be compared; where neither direction is better it tells
    whether they differ.
    """

    figure: PaperFigure
    ours: float | None

    @property
    def worse(self) -> bool | None:
        if self.ours is None or self.figure.not_comparable:
            return None
        theirs = self.figure.value
        # What differs by less than a hundredth is the same.
        slack = 0.01 * abs(theirs)
        if self.figure.more_is_better is None:
            return abs(self.ours - theirs) > slack
        if self.figure.more_is_better:
            return self.ours < theirs - slack
        return self.ours > theirs + slack


@dataclass(frozen=True)
class ExperimentResult:
    """Results of an experiment: figures, a summary per run, series of the plotted variants."""

    experiment: Experiment
    figures: tuple[ComparedFigure, ...]
    # By variant, then by the name of the strategy.
    summaries: Mapping[str, Mapping[str, RunSummary]] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    series: Mapping[str, Mapping[str, RunSeries]] = field(default_factory=dict)

    def ours(self, figure: str) -> float | None:
        return next(one.ours for one in self.figures if one.figure.name == figure)


def chosen_numbers(paper: Paper, path: Path | None) -> ChosenNumbers:
    """The chosen numbers of a file; refused if they lack something that the experiments need."""
    chosen = load_chosen(path)
    check_numbers(chosen, paper.name, paper.topologies, str(path or "chosen.yaml"))
    return chosen


def run_variant(
    paper: str, experiment: str, variant: str, strategy: str, chosen: ChosenNumbers
) -> Run:
    """One run; by names, since it may run in a process of its own."""
    owner = PAPERS[paper].load()
    found = owner.by_name[experiment]
    (by,) = (one for one in owner.strategies if one.name == strategy)
    runner = Runner(ScenarioBuilder(chosen, paper), owner.policy)
    return runner.run(found, found.variant(variant), by)


def experiment_result(
    paper: Paper, experiment: Experiment, runs: Mapping[str, Mapping[str, Run]]
) -> ExperimentResult:
    values = paper.values(experiment.name, runs)
    finding = paper.findings.get(experiment.name)
    names = [strategy.name for strategy in paper.strategies]
    return ExperimentResult(
        experiment,
        tuple(ComparedFigure(figure, values[figure.name]) for figure in experiment.figures),
        {
            variant.name: {name: RunSummary.of(runs[variant.name][name]) for name in names}
            for variant in experiment.variants
        },
        dict(finding.measure(runs)) if finding is not None else {},
        {
            variant: {name: RunSeries.of(runs[variant][name]) for name in names}
            for variant in experiment.plotted
        },
    )


def run_experiments(
    paper: Paper,
    experiments: Sequence[Experiment],
    workers: int,
    progress: Progress,
    chosen: ChosenNumbers,
) -> Iterator[ExperimentResult]:
    """The results of each experiment as soon as all of its runs are done."""
    wanted = [
        (paper.name, experiment.name, variant.name, strategy.name, chosen)
        for experiment in experiments
        for variant in experiment.variants
        for strategy in paper.strategies
    ]
    runs: dict[str, dict[str, dict[str, Run]]] = {}
    for done, (i, run) in enumerate(each_done(run_variant, wanted, workers), start=1):
        _, name, variant, strategy, _ = wanted[i]
        by_variant = runs.setdefault(name, {})
        by_variant.setdefault(variant, {})[strategy] = run
        progress(f"{done} of {len(wanted)} runs: {name} {variant} {strategy}")
        experiment = paper.by_name[name]
        complete = len(experiment.variants) * len(paper.strategies)
        if sum(map(len, by_variant.values())) == complete:
            yield experiment_result(paper, experiment, runs.pop(name))


def _mix(paper: str, seed: int, chosen: ChosenNumbers) -> MixResult:
    owner = PAPERS[paper].load()
    builder = ScenarioBuilder(chosen, paper)
    return run_mix(seed, builder, owner.mixed_topologies, owner.strategies)


def run_mixes(
    paper: Paper, workers: int, progress: Progress, chosen: ChosenNumbers, count: int = COUNT
) -> list[MixResult]:
    """Random mixes, from the first seed that is not for development."""
    wanted = [(paper.name, seed, chosen) for seed in range(FIRST_SEED, FIRST_SEED + count)]
    results: dict[int, MixResult] = {}
    for i, result in each_done(_mix, wanted, workers):
        results[i] = result
        progress(f"{len(results)} of {count} mixes")
    return [results[i] for i in sorted(results)]


def _move(paper: str, chosen: ChosenNumbers, move: NumberMove) -> MovedRun:
    return run_move(PAPERS[paper].load(), chosen, move)


def run_moves(
    paper: Paper, workers: int, progress: Progress, chosen: ChosenNumbers
) -> tuple[list[MovedRun], list[str]]:
    """Every chosen number moved, and the numbers that are not moved."""
    wanted, unmoved = moves(paper, chosen)
    arguments = [(paper.name, chosen, move) for move in wanted]
    results: dict[int, MovedRun] = {}
    for i, result in each_done(_move, arguments, workers):
        results[i] = result
        progress(f"{len(results)} of {len(wanted)} runs with a number moved")
    return [results[i] for i in sorted(results)], unmoved
