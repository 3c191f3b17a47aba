"""Compares things that were measured in turns: pairs of one round, means side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from scipy import stats

Measured = Mapping[str, float | None]
NOT_KNOWN = "n/a"
NOT_RESOLVED = "not resolved"


def in_turn(names: Sequence[str], round_: int) -> tuple[str, ...]:
    """The order of a round: forwards and backwards by turns, so that a drift of the machine favours
    nobody.
    """
    return tuple(names) if round_ % 2 == 0 else tuple(reversed(names))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval (Student's t); without bounds if there is one value only."""

    mean: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval | None":
        if not values:
            return None
        centre, n = mean(values), len(values)
        if n == 1:
            return cls(centre)
        half = float(stats.t.ppf(0.975, n - 1)) * stdev(values) / math.sqrt(n)
        return cls(centre, centre - half, centre + half)

    def at_most(self, goal: float) -> str:
        """Whether a goal is met or missed; one that is inside the interval is neither."""
        if self.low is None or self.high is None:
            return NOT_RESOLVED
        return "met" if self.high <= goal else "missed" if self.low > goal else NOT_RESOLVED

    def at_least(self, goal: float) -> str:
        if self.low is None or self.high is None:
            return NOT_RESOLVED
        return "met" if self.low >= goal else "missed" if self.high < goal else NOT_RESOLVED

    def text(self, form: str = ".2f", unit: str = "") -> str:
        between = ""
        if self.low is not None and self.high is not None:
            between = f" ({self.low:{form}} to {self.high:{form}})"
        return f"{self.mean:{form}}{between}{unit}"


def values_of(rounds: Sequence[Measured], figure: str) -> list[float]:
    """What is known of a figure."""
    return [value for one in rounds if (value := one.get(figure)) is not None]


def paired(
    ours: Sequence[Measured], theirs: Sequence[Measured], figure: str
) -> list[tuple[float, float]]:
    """The figure of both in each round in which both are known."""
    pairs = []
    for mine, other in zip(ours, theirs, strict=True):
        a, b = mine.get(figure), other.get(figure)
        if a is not None and b is not None:
            pairs.append((a, b))
    return pairs


def difference(
    ours: Sequence[Measured], theirs: Sequence[Measured], figure: str
) -> Interval | None:
    """How much more ours is, round by round."""
    return Interval.of([a - b for a, b in paired(ours, theirs, figure)])


def ratio(ours: Sequence[Measured], theirs: Sequence[Measured], figure: str) -> Interval | None:
    """Ours as a share of theirs, round by round."""
    return Interval.of([a / b for a, b in paired(ours, theirs, figure) if b])


def side_by_side(
    rounds: Mapping[str, Sequence[Measured]], rows: Mapping[str, str], width: int = 14
) -> dict[str, str]:
    """Means over the rounds, a column for each name and a row for each figure, with its format."""
    lines = {"": "".join(f"{name:>{width}}" for name in rounds)}
    for figure, form in rows.items():
        cells = []
        for measured in rounds.values():
            known = values_of(measured, figure)
            cells.append(f"{mean(known):{form}}" if known else NOT_KNOWN)
        lines[figure] = "".join(f"{cell:>{width}}" for cell in cells)
    return lines
