"""Remembers how long records waited with each number of instances, against scaling down in vain.

The model takes the variation of arrivals at an instance to be the same at any parallelism. Senders
deal records out in turn, so arrivals are the less regular the fewer instances there are, and fewer
of them make records wait longer than the model says. What was measured with fewer instances knows
better. It is kept as a factor,

    f = W · (1 − ρ) / (ρ · S)        W(p*) = f · b · S / (p* − b)

Kingman's (c²_A + c²_S)/2 times e. So it holds for the load of now, however that has changed since.
An operator is not lowered to p* instances if, with the largest factor lately measured with p* up to
its present instances, records would wait too long. Each factor is the average of its windows, of
which the latest counts half: that of a single window of a few seconds varies much.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from trilithon.measures.queueing import WaitingCurve
from trilithon.policies.latency.sequence import ConstrainedOperator, ConstrainedSequence


@dataclass(frozen=True, slots=True)
class MeasuredWaiting:
    """The factor of an operator behind an edge with a number of instances, and when it was last
    measured.
    """

    operator: str
    edge: str
    instances: int
    factor: float
    at_s: float

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{f.name: data[f.name] for f in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def key(self) -> tuple[str, str, int]:
        return self.operator, self.edge, self.instances


def with_measured(
    past: Iterable[MeasuredWaiting],
    sequences: Iterable[ConstrainedSequence],
    now_s: float,
    keep_s: float,
    bottleneck: float,
) -> list[MeasuredWaiting]:
    """What is remembered, with what was measured now. Windows without a steady state do not count:
    those of bottlenecks, and those in which a queue is worked off.
    """
    known = {each.key: each for each in past if now_s - each.at_s < keep_s}
    steady = {
        (o.name, o.edge, o.instances): o
        for sequence in sequences
        for o in sequence.operators
        if o.edge is not None and 0 < o.utilisation < bottleneck and not o.draining
    }
    for key, operator in steady.items():
        rho = operator.utilisation
        factor = operator.waiting_s * (1 - rho) / (rho * operator.service_s)
        before = known[key].factor if key in known else factor
        known[key] = MeasuredWaiting(*key, (before + factor) / 2, now_s)
    return list(known.values())


def without_vain_scale_downs(
    operators: Sequence[ConstrainedOperator],
    curves: Sequence[WaitingCurve],
    counts: Sequence[int],
    limit_s: float,
    measured: Sequence[MeasuredWaiting],
) -> tuple[tuple[int, ...], tuple[WaitingCurve, ...]]:
    """The instances that Rebalance wants, with as many more of those that it would take away as it
    takes to keep the limit by what was measured; and the curves that say so.
    """
    wanted = list(counts)
    while True:
        cautious = tuple(
            _cautious(curve, operator, count, measured)
            for curve, operator, count in zip(curves, operators, wanted, strict=True)
        )
        lowered = [i for i, operator in enumerate(operators) if wanted[i] < operator.instances]
        waiting_s = sum(curve.waiting(p) for curve, p in zip(cautious, wanted, strict=True))
        if not lowered or waiting_s <= limit_s:
            return tuple(wanted), cautious
        wanted[max(lowered, key=lambda i: cautious[i].gain(wanted[i]))] += 1


def _cautious(
    curve: WaitingCurve,
    operator: ConstrainedOperator,
    lowest: int,
    measured: Sequence[MeasuredWaiting],
) -> WaitingCurve:
    """The curve of an operator that would be lowered: with the largest factor that was measured
    from there up to its present instances, if that is more.
    """
    if lowest >= operator.instances:
        return curve
    factors = [
        each.factor
        for each in measured
        if (each.operator, each.edge) == (operator.name, operator.edge)
        and lowest <= each.instances <= operator.instances
    ]
    a = max(factors, default=0.0) * operator.work * operator.service_s
    return WaitingCurve(max(curve.a, a), curve.b)
