"""Defines the policy `ds2`: the parallelism at which every operator keeps up with the sources.

DS2 (Kalavri and others, OSDI'18) is a rival that others compare with, written here from its rules.
It measures how fast an instance is while it works, follows the sources' rates through the graph,
and sets all operators of a job at once:

    p' = ⌈x · (1 + scaling factor)⌉      x = wanted input / true processing rate of an instance

(`measures/true_rates.py`). If no operator grows and a source still reads more slowly than records
arrive, by more than a ratio that the user sets, p' is multiplied by that quotient: instances do
not scale as perfectly as the rule assumes.

It knows no latency, no priorities and no skew. Jobs are served in the order of their names; where
slots are short, the first gets what it needs and the last nothing. Within a job, slots go to the
operator that is the farthest behind.

Chosen: times are compared, and rounds are not counted. After a change, the window must lie behind
the warm-up. With an activation of n intervals, the median of what was wanted in that time counts.
An operator that gets records by broadcast keeps its parallelism: more instances get more copies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trilithon.measures.true_rates import (
    needed_instances,
    source_rate_ratio,
    true_processing_rate,
    wanted_input,
)
from trilithon.model.change import ParallelismChange
from trilithon.model.columns import Floats
from trilithon.model.job import Grouping
from trilithon.model.mode import Mode
from trilithon.model.series import Window
from trilithon.model.utility import Sense
from trilithon.policies.decision import Decision, Expectation
from trilithon.policies.free_slots import FreeSlots
from trilithon.policies.parameters import Parameters, parameter
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import JobStatus, Scene

BEHIND: Final = "RATE_NOT_SUSTAINED"
BEHIND_AT_LIMIT: Final = "RATE_NOT_SUSTAINED_AT_LIMIT"
FEWER_SUFFICE: Final = "FEWER_SUSTAIN_RATE"
# A job that keeps up has juice 1; the rest allows for what is on its way at the end of a window.
KEEPS_UP_JUICE: Final = 0.95
# Absorbs rounding errors: a quotient this close above a whole number is that number.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Ds2Parameters(Parameters):
    interval_s: float = parameter(
        10.0, "s", "window over which rates are measured, and time between rounds", least=1
    )
    warm_up: int = parameter(2, "intervals", "ignored after a change of the job")
    activation: int = parameter(
        1, "intervals", "for which parallelism is evaluated before it changes", least=1
    )
    scaling_factor: float = parameter(0.0, "ratio", "instances beyond those that are needed")
    source_ratio: float = parameter(
        0.0, "ratio", "of arriving to read records above which p' grows by it; 0: never"
    )


@dataclass(frozen=True, slots=True)
class _ScaledOperator:
    """An operator with what it needs (`x`, unrounded), what DS2 wants, and its bounds."""

    name: str
    instances: int
    x: float
    wanted: int
    max: int
    input_per_s: float
    true_per_s: float
    # It gets a copy of every record per instance: more instances do not share the work.
    broadcast: bool

    @property
    def grows(self) -> bool:
        return self.wanted > self.instances

    def __str__(self) -> str:
        return (
            f"{self.name} needs {self.x:.2f} instances for {self.input_per_s:.4g} records/s "
            f"at {self.true_per_s:.4g} per instance"
        )


@dataclass(frozen=True, eq=False)
class _MeasuredRates:
    """The rates of a round's window, per node; the ratio per job."""

    window: Window
    wanted: Floats
    true: Floats
    x: Floats
    source_ratio: Floats
    broadcast_nodes: frozenset[int]

    @classmethod
    def of(cls, window: Window) -> "_MeasuredRates":
        layout = window.layout
        return cls(
            window,
            wanted_input(window),
            true_processing_rate(window),
            needed_instances(window),
            source_rate_ratio(window),
            frozenset(
                node
                for node, grouping in zip(
                    layout.edge_target.tolist(), layout.edge_grouping, strict=True
                )
                if grouping is Grouping.BROADCAST
            ),
        )


