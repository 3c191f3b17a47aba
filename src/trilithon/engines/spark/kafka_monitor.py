"""Asks Kafka, in a thread of its own, for the ends of the topics in use, and notices its outages.

A query does not end when its broker does: it waits for minutes. And no report of an engine may wait
for a broker that does not answer. So the monitor asks, and everybody else reads its last answer.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trilithon import logs
from trilithon.errors import KafkaUnreachable, TrilithonError

# Half the executors' reporting period: a caller that polls every second gets a new count each time.
ASK_EVERY_S: Final = 0.5
RETRY_EVERY_S: Final = 1.0
# An answer older than this is no lag.
FRESH_S: Final = 3.0
# Kafka is away when so many calls in a row failed: one may meet a broker that is just restarted.
FAILED_CALLS: Final = 2
_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Outage:
    """Kafka does not answer since a time of the steady clock."""

    since_s: float
    reason: str
    next_try_s: float


@dataclass
class KafkaMonitor:
    """The last answer of Kafka, and its outage if there is one."""

    read_ends: Callable[[Collection[str]], Mapping[str, int]]
    topics: Callable[[], Collection[str]]
    # A steady clock: it does not jump.
    clock: Callable[[], float] = time.monotonic
    # Starts a broker of our own again, if it died.
    revive: Callable[[], object] = lambda: None
    outage: Outage | None = field(default=None, init=False)
    _ends: Mapping[str, int] = field(default_factory=dict, init=False)
    _answered_s: float = field(default=float("-inf"), init=False)
    _failed: int = field(default=0, init=False)
    _failed_s: float = field(default=0.0, init=False)
    _closed: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    @property
    def ends(self) -> Mapping[str, int]:
        """The end offset of each topic; empty if there is no recent answer."""
        return self._ends if self.clock() - self._answered_s <= FRESH_S else {}

    def start(self) -> None:
        """Begins to ask. A second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kafka-monitor", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def poll(self) -> float:
        """Asks once; returns the seconds until the next call."""
        topics = self.topics()
        if not topics:
            self._failed, self.outage = 0, None
            return ASK_EVERY_S
        began_s = self.clock()
        try:
            ends = self.read_ends(topics)
        except KafkaUnreachable as error:
            self._missed(began_s, error)
            return RETRY_EVERY_S
        self._ends, self._answered_s, self._failed = ends, self.clock(), 0
        if self.outage is not None:
            _log.warning("kafka_back", away_s=round(self._answered_s - self.outage.since_s, 1))
            self.outage = None
        return ASK_EVERY_S

    def _missed(self, began_s: float, error: KafkaUnreachable) -> None:
        if self._failed == 0:
            self._failed_s = began_s
        self._failed += 1
        if self._failed < FAILED_CALLS:
            return
        if self.outage is None:
            _log.error("kafka_away", reason=error.message, exc_info=error)
        self.outage = Outage(self._failed_s, error.message, self.clock() + RETRY_EVERY_S)
        try:
            self.revive()
        except TrilithonError as failure:
            self.outage = replace(self.outage, reason=failure.message)

    def _run(self) -> None:
        wait_s = 0.0
        failure = ""
        while not self._closed.wait(wait_s):
            try:
                wait_s, failure = self.poll(), ""
            except Exception as error:  # noqa: BLE001 - an unexpected error must not end the thread
                wait_s = RETRY_EVERY_S
                if (again := f"{type(error).__name__}: {error}") != failure:
                    _log.exception("kafka_monitor_failed")
                failure = again
