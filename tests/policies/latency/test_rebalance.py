"""Rebalance finds the fewest instances: compared with brute force over thousands of cases."""

from itertools import product

import numpy as np
import pytest

from trilithon.measures.queueing import WaitingCurve
from trilithon.policies.latency.rebalance import Balance, rebalance, sequence_waiting

CASES = 3_000
Case = tuple[list[WaitingCurve], float, list[int], list[int]]


def random_case(rng: np.random.Generator) -> Case:
    """One to four operators with up to 12 instances each, some without waiting, some alike, and
    with limits from far too short to never reached.
    """
    n = int(rng.integers(1, 5))
    a = 10 ** rng.uniform(-4, 1, n) * (rng.random(n) > 0.1)
    b = rng.uniform(0, 8, n)
    if rng.random() < 0.25:
        a[:], b[:] = a[0], b[0]
    if rng.random() < 0.1:
        b = np.round(b)
    least = rng.integers(1, 5, n)
    most = least + rng.integers(0, 12, n)
    curves = [WaitingCurve(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    return curves, float(10 ** rng.uniform(-4, 1.5)), least.tolist(), most.tolist()


def brute_force(case: Case) -> int | None:
    """The smallest sum of instances that meets the limit; None if none does."""
    curves, limit_s, least, most = case
    grid = np.array(list(product(*(range(lo, hi + 1) for lo, hi in zip(least, most, strict=True)))))
    a, b = np.array([c.a for c in curves]), np.array([c.b for c in curves])
    waiting = np.where(grid > b, a / np.where(grid > b, grid - b, 1), np.inf)
    good = grid[waiting.sum(axis=1) <= limit_s]
    return None if not len(good) else int(good.sum(axis=1).min())


def solved(case: Case) -> Balance:
    return rebalance(*case)


def test_over_thousands_of_random_cases_the_result_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(20150629)
    feasible = 0
    for number in range(CASES):
        case = random_case(rng)
        curves, limit_s, least, most = case
        best, found = brute_force(case), solved(case)
        assert found.feasible == (best is not None), number
        if best is None:
            assert list(found.parallelism) == most, number
            continue
        feasible += 1
        assert sum(found.parallelism) == best, number
        for low, p, high in zip(least, found.parallelism, most, strict=True):
            assert low <= p <= high, number
        assert sequence_waiting(curves, found.parallelism) <= limit_s, number
    # Neither kind of case is rare.
    assert CASES / 4 < feasible < 3 * CASES / 4


def test_the_faults_of_the_printed_algorithm_are_mended() -> None:
    """Equal gains would loop for ever, p ≤ b would wait less than nothing, and a step to where the
    next operator gains more may be farther than the limit asks for.
    """
    equal = [WaitingCurve(1.0, 0.5)] * 2
    assert rebalance(equal, 1.0, [1, 1], [9, 9]).parallelism == (3, 3)
    assert rebalance([WaitingCurve(1.0, 6.0)], 1.0, [2], [20]).parallelism == (7,)
    far = [WaitingCurve(10.0, 0.0), WaitingCurve(0.001, 0.0)]
    assert rebalance(far, 5.001, [1, 1], [99, 99]).parallelism == (2, 1)


def test_without_variation_the_fewest_are_those_with_a_steady_state() -> None:
    assert rebalance([WaitingCurve(0.0, 3.0)], 0.0, [1], [9]) == Balance((4,), feasible=True)


def test_a_large_operator_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variable steps: 500 instances are not reached one by one."""
    calls: list[float] = []
    original = WaitingCurve.step_to

    def counted(self: WaitingCurve, gain_s: float) -> int | None:
        calls.append(gain_s)
        return original(self, gain_s)

    monkeypatch.setattr(WaitingCurve, "step_to", counted)
    curves = [WaitingCurve(4.0, 100.0), WaitingCurve(0.02, 1.0)]
    found = rebalance(curves, 0.012, [1, 1], [2_000, 50])
    assert found.feasible
    assert sum(found.parallelism) > 400
    assert len(calls) < 60
