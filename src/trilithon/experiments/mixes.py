"""Runs random mixes of jobs, and ranks the strategies on jobs that nobody chose.

A mix is drawn from a seed alone: how many jobs of which topologies, their intents, their loads over
an hour and a half, and how tight the cluster is. Seeds below `FIRST_SEED` are for development;
those from there on are only looked at in a full run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import numpy as np

from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.definition import (
    Experiment,
    JobSet,
    Topology,
    Variant,
    juice,
    latency,
)
from trilithon.experiments.demand import operator_demands
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import WORST_TENTH
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.seeds import with_seed
from trilithon.experiments.strategies import SAME, Strategy
from trilithon.model.intent import Threshold
from trilithon.scenarios.scenario import Scenario, ScheduledJob
from trilithon.workloads import shapes, trace

FIRST_SEED: Final = 1000
COUNT: Final = 200
LENGTH_S: Final = 5400.0
# Allocations that the search tries for each mix.
TRIED: Final = 20
POLICY_FROM_S: Final = 900.0
_EXPERIMENT: Final = Experiment(
    "mix", "a random mix of jobs", "", LENGTH_S, (), (), (), POLICY_FROM_S
)


def random_mix(seed: int, builder: ScenarioBuilder, topologies: Sequence[Topology]) -> Scenario:
    """The jobs, loads and machines of a seed."""
    random = Random(seed)  # noqa: S311 - experiments, no secrets
    drawn = tuple(_jobs(i, random, topologies) for i in range(random.randint(3, 10)))
    scenario = builder.scenario(_EXPERIMENT, Variant(f"mix-{seed}", drawn, machines=1))
    jobs = tuple(_with_load(one, random) for one in scenario.jobs)
    # From ample to too small: the cores that the jobs need at their peaks, of those there are.
    tightness = random.uniform(0.3, 1.2)
    machine = scenario.machines[0]
    count = max(1, round(sum(map(peak_cores, jobs)) / tightness / machine.cores))
    if (slots := builder.slots([machine])) is not None:
        # However small the cluster is, what the jobs begin with fits.
        count = max(count, math.ceil(sum(s.job.instances for s in jobs) / slots))
    machines = tuple(
        MachineSpec(f"m{i}", machine.cores, machine.memory_bytes) for i in range(count)
    )
    return replace(
        scenario, name=f"mix-{seed}", jobs=jobs, machines=machines, slots=builder.slots(machines)
    )


def _jobs(number: int, random: Random, topologies: Sequence[Topology]) -> JobSet:
    topology = random.choice(topologies)
    wanted: tuple[Threshold, ...] = latency(float(random.choice((40, 60, 80, 120, 200, 400))))
    if topology is not Topology.PAGELOAD and random.random() < 0.4:
        wanted = juice(random.choice((0.9, 0.95, 1.0)))
    elif random.random() < 0.2:
        wanted = (*juice(random.choice((0.9, 0.95, 1.0))), *wanted)
    priority = float(random.choice((5, 10, 20, 35, 50, 90)))
    return JobSet(f"{topology}{number}", 1, topology, wanted, (priority,))


def _with_load(scheduled: ScheduledJob, random: Random) -> ScheduledJob:
    """The job with a random load, the same for all its sources."""
    factor = random.uniform(0.3, 1.5)
    kind = random.choice(("constant", "step", "sine", "trace", "spike"))
    change_s = random.uniform(0.2, 0.7) * LENGTH_S
    high = random.uniform(1.5, 3.0)
    trace_name = random.choice(trace.names())

    def drawn(rate: float) -> shapes.Shape:
        if kind == "step":
            return shapes.StepChange(rate, rate * high, change_s)
        if kind == "sine":
            return shapes.Sine(rate, rate * high, LENGTH_S / 2)
        if kind == "trace":
            return shapes.Trace(rate, trace.load(trace_name), LENGTH_S / 24)
        if kind == "spike":
            return shapes.Spike(rate, rate * high, LENGTH_S / 3)
        return shapes.Constant(rate)

    loads = {name: drawn(shape.rate_per_s(0.0) * factor) for name, shape in scheduled.loads.items()}
    return replace(scheduled, loads=loads)


def peak_cores(scheduled: ScheduledJob) -> float:
    """How many cores a job needs at its highest load."""
    return sum(demand.cores for demand in operator_demands(scheduled))


@dataclass(frozen=True)
class MixResult:
    """A mix under each strategy, while the policy may act.

    By strategy: the mean satisfaction, what it exceeds for nine tenths of the time, and the
    instance-hours. The last two are empty in older files.
    """

    seed: int
    jobs: int
    machines: int
    satisfaction: Mapping[str, float]
    worst_tenth: Mapping[str, float] = field(default_factory=dict)
    instance_hours: Mapping[str, float] = field(default_factory=dict)


def run_mix(
    seed: int,
    builder: ScenarioBuilder,
    topologies: Sequence[Topology],
    strategies: Sequence[Strategy],
) -> MixResult:
    """A mix under every strategy: one run each, with the mix's own seed."""
    scenario = with_seed(random_mix(seed, builder, topologies), seed)
    runner = Runner(builder, None, most_tried=TRIED)
    runs = {
        strategy.name: runner.simulated(
            runner.prepared(scenario, strategy, {}), strategy, POLICY_FROM_S
        )
        for strategy in strategies
    }
    return MixResult(
        seed,
        len(scenario.jobs),
        len(scenario.machines),
        {name: run.average for name, run in runs.items()},
        {name: run.percentile(WORST_TENTH) for name, run in runs.items()},
        {name: run.instance_hours for name, run in runs.items()},
    )


@dataclass(frozen=True)
class Ranking:
    """Over all mixes, by strategy: mean and 10th percentile of satisfaction, and the mean rank.

    Also the means of what satisfaction exceeds for nine tenths of the time and of instance-hours,
    where the mixes have them.
    """

    mixes: int
    mean: Mapping[str, float]
    tenth: Mapping[str, float]
    rank: Mapping[str, float]
    # How often the first is better than the second, and how often they are as good as the same.
    better: Mapping[tuple[str, str], int]
    same: Mapping[tuple[str, str], int]
    worst_tenth: Mapping[str, float] = field(default_factory=dict)
    instance_hours: Mapping[str, float] = field(default_factory=dict)


def rank(mixes: Sequence[MixResult]) -> Ranking:
    names = tuple(mixes[0].satisfaction)
    values = {name: np.array([mix.satisfaction[name] for mix in mixes]) for name in names}
    pairs = [(a, b) for a in names for b in names if a != b]

    def place(name: str) -> float:
        mine = values[name]
        ahead = [(values[other] > mine + SAME).astype(float) for other in names if other != name]
        return float(np.mean(1 + np.sum(ahead, axis=0)))

    def means(of: Callable[[MixResult], Mapping[str, float]]) -> dict[str, float]:
        known = [name for name in names if all(name in of(mix) for mix in mixes)]
        return {name: float(np.mean([of(mix)[name] for mix in mixes])) for name in known}

    return Ranking(
        mixes=len(mixes),
        mean={name: float(v.mean()) for name, v in values.items()},
        tenth={name: float(np.percentile(v, 10)) for name, v in values.items()},
        rank={name: place(name) for name in names},
        better={(a, b): int((values[a] > values[b] + SAME).sum()) for a, b in pairs},
        same={(a, b): int((np.abs(values[a] - values[b]) <= SAME).sum()) for a, b in pairs},
        worst_tenth=means(lambda mix: mix.worst_tenth),
        instance_hours=means(lambda mix: mix.instance_hours),
    )
