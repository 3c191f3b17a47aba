"""A simulated job with faults, and the policy `dhalion` that looks after it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.engines.simulated.worlds import ASSUMED, graph, operator
from trilithon.control.rules import Limits
from trilithon.engines.simulated.character import SPARK_RTM, Character
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.engines.simulated.faults import SlowInstance
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.model.allocation import initial
from trilithon.model.change import Alert
from trilithon.model.job import Job
from trilithon.model.series import Series
from trilithon.policies.decision import Decision
from trilithon.policies.registry import policy
from trilithon.scenarios.rounds import ControlledRounds, DecisionResult
from trilithon.workloads.shapes import Constant, Shape

ROUND_S = 20.0
JOB = "t/words"


def words(split: int = 4, count: int = 4, *, count_ms: float = 4.0, **counting: Any) -> Job:
    """Word count without a factor: `split` by shuffle, `count` by key."""
    return graph(
        "words",
        [
            operator("split", split, service_ms=2.0, service_cv=0.5),
            operator("count", count, service_ms=count_ms, service_cv=0.5, **counting),
        ],
        "in>split",
        "split=count",
        "count>out",
    )


@dataclass
class Clinic:
    engine: SimulatedEngine
    results: list[DecisionResult]
    series: Series

    @property
    def decisions(self) -> list[Decision]:
        return [result.decision for result in self.results]

    def reasons(self) -> list[str]:
        """The reasons of decisions that wanted a change or alerted, in order."""
        return [decision.reason for decision in self.decisions if decision.changes]

    def alerts(self) -> set[str]:
        """The codes of alerts."""
        changes = [change for decision in self.decisions for change in decision.changes]
        return {change.code for change in changes if isinstance(change, Alert)}

    def diagnoses(self) -> list[str]:
        begin = "DIAGNOSIS_"
        return [d.reason.removeprefix(begin) for d in self.decisions if d.reason.startswith(begin)]

    @property
    def parallelism(self) -> dict[str, int]:
        return dict(self.engine.jobs()[JOB].allocation.parallelism)


def treated(
    job: Job,
    load: float | Shape,
    *,
    minutes: float,
    faults: Iterable[SlowInstance] = (),
    character: Character = SPARK_RTM,
    name: str | tuple[str, ...] = "dhalion",
    seed: int = 7,
    **parameters: Any,
) -> Clinic:
    """Runs a job for so many minutes under the policy."""
    engine = SimulatedEngine(
        [MachineSpec(f"m{i}", 16.0, 8e9) for i in range(4)], character, ASSUMED
    )
    assert engine.submit(job, initial(job)).changed
    for source in job.sources:
        engine.feed(job.id, source.name, Constant(load) if isinstance(load, float) else load)
    for fault in faults:
        engine.inject(fault)
    limits = Limits(round_s=ROUND_S, cool_down_s=0.0, down_delay_s=0.0)
    results: list[DecisionResult] = []
    with ControlledRounds(engine, policy(name, parameters), limits, seed, None) as rounds:
        while engine.now_s < minutes * 60 - 1e-9:
            engine.advance(ROUND_S)
            results += rounds.round()
    return Clinic(engine, results, rounds.series)
