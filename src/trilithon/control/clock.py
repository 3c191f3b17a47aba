"""Owns the time of the controller: whoever needs it is given a clock."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since 1970. It may jump, forwards and backwards."""


class SystemClock:
    def now_s(self) -> float:
        return time.time()
