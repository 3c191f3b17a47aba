"""Defines the utility functions over arrays, so that the utilities of a thousand jobs take a few
numpy calls. A missing value (NaN) has a missing utility.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from trilithon.errors import InvalidIntent
from trilithon.model.utility import Params, Sense, number

Floats = npt.NDArray[np.float64]
# The threshold is either one number for all values, or an array with one for each.
Function = Callable[[Floats, Floats | float, Sense, Params], Floats]


def fraction(
    function: Function, value: Floats, threshold: Floats | float, sense: Sense, params: Params
) -> Floats:
    """The fraction of the maximum utility, clipped to [0, 1]."""
    values = np.asarray(value, float)
    fractions = np.clip(function(values, threshold, sense, params), 0, 1)
    return np.where(np.isnan(values), np.nan, fractions)


def _goodness(value: Floats, threshold: Floats | float, sense: Sense) -> Floats:
    """How well the threshold is met, as a ratio: 1 or more if it is met, 0 at worst."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = threshold / value if sense is Sense.AT_MOST else value / threshold
    # A latency of 0, or a negative one due to clock errors, meets every threshold.
    good: Floats = np.where((value <= 0) & (sense is Sense.AT_MOST), np.inf, ratio)
    return good


def knee(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """Equations 1 and 2: min(1, x/threshold) for throughput and juice, min(1, threshold/x) for
    latency, which is hyperbolic below the plateau.
    """
    del params
    fraction: Floats = np.minimum(1.0, _goodness(value, threshold, sense))
    return fraction


def linear(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """1 at the threshold, falling in a straight line to 0 at `zero_at`.

    By default `zero_at` is twice the threshold for an upper bound and 0 for a lower one.
    """
    zero_at = params.get("zero_at", 2 * threshold if sense is Sense.AT_MOST else 0.0)
    fraction: Floats = (value - np.asarray(zero_at)) / (threshold - np.asarray(zero_at))
    return fraction


def step(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """1 if the threshold is met, else `otherwise` (default 0)."""
    met = value <= threshold if sense is Sense.AT_MOST else value >= threshold
    otherwise = number(params, "otherwise", 0.0)
    return np.where(np.isnan(value), np.nan, np.where(met, 1.0, otherwise))


def piecewise(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """Straight lines between `points` of (value, fraction), constant beyond the first and the last;
    1 at the threshold.
    """
    del threshold, sense
    points = np.asarray(params["points"], dtype=float)
    fraction: Floats = np.interp(value, points[:, 0], points[:, 1])
    return fraction


def lognormal(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """1 if the threshold is met, and beyond it the upper tail of a lognormal distribution whose
    median is the threshold: erfc(ln(1/goodness) / (spread·√2)), which is 1 at the threshold.
    """
    # Importing scipy takes half a second, and only this function needs it.
    from scipy.special import erfc  # noqa: PLC0415

    spread = number(params, "spread", 1.0)
    with np.errstate(divide="ignore"):
        distance = -np.log(np.minimum(1.0, _goodness(value, threshold, sense)))
    tail: Floats = erfc(distance / (spread * np.sqrt(2.0)))
    return tail


def check_monotone(name: str, function: Function, sense: Sense) -> None:
    """Refuse a function that rises as the value gets worse, or gives NaN for some value."""
    threshold = 100.0
    grid = np.concatenate([[0.0], np.geomspace(1e-3, 1e6, 400), [threshold]])
    grid.sort()
    try:
        values = np.asarray(function(grid, np.full(len(grid), threshold), sense, {}), float)
    except (TypeError, ValueError) as error:
        raise InvalidIntent(
            f"The utility function {name!r} does not take arrays: {error}.",
            "It is called with arrays of values and thresholds of the same length.",
        ) from error
    complete = values.shape == grid.shape and not np.isnan(values).any()
    rise = np.diff(np.clip(values, 0, 1)) * (1 if sense is Sense.AT_MOST else -1)
    if not complete or (rise > 1e-12).any():
        raise InvalidIntent(
            f"The utility function {name!r} is not monotone for {sense.value!r}.",
            "It must not rise as the value gets worse, and must return a number for every value.",
        )


BUILT_IN: Final[dict[str, Function]] = {
    "knee": knee,
    "linear": linear,
    "step": step,
    "piecewise": piecewise,
    "lognormal": lognormal,
}
