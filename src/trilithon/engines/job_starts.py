"""Starts the jobs of one application in a thread of its own, so that no other application waits.

A job may take seconds to start. Whoever asks waits for a moment, and asks again later: the outcome
is kept until then.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue

from trilithon.contract.engine import Outcome
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job


@dataclass(frozen=True, slots=True)
class StartRequest:
    job: Job
    allocation: Allocation
    checkpoint: str


@dataclass(slots=True)
class _Start:
    request: StartRequest
    outcome: "Future[Outcome]" = field(default_factory=Future)
    # Whether a caller waits for it.
    awaited: bool = True

    @property
    def lasts(self) -> bool:
        """Whether the job may run, or may yet, and nobody knows."""
        if not self.outcome.done():
            return True
        return self.outcome.exception() is None and self.outcome.result().applied


class JobStarts:
    """The starts of an application, one after the other, in the order in which they were asked for.

    `call` carries one out; `ended` is called by the thread after one that nobody waited for to its
    end.
    """

    def __init__(
        self, call: Callable[[StartRequest], Outcome], ended: Callable[[], None] = lambda: None
    ) -> None:
        self._call, self._ended = call, ended
        self._starts: dict[str, _Start] = {}
        self._queue: SimpleQueue[_Start | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def outcome(self, request: StartRequest, wait_s: float) -> Outcome | None:
        """The outcome of a start, which begins if it has not; None while it lasts. Raises what the
        application raised. A start of another version ends first.
        """
        name = request.job.id
        if (start := self._starts.get(name)) is None:
            start = self._starts[name] = _Start(request)
            self._queue.put(start)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="job-starts", daemon=True)
                self._thread.start()
        wait([start.outcome], wait_s)
        # In this order: either the thread sees the one, or this sees the other.
        start.awaited = False
        if not start.outcome.done():
            return None
        del self._starts[name]
        if start.request != request:
            return self.outcome(request, wait_s)
        return start.outcome.result()

    @property
    def under_way(self) -> tuple[StartRequest, ...]:
        """The starts that last, or that succeeded and whose outcomes nobody has got."""
        return tuple(start.request for start in self._starts.values() if start.lasts)

    def forget(self, job: str) -> None:
        """Drops the outcome of a start that has ended: it is known otherwise, or not wanted."""
        start = self._starts.get(job)
        if start is not None and start.outcome.done():
            del self._starts[job]

    def close(self) -> None:
        """Ends the thread after the start that it is at."""
        self._queue.put(None)

    def _run(self) -> None:
        while (start := self._queue.get()) is not None:
            try:
                start.outcome.set_result(self._call(start.request))
            except Exception as error:  # noqa: BLE001 - whoever asks gets it
                start.outcome.set_exception(error)
            if not start.awaited:
                self._ended()
