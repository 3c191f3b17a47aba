"""Defines failpoints: where a test can kill the daemon, to see how it recovers.

Every write to the journal has three (before, written but not committed, committed), and every call
that changes an engine has two. Unarmed, a failpoint costs a comparison.
"""

import os
import signal
from typing import Final

WRITES: Final = (
    "accept",
    "wish",
    "mode",
    "request",
    "adopt",
    "round",
    "start",
    "end",
    "settle",
    "spec",
    "gone",
    "cost",
    "came",
    "series",
    "trim",
    "recover",
)
CALLS: Final = ("submit", "cancel", "reallocate", "replace", "one_shot")
POINTS: Final = (
    *(f"journal.{name}.{when}" for name in WRITES for when in ("before", "inside", "after")),
    *(f"engine.{name}.{when}" for name in CALLS for when in ("before", "after")),
)
VARIABLE: Final = "TRILITHON_FAILPOINT"

_armed: tuple[str, int] | None = None
_hits: dict[str, int] = {}


def arm(name: str, nth: int = 1) -> None:
    """Kills this process, as by `kill -9`, when it reaches the failpoint for the nth time."""
    if name not in POINTS:
        raise ValueError(f"there is no failpoint {name!r}")
    global _armed  # noqa: PLW0603 - it is the process that is armed
    _armed = (name, nth)


def arm_from_environment() -> None:
    if named := os.environ.get(VARIABLE):
        name, _, nth = named.partition(":")
        arm(name, int(nth or 1))


def hit(name: str) -> None:
    if _armed is None or _armed[0] != name:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] == _armed[1]:
        os.kill(os.getpid(), signal.SIGKILL)
