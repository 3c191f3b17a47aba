"""Owns the utility functions: what a measured value is worth, as a share of the maximum.

A utility function maps a value and a threshold to a fraction in [0, 1]. It is 1 where the
threshold is met and never rises as the value gets worse (Henge, SoCC'18, section 4). The functions
take arrays, so that the utilities of a thousand jobs are a handful of numpy calls. A missing value
(NaN) has a missing utility.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import erfc

from trilithon.errors import InvalidIntent, NotFound

Floats = npt.NDArray[np.float64]


class Sense(StrEnum):
    """Which way is better."""

    AT_MOST = "at_most"
    AT_LEAST = "at_least"


Params = Mapping[str, float | tuple[tuple[float, float], ...]]
# Thresholds may be one for all values or one for each.
Function = Callable[[Floats, Floats | float, Sense, Params], Floats]


@dataclass(frozen=True, slots=True)
class Utility:
    """A utility function by name, with its parameters."""

    function: str = "knee"
    params: Params = field(default_factory=dict)


def _goodness(value: Floats, threshold: Floats | float, sense: Sense) -> Floats:
    """How well the threshold is met, as a ratio: 1 or more where it is, 0 in the worst case."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = threshold / value if sense is Sense.AT_MOST else value / threshold
    # A latency of 0, or below it by the error of clocks, meets every threshold.
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

    Left out, `zero_at` is twice the threshold for an upper bound and 0 for a lower one.
    """
    zero_at = params.get("zero_at", 2 * threshold if sense is Sense.AT_MOST else 0.0)
    fraction: Floats = (value - np.asarray(zero_at)) / (threshold - np.asarray(zero_at))
    return fraction


def step(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """1 where the threshold is met, `otherwise` (0 if left out) where it is not."""
    met = value <= threshold if sense is Sense.AT_MOST else value >= threshold
    otherwise = _number(params, "otherwise", 0.0)
    return np.where(np.isnan(value), np.nan, np.where(met, 1.0, otherwise))


def piecewise(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """Straight lines between `points` of (value, fraction), flat beyond the first and the last; 1 at
    the threshold.
    """
    del threshold, sense
    points = np.asarray(params["points"], dtype=float)
    fraction: Floats = np.interp(value, points[:, 0], points[:, 1])
    return fraction


def lognormal(value: Floats, threshold: Floats | float, sense: Sense, params: Params) -> Floats:
    """1 where the threshold is met, and beyond it the upper tail of a lognormal distribution whose
    median is the threshold: erfc(ln(1/goodness) / (spread·√2)), which is 1 at the threshold.
    """
    spread = _number(params, "spread", 1.0)
    with np.errstate(divide="ignore"):
        distance = -np.log(np.minimum(1.0, _goodness(value, threshold, sense)))
    tail: Floats = erfc(distance / (spread * np.sqrt(2.0)))
    return tail


def _number(params: Params, name: str, default: float) -> float:
    value = params.get(name, default)
    if isinstance(value, tuple):
        raise InvalidIntent(f"The parameter {name!r} of a utility function must be a number.")
    return float(value)


class Utilities:
    """The utility functions known by name. The built-in ones cannot be replaced."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = dict(_BUILT_IN)

    def names(self) -> tuple[str, ...]:
        return tuple(self._functions)

    def register(self, name: str, function: Function) -> None:
        """Adds a function after trying it: one that rises where it must not is refused."""
        if name in self._functions:
            raise InvalidIntent(
                f"A utility function named {name!r} exists.", "Register it under another name."
            )
        for sense in Sense:
            _try(name, function, sense)
        self._functions[name] = function

    def fraction(
        self, utility: Utility, value: Floats, threshold: Floats | float, sense: Sense
    ) -> Floats:
        """The share of the maximum utility, within [0, 1] whatever the function returns."""
        if (function := self._functions.get(utility.function)) is None:
            raise NotFound(
                f"There is no utility function named {utility.function!r}.",
                f"Use one of: {', '.join(self._functions)}.",
            )
        found = np.asarray(value, float)
        fraction = np.clip(function(found, threshold, sense, utility.params), 0, 1)
        return np.where(np.isnan(found), np.nan, fraction)

    def check(self, utility: Utility, threshold: float, sense: Sense) -> None:
        """Refuses parameters with which the function would not be monotone."""
        allowed = _PARAMS.get(utility.function)
        if allowed is not None and (unknown := set(utility.params) - allowed):
            raise InvalidIntent(
                f"The utility function {utility.function!r} has no parameter "
                f"{', '.join(sorted(map(repr, unknown)))}.",
                f"It takes: {', '.join(sorted(allowed)) or 'none'}.",
            )
        for name, given in utility.params.items():
            if not isinstance(given, tuple) and not np.isfinite(given):
                raise InvalidIntent(f"The parameter {name!r} must be a finite number.")
        if utility.function == "linear":
            _check_zero_at(utility.params, threshold, sense)
        elif utility.function == "step" and not 0 <= _number(utility.params, "otherwise", 0) <= 1:
            raise InvalidIntent("`otherwise` of a step is a fraction between 0 and 1.")
        elif utility.function == "lognormal" and _number(utility.params, "spread", 1) <= 0:
            raise InvalidIntent("`spread` of a lognormal must be above 0.")
        elif utility.function == "piecewise":
            _check_points(utility.params, threshold, sense)
        self.fraction(utility, np.array([threshold]), threshold, sense)


