"""Finds the fewest instances of a sequence's operators with which records wait little enough.

Latency guarantees, section IV-D, algorithm 1. With W(p) = a / (p − b) for each operator,

    minimise Σ pᵢ    so that    Σ Wᵢ(pᵢ) ≤ Ŵ    and    pᵢᵐⁱⁿ ≤ pᵢ ≤ pᵢᵐᵃˣ

Beginning with the minima, the operator whose next instance gains the most grows, so far that
another would gain more then (P_Δ), or that the limit is met (P_W). Each Wᵢ falls more slowly the
more instances there are, and every instance costs the same: no other way leads to the limit in
fewer steps.

The printed algorithm is mended in four places. Its a omits the coefficient e
(`measures/queueing.py` has it). Where two operators gain the same, P_Δ is the present number, and
it would loop for ever: a step is at least one instance. For p ≤ b its waiting is negative: here it
is infinite, and the search begins above b. P_Δ alone may go beyond the limit: the step is the
smaller of P_Δ and P_W.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trilithon.measures.queueing import WaitingCurve


@dataclass(frozen=True, slots=True)
class Balance:
    """The parallelism of a sequence's operators. If not even the maxima meet the limit, `feasible`
    is False and the parallelism is the maxima.
    """

    parallelism: tuple[int, ...]
    feasible: bool


def sequence_waiting(curves: Sequence[WaitingCurve], parallelism: Sequence[int]) -> float:
    """Seconds of waiting in all operators, one after the other (section IV-C2)."""
    return sum(curve.waiting(p) for curve, p in zip(curves, parallelism, strict=True))


def rebalance(
    curves: Sequence[WaitingCurve], limit_s: float, least: Sequence[int], most: Sequence[int]
) -> Balance:
    """Algorithm 1. Every `least` is at most its `most`."""
    if not sequence_waiting(curves, most) <= limit_s:
        return Balance(tuple(most), feasible=False)
    # Up to b instances there is no steady state; as the maxima have one, there is room above b.
    p = [max(low, curve.least) for curve, low in zip(curves, least, strict=True)]
    gains = [_gain(curve, count, top) for curve, count, top in zip(curves, p, most, strict=True)]
    while (total_s := sequence_waiting(curves, p)) > limit_s:
        grown = max(range(len(p)), key=gains.__getitem__)
        curve = curves[grown]
        # What the other operators leave for this one.
        left_s = limit_s - (total_s - curve.waiting(p[grown]))
        second = max((g for i, g in enumerate(gains) if i != grown), default=-math.inf)
        p[grown] = min(most[grown], _step(curve, p[grown], left_s, second))
        gains[grown] = _gain(curve, p[grown], most[grown])
    return Balance(tuple(p), feasible=True)


def _gain(curve: WaitingCurve, p: int, most: int) -> float:
    """How much one more instance gains; −∞ if the operator has all that it may have."""
    return curve.gain(p) if p < most else -math.inf


def _step(curve: WaitingCurve, p: int, left_s: float, second: float) -> int:
    """To how many instances the operator that gains the most grows: at least one more, until the
    next one gains as much (`second`), and no further than the limit asks for.
    """
    steps = [
        count
        for count in (curve.parallelism_for(left_s), curve.step_to(second))
        if count is not None
    ]
    return max(p + 1, min(steps, default=0))
