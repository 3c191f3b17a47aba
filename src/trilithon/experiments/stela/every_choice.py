"""Tries every choice that the scalings of the paper's experiments have, on the simulated cluster.

A scale-out may divide the instances of its machine among the operators in any way, and a scale-in
may take any group of machines. Each choice is a run of its own from the placement of the
experiment, so strategies are ranked among what was possible and not by their own projection. What
scale-outs gain is measured for other shares of CPU in the work, too: that share is chosen, and it
decides how much a mere migration gains.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, cycle
from typing import Any, Final

from trilithon.contract.observer import Observer
from trilithon.control.replay import status_in
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.seeds import SEEDS, with_seed
from trilithon.experiments.stela.catalogue import (
    DEFAULT,
    EXPERIMENTS,
    FAIR,
    GROUP_1,
    GROUP_2,
    LEAST_LINK,
    PRINTED,
    STELA,
)
from trilithon.experiments.stela.scaling_strategies import STRATEGIES
from trilithon.experiments.worker_pool import each_done
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.job import Operator
from trilithon.model.series import Series
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Cluster, Scene
from trilithon.policies.stela.planning import make_plan, view_of
from trilithon.policies.stela.scale_in import remove_machines
from trilithon.policies.stela.scale_out import instances_to_give
from trilithon.policies.stela.scaling_plan import ScalingPlan
from trilithon.policies.stela.scaling_view import ScalingView
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.scenarios.chosen import ChosenNumbers
from trilithon.scenarios.run import engine_for
from trilithon.scenarios.scenario import Scenario

NAMES: Final = tuple(described.name for described in EXPERIMENTS)
# Queues grow without end where sources have more than operators take; rates are steady by then.
SETTLE_S: Final = 120.0
MEASURED_S: Final = StelaParameters().window_s
# Throughputs closer than this are the same.
SAME: Final = 0.005
# Shares of CPU in the work, beside the chosen one.
CPU_SHARES: Final = (0.1, 0.5, 1.0)
DIVIDING: Final = (STELA, PRINTED, FAIR)
REMOVING: Final = (STELA, PRINTED, GROUP_1, GROUP_2)
BY_CPU_SHARE: Final = (STELA, FAIR, DEFAULT, LEAST_LINK)
# The machine of each instance, by operator.
Places = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ScalingSetting:
    """A job as table I places it, with the machine that comes or all those of which some go."""

    scenario: Scenario
    scene: Scene
    request: ScalingRequest
    places: Places

    @classmethod
    def of(cls, experiment: str, chosen: ChosenNumbers) -> "ScalingSetting":
        (described,) = (one for one in EXPERIMENTS if one.name == experiment)
        (variant,) = described.variants
        scaling = variant.scaling
        assert scaling is not None  # noqa: S101 - all of them are scaled
        builder = ScenarioBuilder(chosen, "stela")
        scenario = with_seed(builder.scenario(described, variant), SEEDS[0])
        places = _first_places(scenario)
        if scaling.kind is ScalingKind.OUT:
            new = [
                replace(scenario.machines[-1], name=f"m{len(scenario.machines) + i}")
                for i in range(scaling.machines)
            ]
            scenario = replace(scenario, machines=(*scenario.machines, *new))
        request = ScalingRequest(experiment, scaling.kind, scaling.machines, None, 0.0)
        return cls(scenario, _scene(_placed(scenario, places)), request, places)

    def view(self, strategy: str) -> ScalingView:
        (by,) = (one for one in STRATEGIES if one.name == strategy)
        return view_of(self.scene, self.request, StelaParameters.of(dict(by.parameters)))

    def plan(self, strategy: str) -> ScalingPlan:
        return make_plan(self.view(strategy), self.request, self.scenario.seed)

    def chosen_by(self, strategy: str) -> float:
        """The throughput with the plan of a strategy."""
        return self.planned(self.plan(strategy))

    def emptied(self, strategy: str) -> list[str]:
        """The operators that a strategy moves away from the machines that it removes."""
        gone = set(self.plan(strategy).removed)
        return [name for name, machines in self.places.items() if gone & set(machines)]

    def planned(self, plan: ScalingPlan) -> float:
        (job,) = self.scenario.jobs
        moved = plan.places.get(job.job.id, {})
        return self.throughput({**self.places, **{n: list(map(str, m)) for n, m in moved.items()}})

    def throughput(self, places: Places) -> float:
        """Records per second at the sinks with instances placed so."""
        window = _settled(_placed(self.scenario, places)).window()
        assert window is not None  # noqa: S101 - it has two snapshots
        return float(window.sinks.written.sum() / window.span_s)


def _settled(scenario: Scenario) -> Series:
    engine, observer = engine_for(scenario), Observer(SETTLE_S + MEASURED_S)
    for span_s in (SETTLE_S, MEASURED_S):
        engine.advance(span_s)
        observer.observe(engine, engine.now_s)
    return observer.series


def _scene(scenario: Scenario) -> Scene:
    series = _settled(scenario)
    (scheduled,) = scenario.jobs
    status = replace(status_in(series.last, scheduled.job.id), accepted_s=0.0)
    cluster = Cluster(Capabilities(dict.fromkeys(Ability, How.LIVE)))
    return Scene(1, series, {scheduled.job.id: status}, cluster)


def _first_places(scenario: Scenario) -> Places:
    """Where the engine, or the experiment, places the instances of table I."""
    machines = {
        key: machine.name for machine in _scene(scenario).machines for key in machine.instances
    }
    (scheduled,) = scenario.jobs
    job = scheduled.job
    return {
        operator.name: [
            machines[job.id, operator.name, i] for i in range(operator.parallelism.initial)
        ]
        for operator in job.operators
    }


def _placed(scenario: Scenario, places: Places) -> Scenario:
    (scheduled,) = scenario.jobs

    def sized(operator: Operator) -> Operator:
        count = len(places[operator.name])
        return replace(operator, parallelism=replace(operator.parallelism, initial=count))

    job = replace(scheduled.job, operators=tuple(map(sized, scheduled.job.operators)))
    placement = {name: tuple(machines) for name, machines in places.items()}
    return replace(scenario, jobs=(replace(scheduled, job=job, placement=placement),))


def every_division(setting: ScalingSetting) -> list[float]:
    """The throughput of each way to divide the new instances that operators have tasks for."""
    (scheduled,) = setting.scenario.jobs
    new, places = setting.scenario.machines[-1].name, setting.places
    most = {operator.name: operator.parallelism.max for operator in scheduled.job.operators}
    give = instances_to_give(setting.view(STELA), setting.request.machines)
    divisions = (
        {name: [*places[name], *[new] * division.count(name)] for name in places}
        for division in combinations_with_replacement(places, give)
    )
    return [
        setting.throughput(division)
        for division in divisions
        if all(len(machines) <= most[name] for name, machines in division.items())
    ]


def every_group(setting: ScalingSetting) -> tuple[list[float], list[float]]:
    """The throughput without each group of machines: with instances moved as Stela moves them, and
    in turn, as they are moved from random groups.
    """
    names, view = [machine.name for machine in setting.scenario.machines], setting.view(STELA)
    groups = list(combinations(names, setting.request.machines))
    by_etp = [setting.planned(remove_machines(view, group)) for group in groups]
    in_turn = [setting.throughput(_moved_in_turn(setting.places, names, g)) for g in groups]
    return by_etp, in_turn


def _moved_in_turn(places: Places, machines: Sequence[str], group: Sequence[str]) -> Places:
    """Machine by machine, as `remove_at_random` does it."""
    turn = cycle([name for name in machines if name not in group])
    moved = {name: list(by) for name, by in places.items()}
    for leaving in group:
        for name, by in places.items():
            for i, machine in enumerate(by):
                if machine == leaving:
                    moved[name][i] = next(turn)
    return moved


def run_experiment(experiment: str, chosen: ChosenNumbers) -> dict[str, Any]:
    """Every choice of one experiment, from the best down, and what the strategies choose."""
    setting = ScalingSetting.of(experiment, chosen)
    found = {"experiment": experiment, "before": setting.throughput(setting.places)}
    if setting.request.kind is ScalingKind.IN:
        by_etp, in_turn = every_group(setting)
        return {
            **found,
            "choices": sorted(by_etp, reverse=True),
            "in_turn": sorted(in_turn, reverse=True),
            "chosen": {name: setting.chosen_by(name) for name in REMOVING},
            "emptied": {name: setting.emptied(name) for name in REMOVING},
            "etp_sums": [step.value for step in setting.plan(PRINTED).steps],
        }
    return {
        **found,
        "choices": sorted(every_division(setting), reverse=True),
        "chosen": {name: setting.chosen_by(name) for name in DIVIDING},
        "by_cpu_share": [_gains(experiment, share, chosen) for share in _shares(chosen)],
    }


def _shares(chosen: ChosenNumbers) -> list[float]:
    given = chosen.of_paper("stela").cpu_share
    return sorted({*CPU_SHARES, *([] if given is None else [given])})


def _gains(experiment: str, share: float, chosen: ChosenNumbers) -> dict[str, float]:
    """What strategies gain where so much of the work is CPU."""
    own = chosen.of_paper("stela").model_copy(update={"cpu_share": share})
    other = chosen.model_copy(update={"papers": {**chosen.papers, "stela": own}})
    setting = ScalingSetting.of(experiment, other)
    before = setting.throughput(setting.places)
    gains = {name: setting.chosen_by(name) / before - 1 for name in BY_CPU_SHARE}
    return {"cpu_share": share, "best": max(every_division(setting)) / before - 1, **gains}


def run_choices(
    workers: int,
    tell: Callable[[str], None],
    chosen: ChosenNumbers,
    kept: Sequence[Mapping[str, Any]] | None = None,
    names: Sequence[str] = NAMES,
) -> Iterator[list[Mapping[str, Any]]]:
    """All experiments, one more in each list."""
    results = {one["experiment"]: one for one in kept or ()}
    wanted = [(name, chosen) for name in names if name not in results]
    for _, found in each_done(run_experiment, wanted, workers):
        results[found["experiment"]] = found
        tell(f"{len(results)} of {len(names)} experiments with every choice")
        yield [results[name] for name in names if name in results]


def better(choices: Sequence[float], throughput: float) -> int:
    """How many choices have more throughput than that, by more than 0.5 %."""
    return sum(choice > throughput * (1 + SAME) for choice in choices)
