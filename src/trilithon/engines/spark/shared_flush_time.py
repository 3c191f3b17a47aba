"""Keeps the flush time of an application in step with its jobs (`flush_time`)."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from trilithon import logs
from trilithon.engines.spark.flush_time import FLUSH_MS, JobState, flush_time_ms
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job

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
