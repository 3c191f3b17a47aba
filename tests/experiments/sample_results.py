"""Results with given numbers."""

from dataclasses import replace

from trilithon.experiments.experiment_result import (
    ComparedFigure,
    ExperimentResult,
    RunSummary,
)
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.mixes import FIRST_SEED, MixResult, rank
from trilithon.experiments.results import PaperResults
from trilithon.experiments.run_series import QUANTILES, RunSeries
from trilithon.experiments.sensitivity import MovedRun, NumberMove

STRATEGIES = [strategy.name for strategy in PAPER.strategies]
SUMMARY = RunSummary(
    0.5, {10: 0.05, 15: 0.1, 50: 0.5, 90: 0.9}, 0.75, 7, 12, 24.5, ((1000.0, "RECONFIGURATION"),)
)
WORSE = replace(SUMMARY, average=0.25, actions=0, acted=())
SERIES = RunSeries(
    from_s=10.0,
    step_s=20.0,
    utility=(1.0, None, 3.0),
    maximum=(4.0, None, 4.0),
    quantiles=tuple(map(float, QUANTILES)),
    actions=((30.0, "RECONFIGURATION"), (50.0, "REDUCTION")),
)


def experiment_of(name: str, ours: float | None = 1.5) -> ExperimentResult:
    experiment = PAPER.by_name[name]
    return ExperimentResult(
        experiment,
        tuple(ComparedFigure(figure, ours) for figure in experiment.figures),
        {
            variant.name: {**dict.fromkeys(STRATEGIES, WORSE), PAPER.policy.name: SUMMARY}
            for variant in experiment.variants
        },
        {},
        {variant: dict.fromkeys(STRATEGIES, SERIES) for variant in experiment.plotted},
    )


def sample_results() -> PaperResults:
    mixes = [
        MixResult(
            FIRST_SEED + i,
            3,
            2,
            dict.fromkeys(STRATEGIES, 0.1 * i),
            dict.fromkeys(STRATEGIES, 0.05 * i),
            dict.fromkeys(STRATEGIES, 8.0 * i),
        )
        for i in range(3)
    ]
    cheap = [strategy.name for strategy in PAPER.cheap_strategies]
    moved = [
        MovedRun(NumberMove("cost", "alone on 1", path, factor), dict.fromkeys(cheap, 0.5))
        for path, factor in ((None, 1.0), ("storm.outage", 0.5))
    ]
    experiments = [experiment_of("cost"), experiment_of("priorities")]
    return PaperResults(
        experiments,
        rank(mixes),
        mixes,
        moved,
        ["machine.cores"],
        mixes_made_by="this code",
        moved_made_by="this code",
    )
