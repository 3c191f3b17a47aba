"""What a call costs in CPU time, as a multiple of a loop that is timed beside it.

A busy machine may be ten times slower for seconds: a limit in seconds then fails for no reason, and
one with room for it finds nothing. Both the call and the loop get slower.
"""

import time
from collections.abc import Callable

TRIES = 5


def loop() -> None:
    """Takes about 15 ms on a machine of 2024."""
    sum(len(str(number)) for number in range(200_000))


def costs_at_most(loops: float, call: Callable[[], object], tries: int = TRIES) -> bool:
    """Whether the fastest of several calls takes no longer than so many of the fastest loops.
    A call that is cheap enough at once is not repeated.
    """
    call_s, loop_s = [], []
    for _ in range(tries):
        loop_s.append(cpu_s(loop))
        call_s.append(cpu_s(call))
        if min(call_s) <= loops * min(loop_s):
            return True
    return False


def cpu_s(call: Callable[[], object]) -> float:
    began_s = time.process_time()
    call()
    return time.process_time() - began_s
