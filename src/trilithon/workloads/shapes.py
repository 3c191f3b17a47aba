"""Defines the shapes of load: records per second as a pure function of time.

A shape also knows its integral, the number of records that should have been sent by a moment: a
schedule read from it has no rounding that adds up, and after a stall it still says exactly what is
owed.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from random import Random

SPIKE_SHARE = 0.1


class Shape(ABC):
    """Time is in seconds since the start."""

    @property
    @abstractmethod
    def peak_per_s(self) -> float: ...

    @abstractmethod
    def rate_per_s(self, at_s: float) -> float: ...

    @abstractmethod
    def total(self, at_s: float) -> float:
        """Records wanted from the start up to a moment: the integral of the rate."""

    def totals(self, at_s: Sequence[float]) -> list[float]:
        """The same for several moments."""
        return list(map(self.total, at_s))


@dataclass(frozen=True, slots=True)
class Constant(Shape):
    """The same rate all the time."""

    low_per_s: float

    @property
    def peak_per_s(self) -> float:
        return self.low_per_s

    def rate_per_s(self, at_s: float) -> float:  # noqa: ARG002 - every shape is a function of time
        return self.low_per_s

    def total(self, at_s: float) -> float:
        return self.low_per_s * at_s

    def totals(self, at_s: Sequence[float]) -> list[float]:
        rate = self.low_per_s
        return [rate * moment_s for moment_s in at_s]


@dataclass(frozen=True, slots=True)
class _Between(Shape):
    """Two rates and a period: what the shapes with a peak share."""

    low_per_s: float
    high_per_s: float
    period_s: float

    @property
    def peak_per_s(self) -> float:
        return max(self.low_per_s, self.high_per_s)


@dataclass(frozen=True, slots=True)
class StepChange(_Between):
    """Low for one period, high from then on."""

    def rate_per_s(self, at_s: float) -> float:
        return self.low_per_s if at_s < self.period_s else self.high_per_s

    def total(self, at_s: float) -> float:
        before = min(at_s, self.period_s)
        return self.low_per_s * before + self.high_per_s * (at_s - before)


@dataclass(frozen=True, slots=True)
class Spike(_Between):
    """High in the last tenth of each period, low otherwise."""

    def rate_per_s(self, at_s: float) -> float:
        return self.low_per_s if at_s % self.period_s < self._calm_s else self.high_per_s

    def total(self, at_s: float) -> float:
        periods, within = divmod(at_s, self.period_s)
        calm = min(within, self._calm_s)
        low_s = periods * self._calm_s + calm
        return self.low_per_s * low_s + self.high_per_s * (at_s - low_s)

    @property
    def _calm_s(self) -> float:
        return self.period_s * (1 - SPIKE_SHARE)


@dataclass(frozen=True, slots=True)
class Ramp(_Between):
    """From low to high in one period, high from then on."""

    def rate_per_s(self, at_s: float) -> float:
        risen = min(at_s / self.period_s, 1.0)
        return self.low_per_s + (self.high_per_s - self.low_per_s) * risen

    def total(self, at_s: float) -> float:
        rising = min(at_s, self.period_s)
        mean = (self.low_per_s + self.rate_per_s(rising)) / 2
        return mean * rising + self.high_per_s * (at_s - rising)


@dataclass(frozen=True, slots=True)
class Sine(_Between):
    """A wave per period, from low up to high and back."""

    def rate_per_s(self, at_s: float) -> float:
        wave = (1 - math.cos(math.tau * at_s / self.period_s)) / 2
        return self.low_per_s + (self.high_per_s - self.low_per_s) * wave

    def total(self, at_s: float) -> float:
        turn = self.period_s / math.tau
        wave = (at_s - turn * math.sin(at_s / turn)) / 2
        return self.low_per_s * at_s + (self.high_per_s - self.low_per_s) * wave


@dataclass(frozen=True, slots=True)
class Trace(Shape):
    """The rows of a trace one after another, each for one period, and again from the first. The
    values are relative: their mean becomes the given rate.
    """

    mean_per_s: float
    values: Sequence[float]
    period_s: float
    _rates: tuple[float, ...] = field(init=False, repr=False)
    _totals: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        scale = self.mean_per_s * len(self.values) / sum(self.values)
        rates = tuple(value * scale for value in self.values)
        object.__setattr__(self, "_rates", rates)
        totals = accumulate((rate * self.period_s for rate in rates), initial=0.0)
        object.__setattr__(self, "_totals", tuple(totals))

    @property
    def peak_per_s(self) -> float:
        return max(self._rates)

    def rate_per_s(self, at_s: float) -> float:
        return self._rates[int(at_s // self.period_s) % len(self._rates)]

    def total(self, at_s: float) -> float:
        row, within = divmod(at_s, self.period_s)
        rounds, row = divmod(int(row), len(self._rates))
        return rounds * self._totals[-1] + self._totals[row] + self._rates[row] * within


@dataclass(frozen=True, slots=True)
class Phases(Shape):
    """Steps of equal length, then the last one for ever: PrimeTester's phases (Latency guarantees,
    section III-A) are a low rate, equal steps up to a peak, the peak, and equal steps down again.
    """

    rates_per_s: Sequence[float]
    period_s: float

    @classmethod
    def prime_tester(
        cls, low_per_s: float, high_per_s: float, steps: int, period_s: float
    ) -> "Phases":
        """Warm-up, increment, plateau, decrement. The plateau goes on with the peak of the last
        increment, for one more step.
        """
        rise = [low_per_s + (high_per_s - low_per_s) * i / steps for i in range(steps + 1)]
        return cls((*rise, rise[-1], *reversed(rise[:-1])), period_s)

    @property
    def peak_per_s(self) -> float:
        return max(self.rates_per_s)

    def rate_per_s(self, at_s: float) -> float:
        return self.rates_per_s[min(int(at_s // self.period_s), len(self.rates_per_s) - 1)]

    def total(self, at_s: float) -> float:
        full = min(int(at_s // self.period_s), len(self.rates_per_s) - 1)
        before = sum(self.rates_per_s[:full]) * self.period_s
        return before + self.rates_per_s[full] * (at_s - full * self.period_s)


@dataclass(frozen=True, slots=True)
class Pieces(Shape):
    """One rate from each of some moments on; the first holds from the start, the last for ever."""

    rates_per_s: Sequence[float]
    from_s: Sequence[float]
    _totals: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.from_s) != len(self.rates_per_s) or self.from_s[0] != 0:
            raise ValueError("a rate for each moment, the first of which is 0")
        spans = (b - a for a, b in pairwise(self.from_s))
        parts = (rate * span for rate, span in zip(self.rates_per_s, spans, strict=False))
        object.__setattr__(self, "_totals", tuple(accumulate(parts, initial=0.0)))

    @property
    def peak_per_s(self) -> float:
        return max(self.rates_per_s)

    def rate_per_s(self, at_s: float) -> float:
        return self.rates_per_s[bisect_right(self.from_s, at_s) - 1]

    def total(self, at_s: float) -> float:
        piece = bisect_right(self.from_s, at_s) - 1
        return self._totals[piece] + self.rates_per_s[piece] * (at_s - self.from_s[piece])


@dataclass(frozen=True, slots=True)
class Mmpp(Shape):
    """A Poisson stream whose rate jumps between two values after exponential times (a
    Markov-modulated Poisson process): bursts that nobody can foresee. The same seed gives the same
    bursts.
    """

    low_per_s: float
    high_per_s: float
    low_s: float
    high_s: float
    seed: int = 0
    _random: Random = field(init=False, repr=False, compare=False)
    # When the rate jumped, and how many records there were by then; from low, to high, to low …
    _jumps_s: list[float] = field(init=False, repr=False, compare=False)
    _totals: list[float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_random", Random(self.seed))  # noqa: S311 - load, no secret
        object.__setattr__(self, "_jumps_s", [0.0])
        object.__setattr__(self, "_totals", [0.0])

    @property
    def peak_per_s(self) -> float:
        return max(self.low_per_s, self.high_per_s)

    def rate_per_s(self, at_s: float) -> float:
        return self._rate(self._phase(at_s))

    def total(self, at_s: float) -> float:
        phase = self._phase(at_s)
        return self._totals[phase] + self._rate(phase) * (at_s - self._jumps_s[phase])

    def _rate(self, phase: int) -> float:
        return self.high_per_s if phase % 2 else self.low_per_s

    def _phase(self, at_s: float) -> int:
        """The number of jumps up to a moment. Draws those that nobody asked for yet, in order."""
        while self._jumps_s[-1] <= at_s:
            phase = len(self._jumps_s) - 1
            lasts_s = self._random.expovariate(1 / (self.high_s if phase % 2 else self.low_s))
            self._totals.append(self._totals[-1] + self._rate(phase) * lasts_s)
            self._jumps_s.append(self._jumps_s[-1] + lasts_s)
        return bisect_right(self._jumps_s, at_s) - 1
