"""Defines the simplest policy: more instances when a latency is missed, fewer when there is room.

A job that misses a latency threshold gets more instances of its busiest operator. A job with ample
room loses an instance of the operator that stays the least busy. Capacity is Henge's (SoCC'18,
equation 3). With p instances, an operator of capacity c would have c · p / (p − 1) with one fewer.

The policy remembers a parallelism that did not suffice, with the load of that time. It does not
lower the operator to it again until the load has fallen. Otherwise it would oscillate under a
constant load.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from trilithon.measures.capacity import capacity
from trilithon.measures.rates import input_rate
from trilithon.measures.slo import assess_intents
from trilithon.model.change import ParallelismChange
from trilithon.model.columns import Floats
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.model.series import Window
from trilithon.policies.decision import Decision, Expectation
from trilithon.policies.parameters import Parameters, parameter
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import JobStatus, Scene

MISSED: Final = "LATENCY_MISSED"
AT_LIMIT: Final = "LATENCY_MISSED_AT_LIMIT"
AMPLE: Final = "AMPLE_ROOM"


@dataclass(frozen=True)
class ThresholdParameters(Parameters):
    window_s: float = parameter(
        20.0, "s", "window over which latency and capacity are measured", least=1
    )
    grow: float = parameter(0.5, "ratio", "share by which an operator grows, rounded up", most=4)
    busy: float = parameter(0.3, "ratio", "capacity below which an operator does not grow", most=1)
    room: float = parameter(
        0.5, "ratio", "latency over threshold below which there is room", most=1
    )
    full: float = parameter(
        0.6, "ratio", "highest capacity to which fewer instances may lead", most=1
    )
    eased: float = parameter(
        0.2, "ratio", "fall of the load after which fewer instances are tried again", most=1
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """The measures of a round's window."""

    window: Window
    values: Mapping[str, Floats]
    capacity: Floats
    input_rate: Floats


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator whose parallelism may change."""

    name: str
    instances: int
    min: int
    max: int
    capacity: float
    input_rate: float

    @property
    def capacity_with_one_fewer(self) -> float:
        return self.capacity * self.instances / (self.instances - 1)


@dataclass(frozen=True)
class ThresholdPolicy:
    """`threshold`: grows the busiest operator on a miss, shrinks one when there is ample room."""

    parameters: ThresholdParameters = field(default_factory=ThresholdParameters)
    name: str = "threshold"

    @property
    def lookback_s(self) -> float:
        return self.parameters.window_s

    @property
    def feedback_rounds(self) -> int:
        """None: each round decides from the current measurements."""
        return 0

    def decide(self, scene: Scene, state: State) -> Verdict:
        window = scene.series.window(self.parameters.window_s)
        # What was learned of a job is dropped with the job.
        learned = {
            job: entry for job, entry in state.get("jobs", {}).items() if job in scene.statuses
        }
        decisions: list[Decision] = []
        if window is not None:
            measured = _Measured(
                window, assess_intents(window).values, capacity(window), input_rate(window)
            )
            for row, name in enumerate(window.layout.jobs):
                status, job = scene.statuses.get(name), window.jobs.get(name)
                if status is None or job is None or not _ready(status, window):
                    continue
                tightest = _tightest_latency(job, measured.values, row)
                if tightest is None:
                    continue
                threshold, value = tightest
                decision = self._decide_job(scene, status, measured, threshold, value, learned)
                if decision is not None:
                    decisions.append(decision)
        return Verdict(tuple(decisions), {**state, "jobs": learned})

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """Per job and operator: the fewest instances that may be tried, and at which load."""
        learned = state.get("jobs", {})
        return {
            "floors": {
                job: learned[job]["floors"] for job in sorted(scene.statuses) if job in learned
            }
        }

    def _decide_job(
        self,
        scene: Scene,
        status: JobStatus,
        measured: _Measured,
        threshold: Threshold,
        value: float,
        learned: dict[str, Any],
    ) -> Decision | None:
        before = learned.get(status.job, {})
        if value > threshold.value:
            operators = list(_scalable_operators(status, measured))
            decision, floors = self._grow(scene, status, operators, threshold, value, before)
            learned[status.job] = {"last": decision.id, "floors": floors}
            return decision
        if value > self.parameters.room * threshold.value:
            return None
        operators = list(_scalable_operators(status, measured))
        shrunk = self._shrink(scene, status, operators, threshold, value, before)
        if shrunk is None:
            return None
        decision, name = shrunk
        learned[status.job] = {"floors": {}, **before, "last": decision.id, "lowering": name}
        return decision

    def _grow(
        self,
        scene: Scene,
        status: JobStatus,
        operators: list[_Operator],
        threshold: Threshold,
        value: float,
        before: Mapping[str, Any],
    ) -> tuple[Decision, dict[str, Any]]:
        floors = dict(before.get("floors", {}))
        busy = [operator for operator in operators if operator.capacity >= self.parameters.busy]
        growable = [operator for operator in busy if operator.instances < operator.max]
        miss = f"{threshold} is missed with {value:.1f} ms"
        numbers: dict[str, float | None] = {threshold.key: value, "threshold": threshold.value}
        causes = (before["last"],) if "last" in before else ()
        if not growable:
            busiest = max(busy, key=lambda operator: operator.capacity, default=None)
            why = (
                "no operator that may change is busy, so more instances would not help"
                if busiest is None
                else f"the busiest operator, {busiest.name} (capacity {busiest.capacity:.2f}), has "
                f"its maximum of {busiest.instances} instances"
            )
            if busiest is not None:
                numbers |= {"capacity": busiest.capacity, "instances": busiest.instances}
            sentence = f"{miss}, but {why}."
            id_ = decision_id(scene, status.job)
            at_limit = Decision(id_, status.job, (), AT_LIMIT, sentence, numbers, causes)
            return at_limit, floors
        chosen = max(growable, key=lambda operator: operator.capacity)
        instances = chosen.instances
        grown = max(instances + 1, math.ceil(instances * (1 + self.parameters.grow)))
        wanted = min(chosen.max, grown)
        rate = None if math.isnan(chosen.input_rate) else chosen.input_rate
        floors[chosen.name] = [instances + 1, rate]
        numbers |= {"capacity": chosen.capacity, "instances": instances, "input_rate": rate}
        return Decision(
            id=decision_id(scene, status.job),
            job=status.job,
            changes=(ParallelismChange(status.job, {chosen.name: wanted}),),
            reason=MISSED,
            sentence=f"{miss}. The busiest operator is {chosen.name} with capacity "
            f"{chosen.capacity:.2f}: {instances} → {wanted} instances.",
            numbers=numbers,
            causes=causes,
            expects=Expectation(
                threshold.key,
                threshold.value,
                scene.now_s + 2 * self.parameters.window_s,
                threshold.sense,
            ),
        ), floors

    def _shrink(
        self,
        scene: Scene,
        status: JobStatus,
        operators: list[_Operator],
        threshold: Threshold,
        value: float,
        before: Mapping[str, Any],
    ) -> tuple[Decision, str] | None:
        floors: Mapping[str, Any] = before.get("floors", {})
        shrinkable = [
            operator
            for operator in operators
            if operator.instances - 1
            >= max(operator.min, self._floor(floors.get(operator.name), operator))
        ]
        candidates = [
            (after, operator)
            for operator in shrinkable
            if (after := operator.capacity_with_one_fewer) <= self.parameters.full
        ]
        if not candidates:
            return None
        # The operator of the round before is chosen again: a guard that grants fewer instances only
        # after they were requested for some time would never do so if two operators took turns.
        again = [pair for pair in candidates if pair[1].name == before.get("lowering")]
        after, chosen = min(again or candidates, key=lambda pair: pair[0])
        return Decision(
            id=decision_id(scene, status.job),
            job=status.job,
            changes=(ParallelismChange(status.job, {chosen.name: chosen.instances - 1}),),
            reason=AMPLE,
            sentence=f"{threshold} is met with ample room ({value:.1f} ms). With one instance "
            f"fewer, {chosen.name} would have capacity {after:.2f}: {chosen.instances} → "
            f"{chosen.instances - 1} instances.",
            numbers={
                threshold.key: value,
                "threshold": threshold.value,
                "capacity": chosen.capacity,
                "capacity_after": after,
                "instances": chosen.instances,
            },
            causes=(before["last"],) if "last" in before else (),
            expects=Expectation(
                threshold.key,
                threshold.value,
                scene.now_s + 2 * self.parameters.window_s,
                threshold.sense,
            ),
        ), chosen.name

    def _floor(self, learned: list[float | None] | None, operator: _Operator) -> int:
        """The fewest instances that may be tried, as learned at this load or a higher one."""
        if learned is None:
            return 1
        least, rate = learned
        eased = rate is not None and operator.input_rate < (1 - self.parameters.eased) * rate
        return 1 if eased or least is None else int(least)


def _ready(status: JobStatus, window: Window) -> bool:
    """Whether to decide about a job: it is not off, no action is in flight, and the whole window
    was measured under its present allocation.
    """
    fresh = status.changed_s is None or window.start_s >= status.changed_s
    return status.mode is not Mode.OFF and not status.in_flight and fresh


def _tightest_latency(
    job: Job, values: Mapping[str, Floats], row: int
) -> tuple[Threshold, float] | None:
    """The latency threshold with the least room, with its value; None if a value is missing."""
    tightest: tuple[Threshold, float] | None = None
    for threshold in job.intent.thresholds:
        if threshold.metric is not Metric.LATENCY:
            continue
        value = float(values[threshold.key][row])
        if np.isnan(value):
            return None
        if tightest is None or value / threshold.value > tightest[1] / tightest[0].value:
            tightest = threshold, value
    return tightest


def _scalable_operators(status: JobStatus, measured: _Measured) -> Iterator[_Operator]:
    """The operators whose parallelism may change and whose capacity is known."""
    row = measured.window.layout.node_row
    for name, instances in status.allocation.parallelism.items():
        span = status.spans.get(name)
        node = row.get((status.job, name))
        if name in status.fixed or span is None or node is None:
            continue
        capacity_ = float(measured.capacity[node])
        if not math.isnan(capacity_):
            rate = float(measured.input_rate[node])
            yield _Operator(name, instances, span.min, span.max, capacity_, rate)
