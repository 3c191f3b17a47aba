"""Knows the utility functions by name and checks their parameters.

A utility function maps a value and a threshold to a fraction of the maximum utility, in [0, 1]. It
is 1 where the threshold is met and never rises as the value gets worse (Henge, SoCC'18, section 4).

This module does not import numpy, so that a job file can be validated quickly. The functions
themselves are in `utility_functions`, which is imported when one is called.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from trilithon.errors import InvalidIntent, NotFound

if TYPE_CHECKING:
    from trilithon.model.utility_functions import Floats, Function


class Sense(StrEnum):
    """Whether a threshold is an upper or a lower bound."""

    AT_MOST = "at_most"
    AT_LEAST = "at_least"


Params = Mapping[str, float | tuple[tuple[float, float], ...]]


@dataclass(frozen=True, slots=True)
class Utility:
    """A utility function by name, with its parameters."""

    function: str = "knee"
    params: Params = field(default_factory=dict)


def number(params: Params, name: str, default: float) -> float:
    """A parameter that must be a single number."""
    value = params.get(name, default)
    if isinstance(value, tuple):
        raise InvalidIntent(f"The parameter {name!r} of a utility function must be a number.")
    return float(value)


class Utilities:
    """A registry of utility functions. The built-in ones cannot be replaced."""

    def __init__(self) -> None:
        self._registered: dict[str, Function] = {}

    def names(self) -> tuple[str, ...]:
        return (*_PARAMS, *self._registered)

    def register(self, name: str, function: "Function") -> None:
        """Register a function. One that rises as the value gets worse is refused."""
        if name in self.names():
            raise InvalidIntent(
                f"A utility function named {name!r} already exists.",
                "Register it under another name.",
            )
        from trilithon.model.utility_functions import check_monotone  # noqa: PLC0415 - numpy

        for sense in Sense:
            check_monotone(name, function, sense)
        self._registered[name] = function

    def fraction(
        self, utility: Utility, value: "Floats", threshold: "Floats | float", sense: Sense
    ) -> "Floats":
        """The fraction of the maximum utility, clipped to [0, 1]."""
        from trilithon.model.utility_functions import BUILT_IN, fraction  # noqa: PLC0415 - numpy

        function = BUILT_IN.get(utility.function) or self._registered.get(utility.function)
        if function is None:
            raise self._unknown(utility.function)
        return fraction(function, value, threshold, sense, utility.params)

    def _unknown(self, name: str) -> NotFound:
        return NotFound(
            f"There is no utility function named {name!r}.",
            f"Use one of: {', '.join(self.names())}.",
        )

    def check(self, utility: Utility, threshold: float, sense: Sense) -> None:
        """Refuse unknown parameters, and those for which the function would not be monotone."""
        if utility.function not in self.names():
            raise self._unknown(utility.function)
        allowed = _PARAMS.get(utility.function)
        if allowed is not None and (unknown := set(utility.params) - allowed):
            raise InvalidIntent(
                f"The utility function {utility.function!r} has no parameter "
                f"{', '.join(sorted(map(repr, unknown)))}.",
                f"It takes: {', '.join(sorted(allowed)) or 'none'}.",
            )
        for name, value in utility.params.items():
            if not isinstance(value, tuple) and not math.isfinite(value):
                raise InvalidIntent(f"The parameter {name!r} must be a finite number.")
        if utility.function == "linear":
            _check_zero_at(utility.params, threshold, sense)
        elif utility.function == "step" and not 0 <= number(utility.params, "otherwise", 0) <= 1:
            raise InvalidIntent("`otherwise` of a step utility must lie between 0 and 1.")
        elif utility.function == "lognormal" and number(utility.params, "spread", 1) <= 0:
            raise InvalidIntent("`spread` of a lognormal utility must be above 0.")
        elif utility.function == "piecewise":
            _check_points(utility.params, threshold, sense)
        elif utility.function in self._registered:
            import numpy as np  # noqa: PLC0415 - needed for user-defined functions only

            self.fraction(utility, np.array([threshold]), threshold, sense)


def _check_zero_at(params: Params, threshold: float, sense: Sense) -> None:
    zero_at = number(params, "zero_at", 2 * threshold if sense is Sense.AT_MOST else 0.0)
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
    values, fractions = zip(*points, strict=True)
    if not all(map(math.isfinite, (*values, *fractions))):
        raise InvalidIntent("The points of a piecewise utility must be finite numbers.")
    if any(right <= left for left, right in pairwise(values)):
        raise InvalidIntent("The values of `points` must rise from point to point.")
    if any(not 0 <= fraction <= 1 for fraction in fractions):
        raise InvalidIntent("The fractions of `points` must lie between 0 and 1.")
    rising = fractions if sense is Sense.AT_LEAST else fractions[::-1]
    if any(right < left for left, right in pairwise(rising)):
        change = "decrease" if sense is Sense.AT_LEAST else "increase"
        raise InvalidIntent(f"The fractions of `points` must not {change} for this threshold.")
    if _interpolate(threshold, values, fractions) != 1:
        raise InvalidIntent(
            f"At the threshold ({threshold:g}) the fraction of `points` must be 1.",
            "Meeting the threshold gives the maximum utility.",
        )


def _interpolate(value: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """As `numpy.interp`: flat beyond the first and the last point."""
    left = bisect_right(xs, value) - 1
    if left < 0 or left == len(xs) - 1 or xs[left] == value:
        return ys[max(0, left)]
    slope = (ys[left + 1] - ys[left]) / (xs[left + 1] - xs[left])
    return slope * (value - xs[left]) + ys[left]


# The built-in functions, each with the parameters that it takes.
_PARAMS: Final[dict[str, frozenset[str]]] = {
    "knee": frozenset(),
    "linear": frozenset({"zero_at"}),
    "step": frozenset({"otherwise"}),
    "piecewise": frozenset({"points"}),
    "lognormal": frozenset({"spread"}),
}

UTILITIES: Final = Utilities()
