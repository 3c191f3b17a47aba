"""Defines the clock of the controller, which is passed in wherever time is needed."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since 1970. It may jump, forwards and backwards."""


class SystemClock:
    def now_s(self) -> float:
        return time.time()
