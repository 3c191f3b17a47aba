"""Ends a job's batch early and waits for its commit.

The readers of the job's source poll in short slices and check in between whether their batch ends
(`probe/src/io/trilithon/source`). A batch ends when its readers have ended and the records that
they had read are processed and written.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trilithon.engines.spark.checkpoint import is_committed
from trilithon.engines.spark.file_path import FilePath
from trilithon.engines.spark.probe_control import ProbeControl

# How long a restart waits for a batch to end: to process the records in flight and to commit.
_END_TIMEOUT_S: Final = 30.0
# When a batch that was told to end is given up. A slow job may need minutes for the records in
# flight, and to restart it would only make it process them again. Until then the job says that its
# batch overruns (`overruns.py`).
STUCK_S: Final = 600.0
_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class AskedToEnd:
    """When a batch that still runs was told to end, and how long ago that was."""

    at_s: float
    age_s: float


@dataclass
class Boundaries:
    """Ends batches of jobs, and knows which were told to end and did not."""

    control: ProbeControl
    # A clock that never steps: a wall clock that is set would make a batch look overdue.
    steady_clock: Callable[[], float] = time.monotonic
    # Per job: the batch that was told to end, and when.
    _ending: dict[str, tuple[str, float]] = field(default_factory=dict)

    def forget(self, job: str) -> None:
        self._ending.pop(job, None)

    def stuck(self, job: str) -> bool:
        """Whether a batch was told to end and did not in time."""
        asked = self.asked_to_end(job)
        return asked is not None and asked.age_s > STUCK_S

    def asked_to_end(self, job: str) -> AskedToEnd | None:
        """The end that the job's running batch was told; None if it was told none."""
        if (known := self._ending.get(job)) is None:
            return None
        batch, at_s = known
        if self.control.batch(job) != batch:
            self._ending.pop(job, None)
            return None
        return AskedToEnd(at_s, self.steady_clock() - at_s)

    def end(self, job: str) -> bool:
        """Ends the running batch early; the next one follows. False before the first batch."""
        if not (batch := self.control.batch(job)):
            return False
        if self._ending.get(job, ("", 0.0))[0] != batch:
            self._ending[job] = (batch, self.steady_clock())
            self.control.end_batch(job, batch)
        return True

    def end_and_hold(self, job: str, checkpoint: FilePath, runs: Callable[[], bool]) -> str:
        """Ends the running batch, waits for its commit and keeps later ones from reading records.
        Returns why that failed, or an empty string: after a failure, the records since the last
        commit will be replayed.
        """
        deadline = time.monotonic() + _END_TIMEOUT_S
        while not (batch := self.control.batch(job)) or _committed(checkpoint, batch):
            # The batch has just ended by itself, and the next one is not known yet.
            if time.monotonic() > deadline or not runs():
                return "no batch ran"
            time.sleep(_POLL_S)
        self.control.end_batch(job, batch, hold=True)
        while not _committed(checkpoint, batch):
            if not runs():
                return "the query died"
            if time.monotonic() > deadline:
                return f"the batch did not end within {_END_TIMEOUT_S:g} s"
            time.sleep(_POLL_S)
        return ""


def _committed(checkpoint: FilePath, batch: str) -> bool:
    return is_committed(checkpoint, int(batch.rpartition(":")[2]))
