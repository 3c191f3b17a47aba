"""Defines the clock of the controller, which is passed in wherever time is needed, and notices when
it is set.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

# A difference between the wall clock and the steady one that is no step: NTP slews it.
SET_S: Final = 1.0


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since 1970. It may jump, forwards and backwards."""


class SystemClock:
    def now_s(self) -> float:
        return time.time()


class ClockSteps:
    """Compares the clock with one that never jumps; without one it notices nothing."""

    def __init__(self, steady_s: Callable[[], float] | None) -> None:
        self._steady_s = steady_s
        self._before: tuple[float, float] | None = None

    def by_s(self, now_s: float) -> float:
        """By how much the clock was set since the last call; 0 if it was not."""
        if self._steady_s is None:
            return 0.0
        before, steady_s = self._before, self._steady_s()
        self._before = (now_s, steady_s)
        by_s = 0.0 if before is None else (now_s - before[0]) - (steady_s - before[1])
        return by_s if abs(by_s) >= SET_S else 0.0
