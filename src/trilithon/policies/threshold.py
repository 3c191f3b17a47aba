"""Owns the simplest policy: more instances where a latency threshold is missed, fewer where there is room.

A job that misses a latency threshold gets more instances of its busiest operator; one that has ample room
loses an instance where that leaves the most room. Capacity is Henge's (SoCC'18, equation 3). With p
instances, an operator of capacity c would have c · p / (p − 1) with one fewer.

What did not suffice is remembered with the load of that time: an operator is not lowered to it again until
the load has fallen. Without this a constant load would make it swing for ever.
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
    window_s: float = parameter(20.0, "s", "over which latency and capacity are taken", least=1)
    grow: float = parameter(0.5, "ratio", "how much more an operator gets, rounded up", most=4)
    busy: float = parameter(0.3, "ratio", "below this capacity an operator is not raised", most=1)
    room: float = parameter(0.5, "ratio", "latency over threshold below which is room", most=1)
    full: float = parameter(0.6, "ratio", "capacity that lowering must not lead above", most=1)
    eased: float = parameter(0.2, "ratio", "by how much load falls until less is tried", most=1)


@dataclass(frozen=True, eq=False)
class _Measured:
    """The window of a round, measured."""

    window: Window
    values: Mapping[str, Floats]
    capacity: Floats
    input_rate: Floats


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator that may be moved."""

    name: str
    instances: int
    min: int
    max: int
    capacity: float
    input_rate: float


