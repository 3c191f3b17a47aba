"""Draws random jobs with a known fault, lets `dhalion` examine them, and says whether it is right.

A job has one to three operators in a line, the last one by key. Without a fault each has so many
instances that one fewer would cause back-pressure. Faults are put on top of that: an instance that
is 1.2 to 10 times slower, a key with 5 to 60 % of the records, too few instances, too many, or two
at once.

A job with a fault is examined once. A healthy one runs for an hour, in which it is examined every
two minutes: any of these examinations could change it.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import numpy as np

from trilithon.control.rules import Limits
from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.engines.simulated.faults import SlowInstance
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.dhalion.confusion import NONE, first_diagnosis
from trilithon.experiments.dhalion.examined_policy import ExaminedPolicy
from trilithon.measures.rates import back_pressure
from trilithon.model.allocation import initial
from trilithon.model.job import Edge, Grouping, Job, Operator, Parallelism, Sink, Source
from trilithon.model.profile import Distribution, Profile
from trilithon.plugins import policy
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLOW, UNDER
from trilithon.scenarios.chosen import ChosenNumbers, assumed_costs, load_chosen
from trilithon.scenarios.rounds import ControlledRounds
from trilithon.workloads.shapes import Constant

ROUND_S: Final = 20.0
# The first examination comes after the window of 300 s; a run with a fault ends soon after.
LENGTH_S: Final = 360.0
HEALTHY_S: Final = 3600.0
WINDOW_S: Final = 300.0
# Above this share of time, back-pressure must be diagnosed (the goal); below, "none" is right.
BACK_PRESSURE: Final = 0.05


class Ailment(StrEnum):
    SLOW = "slow instance"
    SKEW = "hot key"
    UNDER = "too few instances"
    OVER = "too many instances"
    HEALTHY = "healthy"
    TWO = "two at once"


KINDS: Final = {Ailment.SLOW: SLOW, Ailment.SKEW: SKEW, Ailment.UNDER: UNDER, Ailment.OVER: OVER}
_IN_TURN: Final = tuple(Ailment)


@dataclass(frozen=True)
class SickJob:
    """A job, what ails it, and what comes to it."""

    seed: int
    ailment: Ailment
    # The diagnoses that would be right, with back-pressure.
    right: tuple[str, ...]
    job: Job
    rate_per_s: float
    slow: tuple[SlowInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    """What `dhalion` said of a job, and whether that was right. `changed` is whether it acted in
    any of its `examinations`. The back-pressure is that of the first one.
    """

    seed: int
    ailment: str
    right: tuple[str, ...]
    diagnosis: str
    back_pressure: float
    changed: bool
    examinations: int = 1

    @property
    def pressed(self) -> bool:
        return self.back_pressure > BACK_PRESSURE

    @property
    def correct(self) -> bool:
        """Without back-pressure "none" is right, and for the healthy it always is. Too many
        instances are to be seen without back-pressure.
        """
        if OVER in self.right or (self.pressed and self.right):
            return self.diagnosis in self.right
        return self.diagnosis == NONE

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Examined":
        return cls(**{**data, "right": tuple(data["right"])})


def draw(seed: int) -> SickJob:
    """The job of a seed; ailments take turns."""
    rng = np.random.default_rng(seed)
    ailment = _IN_TURN[seed % len(_IN_TURN)]
    count = int(rng.integers(1, 4))
    names = ("parse", "enrich", "count")[3 - count :]
    rate = float(rng.uniform(100, 1500))
    faults = [ailment] if ailment in KINDS else []
    if ailment is Ailment.TWO:
        pairs = ((Ailment.SLOW, Ailment.UNDER), (Ailment.SKEW, Ailment.UNDER))
        faults = list((*pairs, (Ailment.SLOW, Ailment.SKEW))[int(rng.integers(3))])
    # A hot key needs records by key; other faults strike any operator.
    struck = {
        fault: "count" if fault is Ailment.SKEW else names[int(rng.integers(count))]
        for fault in faults
    }
    operators, slow = [], []
    for name in names:
        instances = int(rng.integers(2, 11))
        # One fewer would be too few, and there is a little room.
        busy = float(rng.uniform(1.02 * (instances - 1) / instances, 0.95))
        if struck.get(Ailment.UNDER) == name:
            busy = float(rng.uniform(1.1, 3.0))
        elif struck.get(Ailment.OVER) == name:
            instances = max(3, instances)
            busy = float(rng.uniform(0.1, 0.4))
        hot = float(rng.uniform(0.05, 0.6)) if struck.get(Ailment.SKEW) == name else None
        if struck.get(Ailment.SLOW) == name:
            factor = float(np.exp(rng.uniform(math.log(1.2), math.log(10.0))))
            index = int(rng.integers(instances))
            slow.append(SlowInstance(0.0, None, "sick/job", name, index, factor))
        profile = Profile(
            service_ms=1000 * busy * instances / rate,
            service_cv=float(rng.uniform(0.2, 1.0)),
            distribution=Distribution.GAMMA,
            cpu_share=0.0,
            selectivity=1.0,
            hot_key=hot,
        )
        bounds = Parallelism(instances, 1, 64)
        operators.append(Operator(name, parallelism=bounds, profile=profile))
    right = tuple(KINDS[fault] for fault in faults)
    return SickJob(seed, ailment, right, _job(operators), rate, tuple(slow))


def _job(operators: list[Operator]) -> Job:
    names = ["in", *(operator.name for operator in operators), "out"]
    edges = tuple(
        Edge(a, b, Grouping.BY_KEY, ("k",)) if b == "count" else Edge(a, b)
        for a, b in pairwise(names)
    )
    return Job(
        tenant="sick",
        name="job",
        sources=(Source("in", (), (), 4),),
        operators=tuple(operators),
        edges=edges,
        sinks=(Sink("out", ()),),
    )


def examine(
    sick: SickJob,
    chosen: ChosenNumbers | None = None,
    acting: ExaminedPolicy | None = None,
) -> Examined:
    """Runs a job until it was examined once; a healthy one for an hour, or until it is changed."""
    acting = acting or ExaminedPolicy(policy("dhalion"), sick.job.id)
    machines = [MachineSpec(f"m{i}", 8.0, 8e9) for i in range(4)]
    engine = SimulatedEngine(
        machines, SPARK_RTM, assumed_costs(chosen or load_chosen()), seed=sick.seed
    )
    engine.submit(sick.job, initial(sick.job))
    engine.feed(sick.job.id, "in", Constant(sick.rate_per_s))
    for fault in sick.slow:
        engine.inject(fault)
    healthy = sick.ailment is Ailment.HEALTHY
    length_s = HEALTHY_S if healthy else LENGTH_S
    limits = Limits(round_s=ROUND_S, cool_down_s=0.0, down_delay_s=0.0)
    pressed = math.nan
    with ControlledRounds(engine, acting, limits, sick.seed, None) as rounds:
        while engine.now_s < length_s - 1e-9:
            engine.advance(ROUND_S)
            rounds.round()
            if math.isnan(pressed) and acting.examined_s:
                window = rounds.series.window(WINDOW_S)
                pressed = float(np.nanmax(back_pressure(window))) if window else math.nan
            if acting.examined_s and (acting.changed or not healthy):
                break
    return Examined(
        sick.seed,
        str(sick.ailment),
        sick.right,
        first_diagnosis(decision.reason for decision in acting.decisions),
        pressed,
        acting.changed,
        len(acting.examined_s),
    )