@dataclass(frozen=True)
class Ds2Policy:
    """`ds2`: every operator gets the instances that its share of the sources' rates needs."""

    parameters: Ds2Parameters = field(default_factory=Ds2Parameters)
    name: str = "ds2"

    @property
    def lookback_s(self) -> float:
        return self.parameters.interval_s

    @property
    def feedback_rounds(self) -> int:
        """None: each round decides from the current rates."""
        return 0

    def decide(self, scene: Scene, state: State) -> Verdict:
        window = scene.series.window(self.parameters.interval_s)
        # What is remembered of a job is dropped with the job.
        memory = {job: kept for job, kept in state.get("jobs", {}).items() if job in scene.statuses}
        decisions: list[Decision] = []
        if window is not None:
            rates = _MeasuredRates.of(window)
            free = FreeSlots.of(scene)
            for name in sorted(scene.statuses):
                decision = self._decide_job(scene, scene.statuses[name], rates, free, memory)
                if decision is not None:
                    decisions.append(decision)
                    memory[name] = {**memory.get(name, {}), "last": decision.id}
        return Verdict(tuple(decisions), {**state, "jobs": memory}, self.parameters.interval_s)

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """Per job: what was wanted in the intervals of the activation, with the time of each."""
        memory = state.get("jobs", {})
        return {
            "wanted": {
                job: memory[job]["wanted"]
                for job in sorted(scene.statuses)
                if memory.get(job, {}).get("wanted")
            }
        }

    def _decide_job(
        self,
        scene: Scene,
        status: JobStatus,
        rates: _MeasuredRates,
        free: FreeSlots,
        memory: dict[str, dict[str, Any]],
    ) -> Decision | None:
        operators = self._operators(status, rates) if self._ready(status, rates.window) else None
        if operators is not None:
            operators = self._activated(scene.now_s, status.job, operators, memory)
        elif "wanted" in memory.get(status.job, {}):
            memory[status.job] = {k: v for k, v in memory[status.job].items() if k != "wanted"}
        if operators is None:
            return None
        changeable = [operator for operator in operators if operator.name not in status.fixed]
        limited = _within_limits(status, changeable, rates.window, free)
        changed = {o.name: limited[o.name] for o in changeable if limited[o.name] != o.instances}
        behind = [o for o in operators if o.wanted > limited.get(o.name, o.instances)]
        if not changed and not behind:
            return None
        causes = (memory[status.job]["last"],) if "last" in memory.get(status.job, {}) else ()
        return self._decision(scene, status, operators, changed, behind, causes)

    def _ready(self, status: JobStatus, window: Window) -> bool:
        """Whether the guard would act on the job, and the window lies behind its warm-up."""
        if status.mode is Mode.OFF or status.in_flight or status.hold_reason:
            return False
        warm_up_s = self.parameters.warm_up * self.parameters.interval_s
        return status.changed_s is None or window.start_s >= status.changed_s + warm_up_s

    def _operators(
        self, status: JobStatus, rates: _MeasuredRates
    ) -> tuple[_ScaledOperator, ...] | None:
        """The operators in topological order; None if a number is missing for any of them."""
        layout = rates.window.layout
        if status.job not in layout.job_row or status.job not in rates.window.jobs:
            return None
        ratio = float(rates.source_ratio[layout.job_row[status.job]])
        operators: list[_ScaledOperator] = []
        for node in layout.job_nodes(status.job):
            name = layout.node_names[node]
            instances = status.allocation.parallelism.get(name)
            if instances is None:
                continue
            x, span = float(rates.x[node]), status.spans.get(name)
            if math.isnan(x) or math.isnan(ratio) or span is None:
                return None
            broadcast = node in rates.broadcast_nodes
            wanted = _rounded_up(x * (1 + self.parameters.scaling_factor))
            operators.append(
                _ScaledOperator(
                    name,
                    instances,
                    x,
                    # Never below the minimum; the maximum is a limit that a decision names.
                    instances if broadcast else max(span.min, wanted),
                    span.max,
                    float(rates.wanted[node]),
                    float(rates.true[node]),
                    broadcast,
                )
            )
        return self._corrected(tuple(operators), ratio)

    def _corrected(
        self, operators: tuple[_ScaledOperator, ...], ratio: float
    ) -> tuple[_ScaledOperator, ...]:
        """With the correction for instances that scale worse than they should."""
        threshold = self.parameters.source_ratio
        if threshold == 0 or math.isinf(ratio) or ratio <= threshold:
            return operators
        if any(operator.grows for operator in operators):
            return operators
        return tuple(
            o if o.broadcast else replace(o, wanted=_rounded_up(ratio * o.wanted))
            for o in operators
        )

    def _activated(
        self,
        now_s: float,
        job: str,
        operators: tuple[_ScaledOperator, ...],
        memory: dict[str, dict[str, Any]],
    ) -> tuple[_ScaledOperator, ...] | None:
        """The operators with the median of what was wanted during the activation; None while it
        lasts.
        """
        if self.parameters.activation == 1:
            return operators
        since_s = now_s - (self.parameters.activation - 1) * self.parameters.interval_s
        past = [entry for entry in memory.get(job, {}).get("wanted", []) if entry[0] < now_s]
        # The newest entry from before the activation is kept: it shows that it is covered.
        old = sum(at_s <= since_s for at_s, _ in past)
        kept = [*past[max(0, old - 1) :], [now_s, {o.name: o.wanted for o in operators}]]
        memory[job] = {**memory.get(job, {}), "wanted": kept}
        if kept[0][0] > since_s:
            return None
        recent = [wanted for at_s, wanted in kept if at_s >= since_s]
        return tuple(
            replace(o, wanted=_median([wanted[o.name] for wanted in recent])) for o in operators
        )

    def _decision(
        self,
        scene: Scene,
        status: JobStatus,
        operators: Sequence[_ScaledOperator],
        changed: Mapping[str, int],
        behind: Sequence[_ScaledOperator],
        causes: tuple[str, ...],
    ) -> Decision:
        by_name = {operator.name: operator for operator in operators}
        grows = any(count > by_name[name].instances for name, count in changed.items())
        reason = BEHIND if grows else FEWER_SUFFICE if changed and not behind else BEHIND_AT_LIMIT
        shown = [by_name[name] for name in changed] + [o for o in behind if o.name not in changed]
        sentence = "; ".join(str(operator) for operator in shown)
        if changed:
            steps = (f"{n} {by_name[n].instances} → {count}" for n, count in changed.items())
            sentence += f": {', '.join(steps)}"
        if behind:
            short = (f"{o.name} {changed.get(o.name, o.instances)} of {o.wanted}" for o in behind)
            sentence += f". The limits leave {', '.join(short)}"
        numbers: dict[str, float | None] = {}
        for operator in shown:
            rate = operator.true_per_s
            numbers |= {
                f"{operator.name}.x": operator.x,
                f"{operator.name}.wanted_instances": operator.wanted,
                f"{operator.name}.instances": operator.instances,
                f"{operator.name}.wanted_input_per_s": operator.input_per_s,
                f"{operator.name}.true_rate_per_s": None if math.isnan(rate) else rate,
            }
        by_s = scene.now_s + (self.parameters.warm_up + 1) * self.parameters.interval_s
        return Decision(
            id=decision_id(scene, status.job),
            job=status.job,
            changes=(ParallelismChange(status.job, changed),) if changed else (),
            reason=reason,
            sentence=f"{sentence}.",
            numbers=numbers,
            causes=causes,
            # With fewer instances than it needs, a job is not expected to keep up.
            expects=None if behind else Expectation("juice", KEEPS_UP_JUICE, by_s, Sense.AT_LEAST),
        )


