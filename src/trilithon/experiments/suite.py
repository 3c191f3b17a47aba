"""Runs the experiments of a paper: every variant under every strategy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from trilithon.experiments.definition import Experiment, PaperFigure, Variant
from trilithon.experiments.experiment_result import (
    ComparedFigure,
    ExperimentResult,
    RunSummary,
)
from trilithon.experiments.mixes import COUNT, FIRST_SEED, MixResult, run_mix
from trilithon.experiments.paper import NothingDecided, Paper, Runs
from trilithon.experiments.papers import PAPERS
from trilithon.experiments.provenance import fingerprint
from trilithon.experiments.run_series import RunSeries
from trilithon.experiments.run_store import RunStore
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import Run
from trilithon.experiments.scenario_builder import check_numbers
from trilithon.experiments.sensitivity import MovedRun, NumberMove, moves, run_move
from trilithon.experiments.strategies import Strategy
from trilithon.experiments.worker_pool import each_done
from trilithon.scenarios.chosen import ChosenNumbers, load_chosen

Progress = Callable[[str], None]
# After so many, results are kept: an interruption costs a few minutes.
MIXES_AT_ONCE: Final = 10
MOVES_AT_ONCE: Final = 20
# By variant, then by the name of the strategy: one run per seed.
RunsBySeed = Mapping[str, Mapping[str, Sequence[Run]]]


def chosen_numbers(paper: Paper, path: Path | None) -> ChosenNumbers:
    """The chosen numbers of a file; refused if they lack something that the experiments need."""
    chosen = load_chosen(path)
    check_numbers(chosen, paper.name, paper.topologies, str(path or "chosen.yaml"))
    return chosen


@contextmanager
def _run_folder(folder: Path | None) -> Iterator[Path]:
    """The folder for stored runs: the given one, or one that ends with the context."""
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory(prefix="trilithon-runs-") as temporary:
        yield Path(temporary)


def run_variant(
    paper: str,
    experiment: str,
    variant: str,
    strategy: str,
    chosen: ChosenNumbers,
    stored: Path | None = None,
) -> tuple[Run, ...]:
    """The runs of a variant, one per seed; by names, since it may run in a process of its own."""
    owner = PAPERS[paper].load()
    of = owner.by_name[experiment]
    (by,) = (candidate for candidate in owner.strategies if candidate.name == strategy)
    store, builder = RunStore(stored), owner.builder(chosen, paper)
    runner = Runner(builder, owner.policy, seeds=owner.seeds, store=store)
    return runner.run(of, of.variant(variant), by)


def experiment_result(
    paper: Paper, experiment: Experiment, runs: RunsBySeed, made_by: str | None = None
) -> ExperimentResult:
    seeds = max(len(by_seed) for by_name in runs.values() for by_seed in by_name.values())
    values = [paper.values(experiment.name, _with_seed(runs, seed)) for seed in range(seeds)]
    finding, own = paper.findings.get(experiment.name), paper.policy.name
    return ExperimentResult(
        experiment,
        tuple(
            _compared(figure, [of_seed[figure.name] for of_seed in values])
            for figure in experiment.figures
        ),
        {
            variant.name: {
                name: RunSummary.of(by_seed, actions=name == own)
                for name, by_seed in runs[variant.name].items()
            }
            for variant in experiment.variants
        },
        dict(finding.measure(_with_seed(runs, 0))) if finding is not None else {},
        {
            variant: {
                name: RunSeries.of(
                    by_seed[0],
                    actions=name == own,
                    throughput=experiment.variant(variant).scaling is not None,
                    instances=experiment.with_instances,
                )
                for name, by_seed in runs[variant].items()
            }
            for variant in experiment.plotted
        },
        made_by,
    )


def _with_seed(runs: RunsBySeed, seed: int) -> Runs:
    """The runs with one of the seeds; what is not random was run once."""
    return {
        variant: {name: by_seed[min(seed, len(by_seed) - 1)] for name, by_seed in by_name.items()}
        for variant, by_name in runs.items()
    }


def _compared(
    figure: PaperFigure, values: Sequence[float | NothingDecided | None]
) -> ComparedFigure:
    void = [value.why for value in values if isinstance(value, NothingDecided)]
    each = [None if isinstance(value, NothingDecided) else value for value in values]
    return ComparedFigure.of_seeds(figure, each, void[0] if len(void) == len(values) else "")


def strategies_of(paper: Paper, experiment: Experiment, variant: Variant) -> tuple[Strategy, ...]:
    """Each policy with its own timing; with another, it is in the random mixes alone."""
    if variant.strategies:
        return tuple(s for s in paper.strategies if s.name in variant.strategies)
    if experiment.policy_only:
        return (paper.policy,)
    wanted = experiment.strategies
    return tuple(s for s in paper.plotted_strategies if not wanted or s.name in wanted)


def run_experiments(
    paper: Paper,
    experiments: Sequence[Experiment],
    workers: int,
    progress: Progress,
    chosen: ChosenNumbers,
    stored: Path | None = None,
) -> Iterator[ExperimentResult]:
    """The results of each experiment as soon as all of its runs are done.

    Runs are stored in the folder `stored` until the caller has taken the result of their
    experiment: after an interruption it goes on with them.
    """
    with _run_folder(stored) as folder:
        wanted = [
            (paper.name, experiment.name, variant.name, strategy.name, chosen)
            for experiment in experiments
            for variant in experiment.variants
            for strategy in strategies_of(paper, experiment, variant)
        ]
        calls = [(*one, folder / one[1]) for one in wanted]
        runs: dict[str, dict[str, dict[str, tuple[Run, ...]]]] = {}
        for done, (i, by_seed) in enumerate(each_done(run_variant, calls, workers), start=1):
            _, name, variant, strategy, _ = wanted[i]
            experiment = paper.by_name[name]
            names = {
                one.name: [by.name for by in strategies_of(paper, experiment, one)]
                for one in experiment.variants
            }
            if name not in runs:
                # In the order of the paper, whichever run is done first.
                runs[name] = {one.name: {} for one in experiment.variants}
            runs[name][variant][strategy] = by_seed
            progress(f"{done} of {len(wanted)} runs: {name} {variant} {strategy}")
            if sum(map(len, runs[name].values())) == sum(map(len, names.values())):
                ordered = {
                    key: {by: by_name[by] for by in names[key]}
                    for key, by_name in runs.pop(name).items()
                }
                yield experiment_result(paper, experiment, ordered, fingerprint(paper, chosen))
                RunStore(folder / name).clear()


def _mix(paper: str, seed: int, chosen: ChosenNumbers) -> MixResult:
    owner = PAPERS[paper].load()
    if owner.mix is not None:
        return owner.mix(seed, chosen)
    builder = owner.builder(chosen, paper)
    return run_mix(seed, builder, owner.mixed_topologies, owner.strategies)


def run_mixes(
    paper: Paper,
    workers: int,
    progress: Progress,
    chosen: ChosenNumbers,
    kept: Sequence[MixResult] = (),
    count: int = COUNT,
) -> Iterator[list[MixResult]]:
    """Random mixes, from the first seed that is not for development; some more in each list.

    Mixes that were run before are kept.
    """
    results = {mix.seed: mix for mix in kept}
    seeds = [seed for seed in range(FIRST_SEED, FIRST_SEED + count) if seed not in results]
    wanted = [(paper.name, seed, chosen) for seed in seeds]
    for done, (_, result) in enumerate(each_done(_mix, wanted, workers), start=1):
        results[result.seed] = result
        progress(f"{len(results)} of {count} mixes")
        if done % MIXES_AT_ONCE == 0 or done == len(wanted):
            yield [results[seed] for seed in sorted(results)]


def _move(paper: str, chosen: ChosenNumbers, move: NumberMove, stored: Path) -> MovedRun:
    return run_move(PAPERS[paper].load(), chosen, move, RunStore(stored))


def run_moves(
    paper: Paper,
    workers: int,
    progress: Progress,
    chosen: ChosenNumbers,
    kept: Sequence[MovedRun] = (),
) -> Iterator[tuple[list[MovedRun], list[str]]]:
    """Every chosen number moved, some more in each list, and the numbers that are not moved.

    Moves that were run before are kept.
    """
    all_moves, unmoved = moves(paper, chosen)
    results = {run.move: run for run in kept}
    wanted = [move for move in all_moves if move not in results]
    # A moved parameter of the policy leaves all other strategies as they are.
    with _run_folder(None) as folder:
        arguments = [(paper.name, chosen, move, folder) for move in wanted]
        for done, (_, result) in enumerate(each_done(_move, arguments, workers), start=1):
            results[result.move] = result
            progress(f"{len(results)} of {len(all_moves)} runs with a number moved")
            as_chosen = all(move in results for move in all_moves if move.path is None)
            if as_chosen and (done % MOVES_AT_ONCE == 0 or done == len(wanted)):
                yield [results[move] for move in all_moves if move in results], unmoved
