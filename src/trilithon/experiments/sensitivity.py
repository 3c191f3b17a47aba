"""Moves every chosen number by half, down and up, and records how the satisfaction changes.

A number is moved in a run that can depend on it, and in one that nearly fills its machines, where
little is enough to tip the balance. Numbers that no run depends on are listed as not moved. Of a
number that is a word, the other words are tried. The policy's own chosen parameters are moved, too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trilithon.experiments.definition import FaultKind, Topology, Variant
from trilithon.experiments.paper import NothingDecided, Paper, SensitivityPlan
from trilithon.experiments.run_store import RunStore
from trilithon.experiments.runner import Runner
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.seeds import SEEDS
from trilithon.policies.parameters import ParameterInfo
from trilithon.scenarios.chosen import ChosenNumbers
from trilithon.spec.durations import parse_seconds

FACTORS: Final = (0.5, 1.5)
# Before the names of the policy's own parameters.
POLICY: Final = "policy."
# Words and what only other engines' settings, crashes or jobs without profiles use.
_UNUSED: Final = (
    "heron.",
    "machine",
    "nephele.",
    "storm.restart",
    "storm.waiting",
    "arrivals.default",
    "assumed.distribution",
    "assumed.service_ms",
    "assumed.service_cv",
)
_MEMORY: Final = ("assumed.record_bytes", "assumed.state_bytes_per_key", "machine.memory_gb")
_INTEGERS: Final = ("assumed.keys", "tasks", "instances")
# Shares cannot exceed 1.
_AT_MOST_1: Final = ("cpu_share",)


@dataclass(frozen=True)
class NumberMove:
    """One run: which number is multiplied by what, in which variant. Without a path, as chosen."""

    experiment: str
    variant: str
    path: str | None
    factor: float


@dataclass(frozen=True)
class MovedRun:
    """The mean satisfaction by strategy after a move.

    Also the paper's figures, where the variant is the only one of its experiment.
    """

    move: NumberMove
    satisfaction: Mapping[str, float]
    figures: Mapping[str, float | None] = field(default_factory=dict)


def numbers(chosen: ChosenNumbers, paper: str) -> dict[str, float | str]:
    """Every common number and every number of the paper's part, by path.

    Common numbers go by their path within `common`, the paper's begin with the paper's name.
    """
    common = chosen.common.model_dump(exclude_none=True)
    own = chosen.of_paper(paper).model_dump(exclude_none=True)
    return {**dict(_leaves(common, "")), **dict(_leaves(own, paper))}


def _leaves(data: Mapping[str, Any], before: str) -> Iterator[tuple[str, float | str]]:
    for name, value in data.items():
        path = f"{before}.{name}" if before else name
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        else:
            yield path, value


def policy_parameters(plan: SensitivityPlan) -> dict[str, ParameterInfo]:
    return {f"{POLICY}{parameter.name}": parameter for parameter in plan.parameters}


def moved_parameter(parameter: ParameterInfo, factor: float) -> float | None:
    """A parameter multiplied, within its range; None if it would be the same."""
    default = parameter.default
    assert not isinstance(default, str)  # noqa: S101 - those with a unit are numbers
    value = min(parameter.most, max(parameter.least, default * factor))
    value = round(value) if isinstance(default, int) else value
    return None if value == default else value


def moved_numbers(
    chosen: ChosenNumbers, paper: str, path: str, factor: float
) -> ChosenNumbers | None:
    """The numbers with one of them multiplied, or the word after a `=`; None if nothing changes."""
    path, _, word = path.partition("=")
    data = chosen.model_dump(exclude_none=True)
    *parents, last = path.split(".")
    if parents and parents[0] == paper:
        place = data["papers"][paper]
        parents = parents[1:]
    else:
        place = data["common"]
    for name in parents:
        place = place[name]
    place[last] = word or _times(path.removeprefix(f"{paper}."), place[last], factor)
    moved = ChosenNumbers.model_validate(data)
    return None if moved == chosen else moved


def _times(path: str, value: Any, factor: float) -> Any:
    if isinstance(value, str):
        return f"{parse_seconds(value) * 1000 * factor:g} ms"
    if path.startswith(_INTEGERS):
        return max(1, round(value * factor))
    if path.endswith(_AT_MOST_1):
        return min(1.0, value * factor)
    return value * factor


def can_matter(path: str, chosen: ChosenNumbers, paper: str, variant: Variant) -> bool:
    """Whether the outcome of a variant can depend on a number at all."""
    topologies = {str(jobs.topology) for jobs in variant.jobs}
    if path.startswith(f"{paper}."):
        return _own_can_matter(path.removeprefix(f"{paper}."), variant, topologies)
    if path.startswith(_UNUSED):
        return False
    top, _, rest = path.partition(".")
    if top == "profiles":
        return rest.partition(".")[0] in topologies
    if top == "rates":
        by_workers = {str(jobs.topology) for jobs in variant.jobs if jobs.workers is not None}
        return rest in topologies - by_workers - set(chosen.of_paper(paper).rates)
    if path == "storm.state":
        return any(jobs.state for jobs in variant.jobs)
    if path in _MEMORY:
        return _retains_records(variant)
    return True


def _own_can_matter(path: str, variant: Variant, topologies: set[str]) -> bool:
    """The same for a number of the paper's part."""
    top, _, rest = path.partition(".")
    if top in {"rates", "instances", "loads"}:
        return rest.partition(".")[0] in topologies
    if top in {"per_worker", "workers_per_instance"}:
        return any(jobs.workers is not None for jobs in variant.jobs)
    if top == "foreign_threads":
        return any(fault.kind is FaultKind.CPU_LOAD for fault in variant.faults)
    if top == "own_cores":
        return variant.resources is not None
    if path in _MEMORY:
        return _retains_records(variant)
    return True