def _within_limits(
    status: JobStatus, operators: Sequence[_ScaledOperator], window: Window, free: FreeSlots
) -> dict[str, int]:
    """The parallelism that bounds and free slots allow, by operator. Slots that an operator gives
    back are free in the next round, as the guard has it.
    """
    counts = {o.name: min(o.instances, o.wanted) for o in operators}
    limits = {o.name: max(counts[o.name], min(o.wanted, o.max)) for o in operators}
    room = min(free.cluster, free.of_tenant(status.tenant))
    max_instances = window.jobs[status.job].bounds.max_instances
    if max_instances is not None:
        room = min(room, max_instances - status.allocation.instances)
    x = {o.name: o.x for o in operators}
    growing = [o.name for o in operators if limits[o.name] > o.instances]
    taken = 0
    while growing and taken < room:
        farthest_behind = max(growing, key=lambda name: x[name] / counts[name])
        counts[farthest_behind] += 1
        taken += 1
        growing = [name for name in growing if counts[name] < limits[name]]
    # For a job in mode advise nothing is done: its slots stay free for the next.
    if status.open:
        free.take(status.tenant, taken)
    return counts


def _rounded_up(x: float) -> int:
    return math.ceil(x - _ROUNDING)


def _median(counts: Sequence[int]) -> int:
    """The upper of the two middle ones, if there are two."""
    return sorted(counts)[len(counts) // 2]
