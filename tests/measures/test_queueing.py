"""Waiting: Kingman's formula, the fitted model, its inverse, against brute force."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trilithon.measures.queueing import (
    OperatorLoad,
    WaitingCurve,
    WaitingModel,
    fitted_coefficient,
    kingman,
    smallest_parallelism,
)


def load(
    arrival: float = 80,
    service: float = 0.01,
    ca2: float = 1,
    cs2: float = 1,
    waiting: float = 0.04,
    p: float = 1,
) -> OperatorLoad:
    return OperatorLoad(*(np.array([float(x)]) for x in (arrival, service, ca2, cs2, waiting, p)))


def test_kingman_is_exact_for_a_single_memoryless_server() -> None:
    """M/M/1: W = ρ / (μ − λ) = 0.8 / 20."""
    assert kingman(load())[0] == pytest.approx(0.04)


def test_without_variation_nobody_waits() -> None:
    assert kingman(load(ca2=0, cs2=0))[0] == 0


def test_at_full_utilisation_there_is_no_end_to_waiting() -> None:
    assert kingman(load(arrival=100))[0] == np.inf
    assert np.isnan(fitted_coefficient(load(arrival=100))[0])


def test_the_coefficient_makes_the_model_exact_at_todays_parallelism() -> None:
    measured = load(waiting=0.1, p=3)
    assert fitted_coefficient(measured)[0] == pytest.approx(2.5)
    assert WaitingModel.fit(measured).waiting([3])[0] == pytest.approx(0.1)


def test_what_is_missing_stays_missing() -> None:
    model = WaitingModel.fit(load(waiting=float("nan")))
    assert np.isnan(model.waiting([4])[0])
    assert model.parallelism_for([0.1])[0] == 0
    assert smallest_parallelism(load(arrival=float("nan")), 0.8)[0] == 0


amounts = st.floats(1e-4, 50)


@given(amounts, st.floats(0, 30), st.floats(1e-4, 20))
def test_the_inverse_gives_the_smallest_parallelism_that_does(a: float, b: float, w: float) -> None:
    model = WaitingModel(np.array([a]), np.array([b]))
    p = int(model.parallelism_for([w])[0])
    assume(p < 10**6)
    assert model.waiting([p])[0] <= w
    assert p == 1 or model.waiting([p - 1])[0] > w


@given(amounts, st.floats(0, 30), st.floats(1e-4, 5))
def test_the_step_goes_where_one_more_gains_no_more_than_that(a: float, b: float, g: float) -> None:
    curve = WaitingCurve(a, b)
    p = curve.step_to(g)
    assert p is not None
    assert p > b
    assert curve.gain(p) <= g * (1 + 1e-6)
    assert p - 1 <= b or curve.gain(p - 1) >= g * (1 - 1e-6)


@given(amounts, st.floats(0, 30), st.floats(1e-4, 20), st.integers(1, 100))
def test_the_curve_of_one_operator_is_the_model_of_many(
    a: float, b: float, w: float, p: int
) -> None:
    curve, model = WaitingCurve(a, b), WaitingModel(np.array([a]), np.array([b]))
    assert curve.waiting(p) == model.waiting([p])[0]
    assert curve.parallelism_for(w) == model.parallelism_for([w])[0]
    assert curve.waiting(curve.least) < np.inf
    assert curve.least == 1 or curve.waiting(curve.least - 1) == np.inf


def test_a_curve_says_where_no_number_would_do() -> None:
    assert WaitingCurve(1.0, 2.0).parallelism_for(0.0) is None
    assert WaitingCurve(1.0, 2.0).parallelism_for(-1.0) is None
    assert WaitingCurve(1.0, 2.0).step_to(0.0) is None
    assert WaitingCurve(1.0, 2.0).gain(2) == np.inf
    assert WaitingCurve(0.0, 2.5).parallelism_for(0.0) == 3
    assert WaitingCurve(0.0, 2.5).step_to(0.0) == 3


@given(st.floats(0.1, 500), st.floats(1e-4, 0.5), st.integers(1, 20), st.floats(0.1, 1))
def test_the_smallest_parallelism_under_a_utilisation(
    arrival: float, service: float, p: int, bound: float
) -> None:
    needed = int(smallest_parallelism(load(arrival, service, p=p), bound)[0])
    work = arrival * service * p
    assert work / needed <= bound * (1 + 1e-6)
    assert needed == 1 or work / (needed - 1) > bound * (1 - 1e-6)