def _retains_records(variant: Variant) -> bool:
    return any(jobs.topology is Topology.JOIN and jobs.state for jobs in variant.jobs)


def variant_of(paper: Paper, experiment: str, name: str) -> Variant:
    own = paper.sensitivity.variants if paper.sensitivity else {}
    return own[name] if name in own else paper.by_name[experiment].variant(name)


def moves(paper: Paper, chosen: ChosenNumbers) -> tuple[list[NumberMove], list[str]]:
    """The moves to run, and the numbers that stay: no run depends on them, or they are 0."""
    plan = paper.sensitivity
    assert plan is not None  # noqa: S101 - the caller has checked it
    wanted = [NumberMove(name, variant, None, 1.0) for name, variant in plan.runs]
    unmoved = []
    for path in numbers(chosen, paper.name):
        places = [
            run
            for run in plan.runs
            if can_matter(path, chosen, paper.name, variant_of(paper, *run))
        ]
        runs = [run for run in places if run in (places[0], plan.tight)]
        factors = [
            factor
            for factor in FACTORS
            if runs and moved_numbers(chosen, paper.name, path, factor) is not None
        ]
        wanted += [NumberMove(*run, path, factor) for run in runs for factor in factors]
        if not factors and path not in plan.words:
            unmoved.append(path)
    wanted += [
        NumberMove(*run, f"{path}={word}", 1.0)
        for run in plan.runs
        for path, words in plan.words.items()
        for word in words
    ]
    for run in plan.policy_runs:
        wanted += [
            NumberMove(*run, path, factor)
            for path, parameter in policy_parameters(plan).items()
            for factor in FACTORS
            if moved_parameter(parameter, factor) is not None
        ]
    return wanted, unmoved


def run_move(paper: Paper, chosen: ChosenNumbers, move: NumberMove, store: RunStore) -> MovedRun:
    experiment = paper.by_name[move.experiment]
    variant = variant_of(paper, move.experiment, move.variant)
    if move.path is not None and move.path.startswith(POLICY):
        variant = _with_parameter(paper, variant, move.path, move.factor)
    elif move.path is not None:
        moved = moved_numbers(chosen, paper.name, move.path, move.factor)
        assert moved is not None  # noqa: S101 - moves are only those that change something
        chosen = moved
    # Hundreds of runs, of which each is compared with the same seed: one has to do.
    builder = ScenarioBuilder(chosen, paper.name)
    runner = Runner(builder, paper.policy, seeds=SEEDS[:1], store=store)
    runs = {s.name: runner.run(experiment, variant, s)[0] for s in paper.cheap_strategies}
    figures: dict[str, float | None] = {}
    if len(experiment.variants) == 1:
        values = paper.values(experiment.name, {variant.name: runs})
        figures = {
            name: None if isinstance(value, NothingDecided) else value
            for name, value in values.items()
        }
    return MovedRun(move, {name: run.average for name, run in runs.items()}, figures)


def _with_parameter(paper: Paper, variant: Variant, path: str, factor: float) -> Variant:
    assert paper.sensitivity is not None  # noqa: S101 - moves are made of it
    parameter = policy_parameters(paper.sensitivity)[path]
    value = moved_parameter(parameter, factor)
    assert value is not None  # noqa: S101 - moves are only those that change something
    return replace(variant, parameters=(*variant.parameters, (parameter.name, value)))
