"""Owns how figures move when a number that had to be chosen is another: every one of them, half as much again
and half as much.

A number is moved in an experiment in which it plays a part; what no experiment of Henge's uses is left alone,
and named.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trilithon.experiments.build import Builder
from trilithon.experiments.definition import FaultKind, Variant
from trilithon.experiments.henge.catalogue import EXPERIMENTS
from trilithon.experiments.runs import Runner, Steering
from trilithon.scenarios.forms import ChosenForm
from trilithon.spec.durations import seconds

FACTORS: Final = (0.5, 1.5)
# The search for the best allocation takes longer than all the rest, and does not depend on who steers.
WAYS: Final = (Steering.HENGE, Steering.NOBODY, Steering.MANUAL)
# In which runs numbers are moved; one that plays a part in several is moved in the first of them.
RUNS: Final = (
    ("diurnal", "two-days"),
    ("stateful", "four"),
    ("memory", "eight"),
    ("initial-configuration", "60ms-10-1x"),
    ("cpu-spike", "eight"),
    ("cost", "60%"),
    ("more-machines", "30x8"),
)
# Words, not numbers; what only other papers' experiments or crashes use; and what every profile here says itself.
_UNUSED: Final = (
    "machine",
    "storm.restart",
    "storm.waiting",
    "assumed.distribution",
    "assumed.service_ms",
    "assumed.service_cv",
)
_OF_MEMORY: Final = (
    "assumed.record_bytes",
    "assumed.state_bytes_per_key",
    "henge.machine.memory_gb",
)
_WHOLE: Final = ("assumed.keys", "henge.tasks", "henge.instances")
# Shares cannot be more than all.
_AT_MOST_1: Final = ("cpu_share",)


def numbers(form: ChosenForm) -> dict[str, float | str]:
    """Every chosen number by its path, durations as they are written."""
    return dict(_leaves(form.model_dump(exclude_none=True), ""))


def _leaves(data: Mapping[str, Any], before: str) -> Iterator[tuple[str, float | str]]:
    for name, value in data.items():
        path = f"{before}.{name}" if before else name
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def moved(form: ChosenForm, path: str, factor: float) -> ChosenForm | None:
    """The numbers with one of them multiplied; None if it would be the same."""
    data = copy.deepcopy(form.model_dump(exclude_none=True))
    place = data
    *way, last = path.split(".")
    for name in way:
        place = place[name]
    place[last] = _times(path, place[last], factor)
    made = ChosenForm.model_validate(data)
    return None if made == form else made


def _times(path: str, value: Any, factor: float) -> Any:
    if isinstance(value, str):
        return f"{seconds(value) * 1000 * factor:g} ms"
    if path.startswith(_WHOLE):
        return max(1, round(value * factor))
    if path.endswith(_AT_MOST_1):
        return min(1.0, value * factor)
    return value * factor


def plays_a_part(path: str, form: ChosenForm, variant: Variant) -> bool:
    """Whether a run can depend on a number at all."""
    names = {str(jobs.shape) for jobs in variant.jobs}
    if path.startswith(_UNUSED):
        return False
    top, _, rest = path.partition(".")
    if top == "profiles":
        return rest.partition(".")[0] in names
    if top == "rates":
        by_workers = {str(jobs.shape) for jobs in variant.jobs if jobs.workers is not None}
        own = set(form.henge.rates if form.henge else ())
        return rest in names - by_workers - own
    if path.startswith(("henge.rates.", "henge.instances.")):
        return path.rpartition(".")[2] in names
    if path in {"henge.per_worker", "henge.workers_per_instance"}:
        return any(jobs.workers is not None for jobs in variant.jobs)
    if path == "henge.foreign_threads":
        return any(fault.kind is FaultKind.CPU_LOAD for fault in variant.faults)
    if path == "henge.own_cores":
        return variant.resources is not None
    if path == "storm.state":
        return any(jobs.state for jobs in variant.jobs)
    if path in _OF_MEMORY:
        return any(jobs.state == "join" for jobs in variant.jobs)
    return True


@dataclass(frozen=True)
class Task:
    """One run of the whole: which number, times what, in which run; without a number, as chosen."""

    experiment: str
    variant: str
    path: str | None
    factor: float


@dataclass(frozen=True)
class Moved:
    task: Task
    satisfaction: Mapping[Steering, float]


def tasks(form: ChosenForm) -> tuple[list[Task], list[str]]:
    """What is to be run, and the numbers that are not moved: no run depends on them, or they are 0."""
    found = [Task(name, variant, None, 1.0) for name, variant in RUNS]
    unmoved = []
    for path in numbers(form):
        place = next(
            (
                (name, variant)
                for name, variant in RUNS
                if plays_a_part(path, form, EXPERIMENTS[name].variant(variant))
            ),
            None,
        )
        if place is None:
            unmoved.append(path)
            continue
        factors = [factor for factor in FACTORS if moved(form, path, factor) is not None]
        found += [Task(*place, path, factor) for factor in factors]
        if not factors:
            unmoved.append(path)
    return found, unmoved


def run_task(task: Task, form: ChosenForm) -> Moved:
    other = form if task.path is None else moved(form, task.path, task.factor)
    assert other is not None  # noqa: S101 - tasks are only what changes something
    experiment = EXPERIMENTS[task.experiment]
    runner = Runner(Builder(other))
    return Moved(
        task,
        {
            way: runner.run(experiment, experiment.variant(task.variant), way).average
            for way in WAYS
        },
    )
