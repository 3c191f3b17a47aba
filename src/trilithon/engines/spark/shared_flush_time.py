"""Keeps the flush time of an application in step with its jobs (`flush_time`)."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from trilithon import logs
from trilithon.contract.engine import Outcome
from trilithon.engines.spark.flush_time import FLUSH_MS, JobState, flush_time_ms, later_lingers
from trilithon.engines.spark.reallocation import AT_BOUNDARY
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job

AT_RESTART: Final = "AT_RESTART"
_log = logs.logger()


@dataclass
class SharedFlushTime:
    """The flush time of an application, as its jobs come, change and go."""

    send: Callable[[int], None]
    # Of jobs that say nothing.
    own_ms: int = FLUSH_MS
    current_ms: int | None = None
    # The jobs that are being started: their first batch begins with what they need.
    _starting: dict[str, JobState] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def starting(self, job: Job, wanted: Allocation) -> Iterator[None]:
        """Counts a job while it is started: it is not among the accepted ones yet."""
        self._starting[job.id] = job, wanted
        try:
            yield
        finally:
            self._starting.pop(job.id, None)

    def update(self, jobs: Iterable[JobState]) -> bool:
        """Sends the flush time of these jobs and of those that start; whether it is another one."""
        with self._lock:
            chosen_ms = flush_time_ms([*jobs, *self._starting.values()], self.own_ms)
            if chosen_ms == self.current_ms:
                return False
            self.send(chosen_ms)
            _log.info("flush_time_set", ms=chosen_ms, before_ms=self.current_ms)
            self.current_ms = chosen_ms
            return True

    def outcome(
        self, done: Outcome, job: Job, before: Allocation, wanted: Allocation, *, updated: bool
    ) -> Outcome:
        """The outcome of another allocation, with when its batching times take effect. No batch is
        ended, and no job is restarted for them. `updated`: the flush time is another one now.
        """
        code, sentences = "", []
        if edges := later_lingers(job, before, wanted):
            code, names = AT_RESTART, ", ".join(map(str, edges))
            sentences = [f"linger.ms of {names} changes when {job.id} is started again."]
        if updated:
            code = AT_BOUNDARY
            flush = f"All jobs flush after {self.current_ms} ms from their next batch on."
            sentences = [flush, *sentences]
        if done.code or not code:
            return done
        return replace(done, code=code, message=" ".join(sentences))