@dataclass(frozen=True)
class ThresholdPolicy:
    """`threshold`: raise the busiest on a miss, lower where there is ample room."""

    parameters: ThresholdParameters = field(default_factory=ThresholdParameters)
    name: str = "threshold"

    @property
    def lookback_s(self) -> float:
        return self.parameters.window_s

    @property
    def feedback_rounds(self) -> int:
        """None: each round looks at what there is."""
        return 0

    def decide(self, scene: Scene, state: State) -> Verdict:
        window = scene.series.window(self.parameters.window_s)
        # What was learned of a job goes with it.
        learned = {j: one for j, one in state.get("jobs", {}).items() if j in scene.statuses}
        decisions: list[Decision] = []
        if window is not None:
            measured = _Measured(
                window, assess_intents(window).values, capacity(window), input_rate(window)
            )
            for row, name in enumerate(window.layout.jobs):
                status, job = scene.statuses.get(name), window.jobs.get(name)
                if status is None or job is None or not _ready(status, window):
                    continue
                missed = _tightest(job, measured.values, row)
                if missed is None:
                    continue
                threshold, value = missed
                decision = self._one(scene, status, measured, threshold, value, learned)
                if decision is not None:
                    decisions.append(decision)
        return Verdict(tuple(decisions), {**state, "jobs": learned})

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """Per job, the operators with the fewest instances that may be tried and the load of that time."""
        learned = state.get("jobs", {})
        return {
            "floors": {
                job: learned[job]["floors"] for job in sorted(scene.statuses) if job in learned
            }
        }

    def _one(
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
            operators = list(_movable(status, measured))
            decision, floors = self._raise(scene, status, operators, threshold, value, before)
            learned[status.job] = {"last": decision.id, "floors": floors}
            return decision
        if value > self.parameters.room * threshold.value:
            return None
        operators = list(_movable(status, measured))
        lowered = self._lower(scene, status, operators, threshold, value, before)
        if lowered is None:
            return None
        decision, name = lowered
        learned[status.job] = {"floors": {}, **before, "last": decision.id, "lowering": name}
        return decision

    def _raise(
        self,
        scene: Scene,
        status: JobStatus,
        operators: list[_Operator],
        threshold: Threshold,
        value: float,
        before: Mapping[str, Any],
    ) -> tuple[Decision, dict[str, Any]]:
        floors = dict(before.get("floors", {}))
        candidates = [one for one in operators if one.capacity >= self.parameters.busy]
        open_ones = [one for one in candidates if one.instances < one.max]
        said = f"{threshold} is missed with {value:.1f} ms"
        numbers: dict[str, float | None] = {threshold.key: value, "threshold": threshold.value}
        causes = (before["last"],) if "last" in before else ()
        if not open_ones:
            busiest = max(candidates, key=lambda one: one.capacity, default=None)
            why = (
                "no operator that may be changed is busy: more instances would not help"
                if busiest is None
                else f"{busiest.name} is the busiest (capacity {busiest.capacity:.2f}) and has all "
                f"{busiest.instances} instances that it may have"
            )
            if busiest is not None:
                numbers |= {"capacity": busiest.capacity, "instances": busiest.instances}
            sentence = f"{said}, but {why}."
            nothing = Decision(
                decision_id(scene, status.job), status.job, (), AT_LIMIT, sentence, numbers, causes
            )  # fmt: skip
            return nothing, floors
        one = max(open_ones, key=lambda one: one.capacity)
        more = max(one.instances + 1, math.ceil(one.instances * (1 + self.parameters.grow)))
        wanted = min(one.max, more)
        rate = None if math.isnan(one.input_rate) else one.input_rate
        floors[one.name] = [one.instances + 1, rate]
        numbers |= {"capacity": one.capacity, "instances": one.instances, "input_rate": rate}
        return Decision(
            id=decision_id(scene, status.job),
            job=status.job,
            changes=(ParallelismChange(status.job, {one.name: wanted}),),
            reason=MISSED,
            sentence=f"{said}; {one.name} is the busiest with capacity {one.capacity:.2f}: "
            f"{one.instances} → {wanted} instances.",
            numbers=numbers,
            causes=causes,
            expects=Expectation(
                threshold.key,
                threshold.value,
                scene.now_s + 2 * self.parameters.window_s,
                threshold.sense,
            ),
        ), floors

    def _lower(
        self,
        scene: Scene,
        status: JobStatus,
        operators: list[_Operator],
        threshold: Threshold,
        value: float,
        before: Mapping[str, Any],
    ) -> tuple[Decision, str] | None:
        floors: Mapping[str, Any] = before.get("floors", {})
        candidates = [
            (one.capacity * one.instances / (one.instances - 1), one)
            for one in operators
            if one.instances - 1 >= max(one.min, self._floor(floors.get(one.name), one))
        ]
        candidates = [(after, one) for after, one in candidates if after <= self.parameters.full]
        if not candidates:
            return None
        # Whoever was chosen in the round before is chosen again: a guard that waits until fewer were
        # wished for some time would wait for ever if two operators took turns.
        again = [pair for pair in candidates if pair[1].name == before.get("lowering")]
        after, one = min(again or candidates, key=lambda pair: pair[0])
        return Decision(
            id=decision_id(scene, status.job),
            job=status.job,
            changes=(ParallelismChange(status.job, {one.name: one.instances - 1}),),
            reason=AMPLE,
            sentence=f"{threshold} is met with ample room ({value:.1f} ms); {one.name} would have "
            f"capacity {after:.2f} with one instance fewer: {one.instances} → {one.instances - 1}.",
            numbers={
                threshold.key: value,
                "threshold": threshold.value,
                "capacity": one.capacity,
                "capacity_after": after,
                "instances": one.instances,
            },
            causes=(before["last"],) if "last" in before else (),
            expects=Expectation(
                threshold.key,
                threshold.value,
                scene.now_s + 2 * self.parameters.window_s,
                threshold.sense,
            ),
        ), one.name

    def _floor(self, learned: list[float | None] | None, one: _Operator) -> int:
        """The fewest instances that may be tried, by what was learned under at least this load."""
        if learned is None:
            return 1
        least, rate = learned
        eased = rate is not None and one.input_rate < (1 - self.parameters.eased) * rate
        return 1 if eased or least is None else int(least)


def _ready(status: JobStatus, window: Window) -> bool:
    """Whether a decision makes sense: it is wanted, nothing is under way, and the window has only what
    was measured under the allocation of now.
    """
    fresh = status.changed_s is None or window.start_s >= status.changed_s
    return status.mode is not Mode.OFF and not status.in_flight and fresh


def _tightest(job: Job, values: Mapping[str, Floats], row: int) -> tuple[Threshold, float] | None:
    """The latency threshold that is kept least, with its value; None if one cannot be told."""
    found: tuple[Threshold, float] | None = None
    for threshold in job.intent.thresholds:
        if threshold.metric is not Metric.LATENCY:
            continue
        value = float(values[threshold.key][row])
        if np.isnan(value):
            return None
        if found is None or value / threshold.value > found[1] / found[0].value:
            found = threshold, value
    return found


def _movable(status: JobStatus, measured: _Measured) -> Iterator[_Operator]:
    """The operators that may get other numbers of instances and whose capacity is known."""
    row = measured.window.layout.node_row
    for name, instances in status.allocation.parallelism.items():
        span = status.spans.get(name)
        node = row.get((status.job, name))
        if name in status.fixed or span is None or node is None:
            continue
        busy = float(measured.capacity[node])
        if not math.isnan(busy):
            rate = float(measured.input_rate[node])
            yield _Operator(name, instances, span.min, span.max, busy, rate)
