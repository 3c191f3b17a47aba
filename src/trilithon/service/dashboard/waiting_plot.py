"""Draws measured over predicted waiting of an operator: a point for each adjustment of which the
policy `latency` checked the prediction. Above the diagonal, records waited longer than predicted.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trilithon.control.journal.rows import DecisionRow
from trilithon.service.dashboard.numbers import clock_time, milliseconds, number

# The decisions among which checked predictions are looked for.
SEARCHED_ROWS: Final = 400
# Of the drawing, in pixels, with its margins left and below.
SIZE: Final = 260
LEFT, BELOW = 58, 34
# What is shorter is drawn so: nobody notices a hundredth of a millisecond.
_LEAST_MS: Final = 0.01
_PREDICTED, _MEASURED = "predicted_for_load_ms", "measured_waiting_ms"


@dataclass(frozen=True, slots=True)
class WaitingPoint:
    """A checked prediction of an operator, and its place in the drawing."""

    id: str
    time: str
    instances: str
    predicted: str
    measured: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A power of ten, and its place on either axis."""

    text: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class WaitingPlot:
    """The points, the oldest first. Both axes are logarithmic and have the same ticks."""

    points: tuple[WaitingPoint, ...]
    ticks: tuple[Tick, ...]

    @property
    def width(self) -> int:
        return LEFT + SIZE

    @property
    def height(self) -> int:
        return SIZE + BELOW


def waiting_plot(decisions: Iterable[DecisionRow], operator: str) -> WaitingPlot | None:
    """The plot of an operator; None if no prediction for it was checked."""
    checked = [
        (row, values) for row in decisions if (values := _values(row.numbers, operator)) is not None
    ]
    if not checked:
        return None
    shown_ms = [max(value, _LEAST_MS) for _, values in checked for value in values]
    low, high = math.floor(math.log10(min(shown_ms))), math.ceil(math.log10(max(shown_ms)))
    decades = max(1, high - low)

    def along(value_ms: float) -> float:
        return SIZE * (math.log10(max(value_ms, _LEAST_MS)) - low) / decades

    points = tuple(
        WaitingPoint(
            row.id,
            clock_time(row.time_s),
            number(row.numbers.get(f"{operator}.instances")),
            milliseconds(predicted_ms),
            milliseconds(measured_ms),
            round(LEFT + along(predicted_ms), 1),
            round(SIZE - along(measured_ms), 1),
        )
        for row, (predicted_ms, measured_ms) in checked
    )
    ticks = tuple(
        Tick(
            milliseconds(10.0**n), round(LEFT + along(10.0**n), 1), round(SIZE - along(10.0**n), 1)
        )
        for n in range(low, low + decades + 1)
    )
    return WaitingPlot(points, ticks)


def _values(numbers: Mapping[str, float | None], operator: str) -> tuple[float, float] | None:
    predicted = numbers.get(f"{operator}.{_PREDICTED}")
    measured = numbers.get(f"{operator}.{_MEASURED}")
    return None if predicted is None or measured is None else (predicted, measured)
