"""Owns random mixes of jobs: which way of steering comes out first when nobody chose the jobs.

A mix is drawn from a seed alone: how many jobs of which shapes, what they ask for, how much comes in over an
hour and a half, and how tight the cluster is. Seeds below `FIRST` are for trying things out; those from there on are
looked at only by whoever runs the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import numpy as np

from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.build import Builder
from trilithon.experiments.definition import Experiment, Jobs, Shape, Variant, juice, latency
from trilithon.experiments.flows import flows
from trilithon.experiments.runs import Runner, Steering
from trilithon.model.intent import Threshold
from trilithon.scenarios.scenario import Scenario, ScheduledJob
from trilithon.workloads import shapes, trace

FIRST: Final = 1000
COUNT: Final = 200
LENGTH_S: Final = 5400.0
# Candidates of the search for the best allocation of a mix.
TRIED: Final = 20
HELD_BACK_S: Final = 900.0
SHAPES: Final = (
    Shape.PAGELOAD,
    Shape.LINEAR,
    Shape.DIAMOND,
    Shape.STAR,
    Shape.WORDCOUNT,
    Shape.JOIN,
)
_EXPERIMENT: Final = Experiment(
    "mix", "a random mix of jobs", "", LENGTH_S, (), (), (), HELD_BACK_S
)


def mix(seed: int, builder: Builder) -> Scenario:
    """The jobs, loads and machines of a seed."""
    random = Random(seed)  # noqa: S311 - experiments, no secrets
    drawn = tuple(_jobs(i, random) for i in range(random.randint(3, 10)))
    found = builder.scenario(_EXPERIMENT, Variant(f"mix-{seed}", drawn, machines=1))
    fed = tuple(_loaded(one, random) for one in found.jobs)
    # From ample to too small: what the jobs need at their peaks, of what there is.
    tightness = random.uniform(0.3, 1.2)
    cores = found.machines[0].cores
    count = max(1, round(sum(map(peak_cores, fed)) / tightness / cores))
    machines = tuple(
        MachineSpec(f"m{i}", cores, found.machines[0].memory_bytes) for i in range(count)
    )
    return replace(found, name=f"mix-{seed}", jobs=fed, machines=machines)


def _jobs(number: int, random: Random) -> Jobs:
    shape = random.choice(SHAPES)
    wanted: tuple[Threshold, ...] = latency(float(random.choice((40, 60, 80, 120, 200, 400))))
    if shape is not Shape.PAGELOAD and random.random() < 0.4:
        wanted = juice(random.choice((0.9, 0.95, 1.0)))
    elif random.random() < 0.2:
        wanted = (*juice(random.choice((0.9, 0.95, 1.0))), *wanted)
    priority = float(random.choice((5, 10, 20, 35, 50, 90)))
    return Jobs(f"{shape}{number}", 1, shape, wanted, (priority,))


def _loaded(fed: ScheduledJob, random: Random) -> ScheduledJob:
    """Another load than the one that the job was sized for, the same for all its sources."""
    factor = random.uniform(0.3, 1.5)
    kind = random.choice(("constant", "step", "sine", "trace", "spike"))
    moment = random.uniform(0.2, 0.7) * LENGTH_S
    high = random.uniform(1.5, 3.0)
    row = random.choice(trace.names())

    def made(rate: float) -> shapes.Shape:
        if kind == "step":
            return shapes.StepChange(rate, rate * high, moment)
        if kind == "sine":
            return shapes.Sine(rate, rate * high, LENGTH_S / 2)
        if kind == "trace":
            return shapes.Trace(rate, trace.load(row), LENGTH_S / 24)
        if kind == "spike":
            return shapes.Spike(rate, rate * high, LENGTH_S / 3)
        return shapes.Constant(rate)

    loads = {name: made(shape.rate_per_s(0.0) * factor) for name, shape in fed.loads.items()}
    return replace(fed, loads=loads)


def peak_cores(fed: ScheduledJob) -> float:
    """How many cores a job needs at its highest load."""
    return sum(flow.cores for flow in flows(fed))


@dataclass(frozen=True)
class Mixed:
    """What came of a mix: the mean satisfaction in each way, while a policy may act."""

    seed: int
    jobs: int
    machines: int
    satisfaction: Mapping[Steering, float]


def run_mix(seed: int, builder: Builder) -> Mixed:
    scenario = mix(seed, builder)
    runner = Runner(builder, most_tried=TRIED, climbs_again=False)
    found = {}
    for steering in Steering:
        steered = runner.steered(scenario, steering, {})
        found[steering] = runner.simulated(steered, steering, HELD_BACK_S).average
    return Mixed(seed, len(scenario.jobs), len(scenario.machines), found)


@dataclass(frozen=True)
class Ranking:
    """Over all mixes: mean and 10th percentile of satisfaction, mean rank, and how often each is ahead."""

    mixes: int
    mean: Mapping[Steering, float]
    tenth: Mapping[Steering, float]
    rank: Mapping[Steering, float]
    # How often the first is better than the second, and how often they are as good as the same.
    better: Mapping[tuple[Steering, Steering], int]
    same: Mapping[tuple[Steering, Steering], int]


# Closer than this, two ways are the same.
SAME: Final = 0.005


def rank(found: Sequence[Mixed]) -> Ranking:
    values = {s: np.array([one.satisfaction[s] for one in found]) for s in Steering}
    pairs = [(a, b) for a in Steering for b in Steering if a is not b]

    def place(steering: Steering) -> float:
        mine = values[steering]
        ahead = [
            (other > mine + SAME).astype(float) for s, other in values.items() if s is not steering
        ]
        return float(np.mean(1 + np.sum(ahead, axis=0)))

    return Ranking(
        mixes=len(found),
        mean={s: float(v.mean()) for s, v in values.items()},
        tenth={s: float(np.percentile(v, 10)) for s, v in values.items()},
        rank={s: place(s) for s in Steering},
        better={(a, b): int((values[a] > values[b] + SAME).sum()) for a, b in pairs},
        same={(a, b): int((np.abs(values[a] - values[b]) <= SAME).sum()) for a, b in pairs},
    )
