"""Keeps the incarnations of jobs growing from one host to the next, whatever happens to the clock.

Who adds up counters drops those of an earlier incarnation of a job than the latest known. If a host
that is started after the clock was set back began with smaller numbers, nothing that its jobs count
would be seen.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trilithon import logs

_log = logs.logger()


@dataclass
class Incarnations:
    """The highest incarnation that hosts with this folder have given, kept in a file."""

    path: Path
    clock: Callable[[], float]
    _highest: int = field(init=False)

    def __post_init__(self) -> None:
        self._highest = self._kept()

    def _kept(self) -> int:
        try:
            return int(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0

    @property
    def least(self) -> int:
        """What the next incarnation is at least."""
        return max(self._highest + 1, int(self.clock()))

    def begin(self) -> float:
        """Begins an incarnation."""
        incarnation = self.least
        self.note(incarnation)
        return float(incarnation)

    def note(self, incarnation: int) -> None:
        """An incarnation has begun. If it cannot be written, the clock alone makes later ones
        grow.
        """
        if incarnation <= self._highest:
            return
        # Several applications may have this folder.
        self._highest = max(incarnation, self._kept())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            written = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
            written.write_text(str(self._highest), encoding="utf-8")
            written.replace(self.path)
        except OSError:
            _log.exception("incarnation_not_written", path=str(self.path))
