"""Owns running Henge's experiments: every variant in four ways, on as many cores as there are, to numbers."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Final, TypeVar

from trilithon.errors import InvalidScenario, Problem
from trilithon.experiments.build import Builder
from trilithon.experiments.definition import Experiment, Figure, Shape
from trilithon.experiments.henge.catalogue import EXPERIMENTS
from trilithon.experiments.henge.measured import NOTES, measured
from trilithon.experiments.henge.mixes import COUNT, FIRST, Mixed, Ranking, rank, run_mix
from trilithon.experiments.henge.moved import Moved, Task, run_task, tasks
from trilithon.experiments.runs import Run, Runner, Steering
from trilithon.scenarios import shipped
from trilithon.scenarios.forms import ChosenForm
from trilithon.scenarios.scenario import chosen

Tell = Callable[[str], None]
G = TypeVar("G")
T = TypeVar("T")
PERCENTILES: Final = (15, 50, 90)


@dataclass(frozen=True)
class Summary:
    """One run in a few numbers: the share of the maximum utility over the time in which a policy may act."""

    average: float
    percentiles: Mapping[int, float]
    at_end: float
    actions: int
    instances: int

    @classmethod
    def of(cls, run: Run) -> "Summary":
        return cls(
            average=run.average,
            percentiles={one: run.percentile(one) for one in PERCENTILES},
            at_end=run.at_end,
            actions=len(run.acted()),
            instances=sum(sum(counts.values()) for counts in run.last.values()),
        )


@dataclass(frozen=True)
class Beside:
    """A figure of the paper, and ours. Where neither is better, `worse` tells whether they differ; it is None
    where the two cannot be compared.
    """

    figure: Figure
    ours: float | None

    @property
    def worse(self) -> bool | None:
        if self.ours is None or self.figure.apart:
            return None
        theirs = self.figure.value
        # What differs by less than a hundredth is the same.
        slack = 0.01 * abs(theirs)
        if self.figure.at_least is None:
            return abs(self.ours - theirs) > slack
        return self.ours < theirs - slack if self.figure.at_least else self.ours > theirs + slack


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment."""

    experiment: Experiment
    figures: tuple[Beside, ...]
    # By variant, by who steered.
    ways: Mapping[str, Mapping[Steering, Summary]] = field(default_factory=dict)
    note: str = ""


@cache
def _chosen(path: Path | None) -> ChosenForm:
    return chosen(path)


def check(path: Path | None) -> None:
    """Whether a file of chosen numbers has all that the experiments need; every gap is told."""
    form = _chosen(path)
    if form.henge is None:
        told = [Problem("NUMBER_MISSING", "henge", "The experiments need this part.", "")]
        raise InvalidScenario(told, str(path))
    problems = []
    for shape in map(str, Shape):
        if shape not in form.henge.rates and shape not in form.rates:
            problems.append(Problem("NUMBER_MISSING", f"rates.{shape}", "It has no rate.", ""))
        profiles = form.profiles.get(shape, {})
        for operator in shipped.shipped_job(shape).operators:
            if operator.name not in profiles or profiles[operator.name].service_ms is None:
                place = f"profiles.{shape}.{operator.name}"
                problems.append(Problem("NUMBER_MISSING", place, "It has no service time.", ""))
    if problems:
        raise InvalidScenario(problems, str(path))


def run_one(name: str, variant: str, steering: Steering, path: Path | None) -> Run:
    """One run; in a process of its own, so everything is looked up by name."""
    experiment = EXPERIMENTS[name]
    runner = Runner(Builder(_chosen(path)))
    return runner.run(experiment, experiment.variant(variant), steering)


def outcome(experiment: Experiment, runs: Mapping[tuple[str, Steering], Run]) -> Outcome:
    by_variant: dict[str, dict[Steering, Run]] = {}
    for (variant, steering), run in runs.items():
        by_variant.setdefault(variant, {})[steering] = run
    values = measured(experiment.name, by_variant)
    return Outcome(
        experiment,
        tuple(Beside(figure, values[figure.what]) for figure in experiment.figures),
        {
            variant.name: {s: Summary.of(by_variant[variant.name][s]) for s in Steering}
            for variant in experiment.variants
        },
        NOTES[experiment.name](by_variant) if experiment.name in NOTES else "",
    )


def run_all(
    names: Sequence[str], workers: int, tell: Tell, path: Path | None = None
) -> Iterator[Outcome]:
    """The experiments, each as soon as all of its runs are done."""
    waiting: dict[str, dict[tuple[str, Steering], Run]] = {name: {} for name in names}
    with pool(workers) as processes:
        asked: dict[Future[Run], tuple[str, str, Steering]] = {}
        for name in names:
            for variant in EXPERIMENTS[name].variants:
                for steering in Steering:
                    future = processes.submit(run_one, name, variant.name, steering, path)
                    asked[future] = (name, variant.name, steering)
        for done, future in enumerate(as_completed(asked), start=1):
            name, variant_name, steering = asked[future]
            waiting[name][variant_name, steering] = future.result()
            tell(f"{done} of {len(asked)} runs: {name} {variant_name} {steering}")
            if len(waiting[name]) == len(Steering) * len(EXPERIMENTS[name].variants):
                yield outcome(EXPERIMENTS[name], waiting.pop(name))


def _mix(seed: int, path: Path | None) -> Mixed:
    return run_mix(seed, Builder(_chosen(path)))


def run_mixes(workers: int, tell: Tell, path: Path | None = None, count: int = COUNT) -> Ranking:
    """Random mixes, from the first seed that nobody has looked at."""
    return rank(_each(_mix, range(FIRST, FIRST + count), path, workers, tell, "mixes"))


def _task(task: Task, path: Path | None) -> Moved:
    return run_task(task, _chosen(path))


def run_moved(workers: int, tell: Tell, path: Path | None = None) -> tuple[list[Moved], list[str]]:
    """Every chosen number moved, and those that cannot be."""
    wanted, unmoved = tasks(_chosen(path))
    return _each(_task, wanted, path, workers, tell, "runs with a number moved"), unmoved


def _each(
    run: Callable[[G, Path | None], T],
    given: Sequence[G],
    path: Path | None,
    workers: int,
    tell: Tell,
    what: str,
) -> list[T]:
    """What came of each, in their order."""
    with pool(workers) as processes:
        asked = [processes.submit(run, one, path) for one in given]
        for done, _ in enumerate(as_completed(asked), start=1):
            tell(f"{done} of {len(given)} {what}")
        return [future.result() for future in asked]


@contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that share nothing with this one but what they are given, and end with it: what waits is not
    begun any more when somebody stops the whole, and when this process is killed they go, too.
    """
    context = get_context("spawn")
    processes = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield processes
    except BaseException:
        processes.shutdown(wait=True, cancel_futures=True)
        raise
    processes.shutdown()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # noqa: S101 - it has just begun this process

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
