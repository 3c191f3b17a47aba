"""Limits the rate of requests: a bucket of tries per caller, which fills again by itself."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from trilithon.errors import TooManyRequests

PER_S: Final = 100.0
BURST: Final = 400.0
# Callers beyond that forget the one who was not seen for the longest time.
MAX_CALLERS: Final = 10_000


class RateLimiter:
    """Counts requests by caller. Each has `burst` tries and gets `per_s` more each second."""

    def __init__(
        self,
        per_s: float = PER_S,
        burst: float = BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.per_s, self.burst, self._clock = per_s, burst, clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, caller: str) -> None:
        """Takes one try of a caller, or refuses the request."""
        now_s = self._clock()
        with self._lock:
            left, at_s = self._left.pop(caller, (self.burst, now_s))
            left = min(self.burst, left + (now_s - at_s) * self.per_s)
            self._left[caller] = (max(0.0, left - 1.0), now_s)
            if len(self._left) > MAX_CALLERS:
                self._left.popitem(last=False)
        if left < 1.0:
            raise TooManyRequests(
                f"More than {self.per_s:g} requests per second.",
                "Wait a second; use /api/v1/events instead of polling.",
                retry_after_s=(1.0 - left) / self.per_s,
            )
