"""Plans the parallelism of a job's constrained operators: ScaleReactively and ResolveBottlenecks.

Latency guarantees, sections IV-E and IV-F, algorithm 2. Constraints are planned one after the
other, and what one needs is the minimum of the next. A sequence without bottleneck is rebalanced.
In one with bottlenecks the model does not hold: each of them gets

    p* = min(pmax, max(2p, 2·λ·p·S))                                              (equation 10)

and its other operators keep what they have.

Chosen: Rebalance leads no operator above `highest_utilisation`, so that it does not make the next
bottleneck. A promise that task latencies, batching and transport alone break is out of reach of
any parallelism: its operators keep what they have, where the paper would give them the maximum.
A sequence of which a number is missing keeps its operators as they are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trilithon.measures.queueing import WaitingCurve
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.measured_waiting import (
    MeasuredWaiting,
    without_vain_scale_downs,
)
from trilithon.policies.latency.rebalance import rebalance
from trilithon.policies.latency.sequence import ConstrainedOperator, ConstrainedSequence


class Technique(StrEnum):
    """What was done about a sequence."""

    REBALANCE = "rebalance"
    RESOLVE_BOTTLENECKS = "resolve_bottlenecks"
    WORK_OFF_QUEUES = "work_off_queues"  # what was measured is that of a queue that shrinks
    INFEASIBLE = "infeasible"  # not even the maxima keep the promise
    OUT_OF_REACH = "out_of_reach"  # no parallelism could


@dataclass(frozen=True, eq=False)
class SequencePlan:
    """What a sequence needs, by operator. Where bottlenecks make the model unusable, there are no
    curves.
    """

    sequence: ConstrainedSequence
    technique: Technique
    wanted: Mapping[str, int]
    waiting_limit_s: float
    bottlenecks: tuple[ConstrainedOperator, ...] = ()
    curves: tuple[WaitingCurve, ...] = ()

    def coefficient_of(self, operator: ConstrainedOperator) -> float | None:
        """The e that the model uses for an operator; None without a model."""
        for each, curve in zip(self.sequence.operators, self.curves, strict=False):
            if each is operator and operator.coefficient is not None:
                return curve.waiting(operator.instances) / operator.kingman_s
        return None

    def predicted_s(self, counts: Mapping[str, int]) -> dict[str, float]:
        """The predicted waiting for each operator at these instances; empty without a model."""
        return {
            operator.name: curve.waiting(counts.get(operator.name, operator.instances))
            for operator, curve in zip(self.sequence.operators, self.curves, strict=False)
            if operator.edge is not None
        }


@dataclass(frozen=True, eq=False)
class JobPlan:
    """What all constraints of a job need together, in the order of the constraints."""

    sequences: tuple[SequencePlan, ...]
    now: Mapping[str, int]
    wanted: Mapping[str, int]

    @property
    def raised(self) -> dict[str, int]:
        return {name: n for name, n in self.wanted.items() if n > self.now[name]}

    @property
    def changed(self) -> dict[str, int]:
        return {name: n for name, n in self.wanted.items() if n != self.now[name]}


def scale_reactively(
    sequences: Sequence[ConstrainedSequence],
    keep: Iterable[str],
    now: Mapping[str, int],
    parameters: LatencyParameters,
    *,
    adaptive: bool = False,
    measured: Sequence[MeasuredWaiting] = (),
) -> JobPlan:
    """Algorithm 2. `keep` are operators of sequences that were not measured: they are not lowered.
    Operators in no constraint are not touched. `adaptive`: batching gives way to waiting.
    `measured` is what is remembered against scaling down in vain.
    """
    wanted = {name: now[name] for name in keep if name in now}
    plans: list[SequencePlan] = []
    for sequence in sequences:
        plan = _plan_sequence(sequence, wanted, parameters, measured, adaptive=adaptive)
        plans.append(plan)
        for name, count in plan.wanted.items():
            wanted[name] = max(wanted.get(name, 0), count)
    return JobPlan(tuple(plans), dict(now), wanted)


def _plan_sequence(
    sequence: ConstrainedSequence,
    minima: Mapping[str, int],
    parameters: LatencyParameters,
    measured: Sequence[MeasuredWaiting],
    *,
    adaptive: bool,
) -> SequencePlan:
    share = parameters.waiting_share if adaptive else parameters.waiting_share_alone
    limit_s = sequence.waiting_limit_s(share, adaptive=adaptive)
    bottlenecks = sequence.bottlenecks(parameters.bottleneck)
    present = {o.name: o.instances for o in sequence.operators}
    if bottlenecks:
        wanted = present | {o.name: resolved(o) for o in bottlenecks}
        technique = Technique.RESOLVE_BOTTLENECKS
        return SequencePlan(sequence, technique, wanted, limit_s, bottlenecks)
    if any(o.draining for o in sequence.operators):
        wanted = {o.name: worked_off(o, parameters.interval_s) for o in sequence.operators}
        return SequencePlan(sequence, Technique.WORK_OFF_QUEUES, wanted, limit_s)
    curves = tuple(o.curve(parameters.least_coefficient) for o in sequence.operators)
    if limit_s <= 0:
        return SequencePlan(sequence, Technique.OUT_OF_REACH, present, limit_s, (), curves)
    most = [o.most for o in sequence.operators]
    # A wait of just the limit keeps it, however the last digit was rounded.
    limit_s *= 1 + 1e-9
    balance = rebalance(curves, limit_s, minima_of(sequence, minima, parameters), most)
    counts, curves = without_vain_scale_downs(
        sequence.operators, curves, balance.parallelism, limit_s, measured
    )
    wanted = dict(zip(present, counts, strict=True))
    technique = Technique.REBALANCE if balance.feasible else Technique.INFEASIBLE
    return SequencePlan(sequence, technique, wanted, limit_s, (), curves)


def worked_off(operator: ConstrainedOperator, interval_s: float) -> int:
    """Enough instances for the load and for what is left of the queue within an interval, and no
    fewer than there are.
    """
    needed = math.ceil(operator.work + operator.queue * operator.service_s / interval_s)
    return max(operator.instances, min(operator.most, needed))


def resolved(operator: ConstrainedOperator) -> int:
    """Equation 10: at least twice as many instances, and twice as many as would be busy."""
    doubled = max(2 * operator.instances, math.ceil(2 * operator.work - 1e-9))
    return max(operator.instances, min(operator.most, doubled))


def minima_of(
    sequence: ConstrainedSequence, minima: Mapping[str, int], parameters: LatencyParameters
) -> list[int]:
    """Pmin: the operators' own minima, what earlier constraints need, and enough instances for the
    highest utilisation. An operator that is a little above that and no bottleneck may stay so: a
    load at the bound would add an instance and take it away in turn.
    """
    highest = parameters.highest_utilisation
    return [
        min(
            o.most,
            max(o.least, minima.get(o.name, 0), min(o.instances, math.ceil(o.work / highest))),
        )
        for o in sequence.operators
    ]


@dataclass(frozen=True)
class SlotRoom:
    """How many instances a job may get beyond those it has, and what limits it."""

    count: float = math.inf
    limit: str = ""


@dataclass(frozen=True, eq=False)
class LimitedPlan:
    """The parallelism that free slots allow, and by how many instances each operator is short."""

    wanted: Mapping[str, int]
    short: Mapping[str, int] = field(default_factory=dict)


def within_room(plan: JobPlan, room: SlotRoom) -> LimitedPlan:
    """Gives scarce slots one by one: to bottlenecks first, then where one more instance saves the
    most waiting. Fewer instances are not affected.
    """
    raised = plan.raised
    if sum(n - plan.now[name] for name, n in raised.items()) <= room.count:
        return LimitedPlan(plan.wanted)
    counts = dict(plan.wanted) | {name: plan.now[name] for name in raised}
    for _ in range(max(0, int(room.count))):
        growing = [name for name in raised if counts[name] < raised[name]]
        best = max(growing, key=lambda name: _gain_s(plan, name, counts))
        counts[best] += 1
    short = {name: raised[name] - counts[name] for name in raised if counts[name] < raised[name]}
    return LimitedPlan(counts, short)


def _gain_s(plan: JobPlan, name: str, counts: Mapping[str, int]) -> float:
    """How much waiting one more instance saves, in the sequence in which it saves the most."""
    gains = [0.0]
    for each in plan.sequences:
        if any(o.name == name for o in each.bottlenecks):
            return math.inf
        more = dict(counts) | {name: counts[name] + 1}
        before, after = each.predicted_s(counts).get(name), each.predicted_s(more).get(name)
        if before is not None and after is not None:
            gains.append(math.inf if math.isinf(before) else before - after)
    return max(gains)