def _check_zero_at(params: Params, threshold: float, sense: Sense) -> None:
    zero_at = _number(params, "zero_at", 2 * threshold if sense is Sense.AT_MOST else 0.0)
    if sense is Sense.AT_MOST and zero_at <= threshold:
        raise InvalidIntent(
            f"`zero_at` ({zero_at:g}) must lie above the threshold ({threshold:g}).",
            "The utility falls from the threshold towards it.",
        )
    if sense is Sense.AT_LEAST and zero_at >= threshold:
        raise InvalidIntent(
            f"`zero_at` ({zero_at:g}) must lie below the threshold ({threshold:g}).",
            "The utility falls from the threshold towards it.",
        )


def _check_points(params: Params, threshold: float, sense: Sense) -> None:
    points = params.get("points")
    if not isinstance(points, tuple) or len(points) < 2 or any(len(point) != 2 for point in points):
        raise InvalidIntent("A piecewise utility needs `points`: two or more of [value, fraction].")
    values = np.array([point[0] for point in points], float)
    fractions = np.array([point[1] for point in points], float)
    if not (np.isfinite(values).all() and np.isfinite(fractions).all()):
        raise InvalidIntent("The points of a piecewise utility must be finite numbers.")
    if (np.diff(values) <= 0).any():
        raise InvalidIntent("The values of `points` must rise from point to point.")
    if (fractions < 0).any() or (fractions > 1).any():
        raise InvalidIntent("The fractions of `points` must lie between 0 and 1.")
    steps = np.diff(fractions) * (1 if sense is Sense.AT_LEAST else -1)
    if (steps < 0).any():
        way = "rise" if sense is Sense.AT_LEAST else "fall"
        raise InvalidIntent(f"The fractions of `points` may only {way} for this threshold.")
    if np.interp(threshold, values, fractions) != 1:
        raise InvalidIntent(
            f"At the threshold ({threshold:g}) the fraction of `points` must be 1.",
            "Meeting the threshold is worth everything.",
        )


def _try(name: str, function: Function, sense: Sense) -> None:
    threshold = 100.0
    grid = np.concatenate([[0.0], np.geomspace(1e-3, 1e6, 400), [threshold]])
    grid.sort()
    try:
        values = np.asarray(function(grid, np.full(len(grid), threshold), sense, {}), float)
    except (TypeError, ValueError) as error:
        raise InvalidIntent(
            f"The utility function {name!r} does not take arrays: {error}.",
            "Values and thresholds come as arrays of the same length.",
        ) from error
    fits = values.shape == grid.shape and not np.isnan(values).any()
    worse = np.diff(np.clip(values, 0, 1)) * (1 if sense is Sense.AT_MOST else -1)
    if not fits or (worse > 1e-12).any():
        raise InvalidIntent(
            f"The utility function {name!r} is not monotone for {sense.value!r}.",
            "It may never rise as the value gets worse, and needs a value for every input.",
        )


_BUILT_IN: Final[dict[str, Function]] = {
    "knee": knee,
    "linear": linear,
    "step": step,
    "piecewise": piecewise,
    "lognormal": lognormal,
}
_PARAMS: Final[dict[str, frozenset[str]]] = {
    "knee": frozenset(),
    "linear": frozenset({"zero_at"}),
    "step": frozenset({"otherwise"}),
    "piecewise": frozenset({"points"}),
    "lognormal": frozenset({"spread"}),
}

UTILITIES: Final = Utilities()
