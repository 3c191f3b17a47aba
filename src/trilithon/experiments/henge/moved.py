"""Owns how figures move when a number that had to be chosen is another: every one of them, half as much again
and half as much; of words, the other ones.

A number is moved in a run in which it can play a part, and in one that nearly fills its machines, where little is
enough to tip the balance; what no experiment of Henge's uses is left alone, and named. The policy's own chosen
parameters are moved as well.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trilithon.experiments.build import Builder
from trilithon.experiments.definition import FaultKind, Variant
from trilithon.experiments.henge.catalogue import EXPERIMENTS
from trilithon.experiments.henge.measured import measured
from trilithon.experiments.runs import AS_PRINTED, Runner, Steering
from trilithon.policies.henge.parameters import HengeParameters
from trilithon.policies.parameters import Described
from trilithon.scenarios.forms import ChosenForm
from trilithon.spec.durations import parse_seconds

FACTORS: Final = (0.5, 1.5)
# The search for the best allocation would take longer than all the rest.
WAYS: Final = (Steering.HENGE, Steering.NOBODY, Steering.MANUAL)
# In which runs numbers are moved: each in the first that it plays a part in, and in the one that is nearly full.
RUNS: Final = (
    ("hybrid", "ten"),
    ("spikes", "two"),
    ("stateful", "four"),
    ("memory", "eight"),
    ("initial-configuration", "60ms-10-1x"),
    ("cpu-spike", "eight"),
    ("cost", "60%"),
    ("more-machines", "a tenth of 10x8"),
)
# Of forty jobs on ten machines five on one: there are hundreds of runs.
_FORTY: Final = EXPERIMENTS["more-machines"].variant("10x8")
_TENTH: Final = replace(
    _FORTY,
    name="a tenth of 10x8",
    jobs=tuple(replace(jobs, count=max(1, jobs.count // 10)) for jobs in _FORTY.jobs),
    machines=1,
)
TIGHT: Final = ("cost", "60%")
# In which words and the parameters of the policy are moved: in the one loads change, in the other there is little room.
CHANGING: Final = (RUNS[1], TIGHT)
POLICY: Final = "policy."
# What it can be said to be instead.
WORDS: Final = {"storm.waiting": ("kept", "dealt")}
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


def variant_of(experiment: str, name: str) -> Variant:
    return _TENTH if name == _TENTH.name else EXPERIMENTS[experiment].variant(name)


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


def of_policy() -> dict[str, Described]:
    """The policy's parameters that had to be chosen, without those that these runs set to do nothing."""
    return {
        f"{POLICY}{one.name}": one
        for one in HengeParameters.describe()
        if one.meaning.startswith("chosen:") and one.name not in AS_PRINTED
    }


def moved_parameter(one: Described, factor: float) -> float | None:
    """A parameter multiplied, within its range; None if it would be the same."""
    assert not isinstance(one.default, str)  # noqa: S101 - those with a unit are numbers
    value = min(one.most, max(one.least, one.default * factor))
    found = round(value) if isinstance(one.default, int) else value
    return None if found == one.default else found


def moved(form: ChosenForm, path: str, factor: float) -> ChosenForm | None:
    """The numbers with one of them multiplied, or with another word after a `=`; None if it would be the same."""
    path, _, word = path.partition("=")
    data = form.model_dump(exclude_none=True)
    place = data
    *way, last = path.split(".")
    for name in way:
        place = place[name]
    place[last] = word or _times(path, place[last], factor)
    made = ChosenForm.model_validate(data)
    return None if made == form else made


def _times(path: str, value: Any, factor: float) -> Any:
    if isinstance(value, str):
        return f"{parse_seconds(value) * 1000 * factor:g} ms"
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
    """What came of it: the mean satisfaction in each way, and the paper's figures where the run is all that its
    experiment has.
    """

    task: Task
    satisfaction: Mapping[Steering, float]
    figures: Mapping[str, float | None] = field(default_factory=dict)


def tasks(form: ChosenForm) -> tuple[list[Task], list[str]]:
    """What is to be run, and the numbers that are not moved: no run depends on them, or they are 0."""
    found = [Task(name, variant, None, 1.0) for name, variant in RUNS]
    unmoved = []
    for path in numbers(form):
        places = [run for run in RUNS if plays_a_part(path, form, variant_of(*run))]
        chosen = [run for run in places if run in (places[0], TIGHT)]
        factors = [f for f in FACTORS if chosen and moved(form, path, f) is not None]
        found += [Task(*run, path, factor) for run in chosen for factor in factors]
        if not factors:
            unmoved.append(path)
    for run in CHANGING:
        found += [Task(*run, f"{path}={w}", 1.0) for path, words in WORDS.items() for w in words]
        found += [
            Task(*run, path, factor)
            for path, one in of_policy().items()
            for factor in FACTORS
            if moved_parameter(one, factor) is not None
        ]
    return found, [path for path in unmoved if path not in WORDS]


def run_task(task: Task, form: ChosenForm) -> Moved:
    experiment = EXPERIMENTS[task.experiment]
    variant, other = variant_of(task.experiment, task.variant), form
    if task.path is not None and task.path.startswith(POLICY):
        one = of_policy()[task.path]
        value = moved_parameter(one, task.factor)
        assert value is not None  # noqa: S101 - tasks are only what changes something
        variant = replace(variant, parameters=(*variant.parameters, (one.name, value)))
    elif task.path is not None:
        changed = moved(form, task.path, task.factor)
        assert changed is not None  # noqa: S101
        other = changed
    runner = Runner(Builder(other))
    runs = {way: runner.run(experiment, variant, way) for way in WAYS}
    whole = len(experiment.variants) == 1
    figures = measured(experiment.name, {variant.name: runs}) if whole else {}
    return Moved(task, {way: run.average for way, run in runs.items()}, figures)
