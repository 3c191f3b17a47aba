"""The shapes of load: rates over time, and schedules that add up to them."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilithon.workloads.shapes import (
    Constant,
    Mmpp,
    Phases,
    Pieces,
    Ramp,
    Shape,
    Sine,
    Spike,
    StepChange,
    Trace,
)

rates = st.floats(0.1, 1e5)
periods = st.floats(0.5, 100)
pieces = st.lists(st.tuples(rates, st.floats(0.1, 50)), min_size=1, max_size=9).map(
    lambda found: Pieces(
        [rate for rate, _ in found], [0.0, *accumulate(span for _, span in found[1:])]
    )
)
SHAPES = st.one_of(
    pieces,
    st.builds(Constant, rates),
    *(st.builds(kind, rates, rates, periods) for kind in (StepChange, Spike, Ramp, Sine)),
    st.builds(Trace, rates, st.lists(st.floats(1, 1e4), min_size=1, max_size=24), periods),
    st.builds(Phases, st.lists(rates, min_size=1, max_size=24), periods),
)


@given(SHAPES, st.floats(0.1, 300))
def test_the_schedule_is_the_integral_of_the_rate(shape: Shape, end_s: float) -> None:
    steps = 4000
    width = end_s / steps
    numeric = sum(shape.rate_per_s((i + 0.5) * width) for i in range(steps)) * width
    # Each jump of the rate costs the sum at most one step at the peak.
    jumps = 2 * end_s / getattr(shape, "period_s", end_s) + 10
    assert shape.total(end_s) == pytest.approx(
        numeric, abs=shape.peak_per_s * width * jumps, rel=1e-3
    )


@given(SHAPES, st.floats(0, 300), st.floats(0, 10))
def test_a_schedule_starts_at_nothing_and_never_runs_back(
    shape: Shape, at_s: float, more_s: float
) -> None:
    assert shape.total(0.0) == 0
    slack = 1e-6 * (1 + shape.total(at_s))
    grown = shape.total(at_s + more_s) - shape.total(at_s)
    assert -slack <= grown <= shape.peak_per_s * more_s + slack
    assert 0 <= shape.rate_per_s(at_s) <= shape.peak_per_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (Constant(5), [5, 5, 5, 5]),
        (StepChange(1, 9, 10), [1, 1, 9, 9]),
        (Spike(1, 9, 10), [1, 9, 1, 1]),
        (Ramp(1, 9, 10), [1, 8.6, 9, 9]),
        (Sine(1, 9, 20), [1, 8.951, 9, 5]),
        (Trace(10, [1, 3], 10), [5, 5, 15, 15]),
        (Pieces([2, 7, 1], [0, 9, 12]), [2, 7, 7, 1]),
        (Phases([1, 9], 10), [1, 1, 9, 9]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_shape_is_what_its_name_says(shape: Shape, expected: list[float]) -> None:
    found = [shape.rate_per_s(at_s) for at_s in (0.0, 9.5, 10.0, 15.0)]
    assert found == pytest.approx(expected, abs=0.001)


def test_a_trace_keeps_its_mean_and_begins_again() -> None:
    shape = Trace(100, [10, 0, 30, 40], 60)
    assert shape.total(240) == pytest.approx(100 * 240)
    assert shape.total(480) == pytest.approx(2 * shape.total(240))
    assert shape.rate_per_s(70) == 0
    assert shape.rate_per_s(241) == shape.rate_per_s(1) == pytest.approx(50)


def test_the_phases_of_prime_tester_rise_and_fall_in_equal_steps() -> None:
    shape = Phases.prime_tester(10, 40, 3, 60)
    assert shape.rates_per_s == (10, 20, 30, 40, 40, 30, 20, 10)
    assert shape.rate_per_s(10_000) == 10
    assert shape.total(8 * 60) == pytest.approx(200 * 60)


def test_bursts_come_again_with_the_same_seed_and_keep_their_mean() -> None:
    bursts, same, others = Mmpp(10, 100, 30, 10, 4), Mmpp(10, 100, 30, 10, 4), Mmpp(10, 100, 30, 10)
    # Asked for in another order, the answer is the same.
    late = same.total(50_000)
    assert [same.total(t) for t in (10, 500, 900)] == [bursts.total(t) for t in (10, 500, 900)]
    assert bursts.total(50_000) == late != others.total(50_000)
    assert {bursts.rate_per_s(t) for t in range(1000)} == {10, 100}
    assert late / 50_000 == pytest.approx((10 * 30 + 100 * 10) / 40, rel=0.1)


@given(SHAPES, st.lists(st.floats(0, 300), max_size=9))
def test_several_moments_have_the_totals_of_each(shape: Shape, at_s: list[float]) -> None:
    assert shape.totals(at_s) == [shape.total(moment_s) for moment_s in at_s]
