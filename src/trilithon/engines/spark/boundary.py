"""Owns the end of a job's batch before its time: when that is possible, and when it is committed.

A reader looks whether its batch is over before each record. One that waits for a record looks only when
one comes: to end a batch early, every reader must be getting records, or the others would end and the job
stand still until the batch ends by itself.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trilithon.engines.spark.control import Control
from trilithon.model.job import Job

# A reader that took nothing for two reports and a half counts as waiting.
_RECENT_S: Final = 2.5
# How long a batch may take to end: to work off what is in flight, to commit.
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.01


@dataclass
class Boundaries:
    """Ends batches of jobs, knowing from the reports which readers get records."""

    control: Control
    clock: Callable[[], float] = time.time
    # Per job and reader: how many records it had taken, and since when it took no more.
    _readers: dict[str, dict[tuple[str, int], tuple[int, float]]] = field(default_factory=dict)

    def heard(self, reports: Iterable[Mapping[str, Any]], jobs: Mapping[str, Job]) -> None:
        """What executors sent: the readers' counters are in it."""
        for report in reports:
            at_s = report["time_us"] / 1e6
            for one in report["instances"]:
                job = jobs.get(one["job"])
                if job is None or one["operator"] not in {source.name for source in job.sources}:
                    continue
                readers = self._readers.setdefault(job.id, {})
                key = (one["operator"], one["index"])
                if readers.get(key, (-1, 0.0))[0] != one["taken"]:
                    readers[key] = (one["taken"], at_s)

    def forget(self, job: str) -> None:
        self._readers.pop(job, None)

    def all_reading(self, job: str, readers: int) -> bool:
        """Whether each of the job's readers took a record just now."""
        found = self._readers.get(job, {})
        recent = sum(self.clock() - since < _RECENT_S for _, since in found.values())
        return recent >= readers

    def end(self, job: str, readers: int) -> bool:
        """Tells the running batch to end; the next one follows by itself. False if it cannot be told."""
        batch = self.control.batch(job)
        if not batch or not self.all_reading(job, readers):
            return False
        self.control.end_batch(job, batch)
        return True

    def end_and_hold(self, job: str, readers: int, checkpoint: Path) -> bool:
        """Ends the running batch and waits until it is committed; the next one sends no record. False if
        that did not come about: what was read since the last commit will be read again.
        """
        batch = self.control.batch(job)
        if not batch or not self.all_reading(job, readers):
            return False
        self.control.end_batch(job, batch, hold=True)
        # Spark writes this file as the last act of a batch, under another name first.
        committed = checkpoint / "commits" / batch.rpartition(":")[2]
        deadline = time.monotonic() + _PATIENCE_S
        while not committed.exists():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True
