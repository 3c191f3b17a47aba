"""Utilities: the values that the papers print, and rules that hold for every function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import positive, senses, utilities, values
from trilithon.errors import InvalidIntent, NotFound
from trilithon.model.utility import UTILITIES, Params, Sense, Utilities, Utility, _interpolate
from trilithon.model.utility_functions import Floats


def worth(value: float, threshold: float, sense: Sense, utility: Utility | None = None) -> float:
    return float(UTILITIES.fraction(utility or Utility(), np.array([value]), threshold, sense)[0])


def test_the_knee_follows_equations_1_and_2_of_henge() -> None:
    assert worth(50, 100, Sense.AT_LEAST) == 0.5
    assert worth(150, 100, Sense.AT_LEAST) == 1
    assert worth(200, 100, Sense.AT_MOST) == 0.5
    assert worth(400, 100, Sense.AT_MOST) == 0.25  # hyperbolic, not linear
    assert worth(60, 100, Sense.AT_MOST) == 1


@given(
    st.lists(st.tuples(positive, st.floats(0, 1)), min_size=2, unique_by=lambda point: point[0]),
    positive,
)
def test_points_are_checked_with_the_line_that_is_drawn_later(
    points: list[tuple[float, float]], value: float
) -> None:
    xs, ys = zip(*sorted(points), strict=True)
    assert _interpolate(value, xs, ys) == np.interp(value, xs, ys)


def test_a_latency_of_zero_is_as_good_as_it_gets() -> None:
    assert worth(0, 100, Sense.AT_MOST) == 1


def test_the_other_functions_have_their_shapes() -> None:
    assert worth(150, 100, Sense.AT_MOST, Utility("linear")) == pytest.approx(0.5)
    assert worth(300, 100, Sense.AT_MOST, Utility("linear", {"zero_at": 500})) == pytest.approx(0.5)
    assert worth(0.45, 0.9, Sense.AT_LEAST, Utility("linear")) == pytest.approx(0.5)
    assert worth(101, 100, Sense.AT_MOST, Utility("step")) == 0
    assert worth(101, 100, Sense.AT_MOST, Utility("step", {"otherwise": 0.2})) == 0.2
    points = ((100.0, 1.0), (200.0, 0.4), (400.0, 0.0))
    assert worth(
        300, 100, Sense.AT_MOST, Utility("piecewise", {"points": points})
    ) == pytest.approx(0.2)
    assert worth(100, 100, Sense.AT_MOST, Utility("lognormal")) == 1
    # One spread beyond the median, a lognormal has 31.7 % in both tails.
    assert worth(100 * np.e, 100, Sense.AT_MOST, Utility("lognormal")) == pytest.approx(
        0.3173, abs=1e-4
    )


@given(st.data(), positive, senses)
def test_every_utility_is_monotone_and_within_its_bounds(
    data: st.DataObject, threshold: float, sense: Sense
) -> None:
    utility = data.draw(utilities(threshold, sense))
    UTILITIES.check(utility, threshold, sense)
    grid = np.sort(np.array(data.draw(st.lists(values, min_size=2, max_size=30))))
    fractions = UTILITIES.fraction(utility, grid, threshold, sense)
    assert ((fractions >= 0) & (fractions <= 1)).all()
    steps = np.diff(fractions)
    assert (steps <= 1e-12).all() if sense is Sense.AT_MOST else (steps >= -1e-12).all()


@given(st.data(), positive, senses)
def test_meeting_the_threshold_gives_everything(
    data: st.DataObject, threshold: float, sense: Sense
) -> None:
    utility = data.draw(utilities(threshold, sense))
    better = threshold * (0.5 if sense is Sense.AT_MOST else 2)
    assert worth(threshold, threshold, sense, utility) == pytest.approx(1)
    assert worth(better, threshold, sense, utility) == pytest.approx(1)


@given(st.data(), positive, senses)
def test_a_missing_value_has_a_missing_utility(
    data: st.DataObject, threshold: float, sense: Sense
) -> None:
    utility = data.draw(utilities(threshold, sense))
    assert np.isnan(worth(float("nan"), threshold, sense, utility))


def test_many_thresholds_at_once_are_the_same_as_one_by_one() -> None:
    value, threshold = np.array([50.0, 150.0, 400.0]), np.array([100.0, 100.0, 200.0])
    for name in ("knee", "linear", "step", "lognormal"):
        together = UTILITIES.fraction(Utility(name), value, threshold, Sense.AT_MOST)
        alone = [
            worth(v, t, Sense.AT_MOST, Utility(name)) for v, t in zip(value, threshold, strict=True)
        ]
        assert together == pytest.approx(alone)


def test_a_registered_function_is_found_by_its_name() -> None:
    def cubic(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
        ratio = threshold / np.maximum(value, 1e-9) if sense is Sense.AT_MOST else value / threshold
        return np.minimum(1.0, ratio) ** 3

    mine = Utilities()
    mine.register("cubic", cubic)
    assert mine.fraction(Utility("cubic"), np.array([200.0]), 100, Sense.AT_MOST)[0] == 0.125
    with pytest.raises(NotFound, match="cubic"):
        UTILITIES.fraction(Utility("cubic"), np.array([1.0]), 100, Sense.AT_MOST)


def test_a_function_that_rises_where_it_must_not_is_refused() -> None:
    def wrong(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
        return np.minimum(1.0, value / threshold)

    with pytest.raises(InvalidIntent, match="not monotone for 'at_most'"):
        Utilities().register("wrong", wrong)
    with pytest.raises(InvalidIntent, match="exists"):
        Utilities().register("knee", wrong)


@pytest.mark.parametrize(
    ("utility", "sense", "said"),
    [
        (Utility("linear", {"zero_at": 50}), Sense.AT_MOST, "above the threshold"),
        (Utility("linear", {"zero_at": 150}), Sense.AT_LEAST, "below the threshold"),
        (Utility("step", {"otherwise": 2}), Sense.AT_MOST, "between 0 and 1"),
        (Utility("lognormal", {"spread": 0}), Sense.AT_MOST, "above 0"),
        (Utility("knee", {"slope": 1}), Sense.AT_MOST, "no parameter 'slope'"),
        (Utility("piecewise"), Sense.AT_MOST, "needs `points`"),
        (Utility("piecewise", {"points": ((1.0, 0.0), (2.0, 1.0))}), Sense.AT_MOST, "not increase"),
        (
            Utility("piecewise", {"points": ((1.0, 1.0), (2.0, 0.0))}),
            Sense.AT_LEAST,
            "not decrease",
        ),
        (Utility("piecewise", {"points": ((2.0, 1.0), (1.0, 0.0))}), Sense.AT_MOST, "must rise"),
        (
            Utility("piecewise", {"points": ((1.0, 3.0), (2.0, 0.0))}),
            Sense.AT_MOST,
            "between 0 and 1",
        ),
    ],
)
def test_parameters_that_make_no_sense_are_refused(
    utility: Utility, sense: Sense, said: str
) -> None:
    with pytest.raises(InvalidIntent, match=said):
        UTILITIES.check(utility, 100, sense)
