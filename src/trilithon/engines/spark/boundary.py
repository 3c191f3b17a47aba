"""Ends a job's batch early: decides when that is possible, and waits for the commit.

A reader checks before each record whether its batch is over; a reader that waits for a record
checks only when one arrives. To end a batch early, every reader must be getting records: otherwise
some readers would end and the job would stall until the batch ends by itself.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.model.job import Job

# A reader that took no record for two and a half reports counts as idle.
_RECENT_S: Final = 2.5
# How long a batch may take to end: to process the records in flight and to commit.
_END_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.01


@dataclass
class Boundaries:
    """Ends batches of jobs; knows from the executors' reports which readers get records."""

    control: ProbeControl
    clock: Callable[[], float] = time.time
    # Per job and (source, index, executor): the records taken and when that count last changed. An
    # executor goes on reporting the old count of a reader that has moved to another one.
    _readers: dict[str, dict[tuple[str, int, str], tuple[int, float]]] = field(default_factory=dict)
    # Per job: the batch that was told to end, and when.
    _ending: dict[str, tuple[str, float]] = field(default_factory=dict)

    def observe(self, reports: Iterable[Mapping[str, Any]], jobs: Mapping[str, Job]) -> None:
        """Takes the readers' counters from the executors' reports."""
        for report in reports:
            at_s = report["time_us"] / 1e6
            for instance in report["instances"]:
                job, operator = jobs.get(instance["job"]), instance["operator"]
                if job is None or operator not in {source.name for source in job.sources}:
                    continue
                readers = self._readers.setdefault(job.id, {})
                key = (operator, instance["index"], report["executor"])
                if readers.get(key, (-1, 0.0))[0] != instance["taken"]:
                    readers[key] = (instance["taken"], at_s)

    def forget(self, job: str) -> None:
        self._readers.pop(job, None)
        self._ending.pop(job, None)

    def all_reading(self, job: str, readers: int) -> bool:
        """Whether each of the job's readers took a record recently."""
        now_s, counters = self.clock(), dict(self._readers.get(job, {}))
        recent = {key[:2] for key, (_, since_s) in counters.items() if now_s - since_s < _RECENT_S}
        return len(recent) >= readers

    def stuck(self, job: str) -> bool:
        """Whether a batch was told to end and did not, because a reader ran out of records."""
        batch, at_s = self._ending.get(job, ("", 0.0))
        if batch and self.control.batch(job) != batch:
            del self._ending[job]
        return job in self._ending and self.clock() - at_s > _END_TIMEOUT_S

    def end(self, job: str, readers: int) -> bool:
        """Ends the running batch early; the next one follows. False if that is not possible now."""
        batch = self.control.batch(job)
        if not batch or not self.all_reading(job, readers):
            return False
        self._ending[job] = (batch, self.clock())
        self.control.end_batch(job, batch)
        return True

    def end_and_hold(
        self, job: str, readers: int, checkpoint: Path, runs: Callable[[], bool]
    ) -> str:
        """Ends the running batch, waits for its commit and keeps the next one from sending records.
        Returns why that failed, or an empty string: after a failure, the records since the last
        commit will be replayed.
        """
        if not self.all_reading(job, readers):
            return "a reader had no records"
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


def _committed(checkpoint: Path, batch: str) -> bool:
    """Spark's last step of a batch is to rename a file to this name."""
    return (checkpoint / "commits" / batch.rpartition(":")[2]).exists()
