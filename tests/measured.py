"""Times and counts that tests measure, printed at the end of a run, and limits to such times."""

import os
from collections.abc import Callable
from dataclasses import dataclass


def allowed_s(idle_s: float) -> float:
    """What a machine may take for something that takes an idle one at most so long: more in
    proportion to its load per core.
    """
    return idle_s * (1.0 + os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass(frozen=True)
class Measured:
    """What a test measured: properties of it in JUnit's file, and lines at the end of the run."""

    note: Callable[[str, object], None]

    def within(self, what: str, took_s: float, idle_s: float) -> None:
        """Asserts that something took no longer than it may at the machine's load."""
        limit_s = allowed_s(idle_s)
        self.note(what, f"{took_s:.1f} s ({idle_s:g} s when idle, {limit_s:.0f} s at this load)")
        assert took_s < limit_s, what
