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
    # Per job, reader and executor: how many records it had taken, and since when it took no more. A
    # reader may have been elsewhere in an earlier batch, and its old count is told on from there.
    _readers: dict[str, dict[tuple[str, int, str], tuple[int, float]]] = field(default_factory=dict)
    # Batches that were told to end, and when.
    _told: dict[str, tuple[str, float]] = field(default_factory=dict)

    def heard(self, reports: Iterable[Mapping[str, Any]], jobs: Mapping[str, Job]) -> None:
        """What executors sent: the readers' counters are in it."""
        for report in reports:
            at_s = report["time_us"] / 1e6
            for one in report["instances"]:
                job = jobs.get(one["job"])
                if job is None or one["operator"] not in {source.name for source in job.sources}:
                    continue
                readers = self._readers.setdefault(job.id, {})
                key = (one["operator"], one["index"], report["executor"])
                if readers.get(key, (-1, 0.0))[0] != one["taken"]:
                    readers[key] = (one["taken"], at_s)

    def forget(self, job: str) -> None:
        self._readers.pop(job, None)
        self._told.pop(job, None)

    def all_reading(self, job: str, readers: int) -> bool:
        """Whether each of the job's readers took a record just now."""
        now_s, found = self.clock(), dict(self._readers.get(job, {}))
        recent = {key[:2] for key, (_, since_s) in found.items() if now_s - since_s < _RECENT_S}
        return len(recent) >= readers

    def stuck(self, job: str) -> bool:
        """Whether a batch was told to end and did not: a reader stopped getting records just then."""
        batch, at_s = self._told.get(job, ("", 0.0))
        if batch and self.control.batch(job) != batch:
            del self._told[job]
        return job in self._told and self.clock() - at_s > _PATIENCE_S

    def end(self, job: str, readers: int) -> bool:
        """Tells the running batch to end; the next one follows by itself. False if it cannot be told."""
        batch = self.control.batch(job)
        if not batch or not self.all_reading(job, readers):
            return False
        self._told[job] = (batch, self.clock())
        self.control.end_batch(job, batch)
        return True

    def end_and_hold(
        self, job: str, readers: int, checkpoint: Path, runs: Callable[[], bool]
    ) -> str:
        """Ends the running batch and waits until it is committed; the next one sends no record. Says why
        not if that did not come about: what was read since the last commit will be read again then.
        """
        if not self.all_reading(job, readers):
            return "a reader had no records"
        deadline = time.monotonic() + _PATIENCE_S
        while not (batch := self.control.batch(job)) or _committed(checkpoint, batch):
            # It has just ended by itself, and the next one is not known yet.
            if time.monotonic() > deadline or not runs():
                return "no batch ran"
            time.sleep(_POLL_S)
        self.control.end_batch(job, batch, hold=True)
        while not _committed(checkpoint, batch):
            if not runs():
                return "its query died"
            if time.monotonic() > deadline:
                return f"it did not end within {_PATIENCE_S:g} s"
            time.sleep(_POLL_S)
        return ""


def _committed(checkpoint: Path, batch: str) -> bool:
    """Spark writes this file as the last act of a batch, under another name first."""
    return (checkpoint / "commits" / batch.rpartition(":")[2]).exists()
