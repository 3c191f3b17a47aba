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
from trilithon.engines.spark.hadoop_path import FilePath
from trilithon.engines.spark.probe_control import ProbeControl

# How long a restart waits for a batch to end: to process the records in flight and to commit.
_END_TIMEOUT_S: Final = 30.0
# When a batch that was told to end is given up. A slow job may need minutes for the records in
# flight, and to restart it would only make it process them again.
_STUCK_S: Final = 600.0
_POLL_S: Final = 0.005


@dataclass
class Boundaries:
    """Ends batches of jobs, and knows which were told to end and did not."""

    control: ProbeControl
    clock: Callable[[], float] = time.time
    # Per job: the batch that was told to end, and when.
    _ending: dict[str, tuple[str, float]] = field(default_factory=dict)

    def forget(self, job: str) -> None:
        self._ending.pop(job, None)

    def stuck(self, job: str) -> bool:
        """Whether a batch was told to end and did not in time."""
        batch, at_s = self._ending.get(job, ("", 0.0))
        if batch and self.control.batch(job) != batch:
            del self._ending[job]
        return job in self._ending and self.clock() - at_s > _STUCK_S

    def end(self, job: str) -> bool:
        """Ends the running batch early; the next one follows. False before the first batch."""
        if not (batch := self.control.batch(job)):
            return False
        if self._ending.get(job, ("", 0.0))[0] != batch:
            self._ending[job] = (batch, self.clock())
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
