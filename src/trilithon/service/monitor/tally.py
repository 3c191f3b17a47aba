"""Counts what rounds, requests and tenants add up to, for /metrics and for bills."""

import threading
import time
from collections import Counter, defaultdict

from prometheus_client import CollectorRegistry, Histogram

from trilithon.control.loop import Round
from trilithon.service.access.store import AccessStore
from trilithon.service.monitor.facts import RoundFacts

FLUSH_EVERY_S = 60.0
# No tenant is charged for a time in which nobody looked.
MAX_GAP_S = 120.0


class Tally:
    """Counters since the daemon started, and slot-seconds per tenant and day for good."""

    def __init__(self, store: AccessStore | None) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.rounds = self.round_failures = self.blind_rounds = 0
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.actions: Counter[str] = Counter()
        self.slot_seconds: defaultdict[str, float] = defaultdict(float)
        # Not the library's global registry: several daemons may live in one process.
        self.registry = CollectorRegistry()
        self.round_seconds = Histogram(
            "trilithon_round_duration_seconds",
            "How long a round of the controller took.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "trilithon_http_request_duration_seconds",
            "How long the API took to begin an answer.",
            ("method", "status"),
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
            registry=self.registry,
        )
        self._last_s: float | None = None
        self._unwritten: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._flushed_s = time.monotonic()

    def round(self, done: Round, facts: RoundFacts, took_s: float) -> None:
        with self._lock:
            self.rounds += 1
            self.blind_rounds += bool(done.blind)
            self.round_seconds.observe(took_s)
            for ruling in done.rulings:
                issuer = ruling.decision.issuer or facts.policy
                self.decisions[issuer, ruling.decision.reason] += 1
            for result in done.results:
                self.actions[result.outcome.status.value] += 1
            self._charge(facts, done.clock_set_by_s)
        if time.monotonic() - self._flushed_s > FLUSH_EVERY_S:
            self.flush()

    def failed(self) -> None:
        with self._lock:
            self.round_failures += 1

    def _charge(self, facts: RoundFacts, set_by_s: float) -> None:
        """Each tenant has had its slots since the last round; a clock that is set is no time."""
        gap_s = 0.0 if self._last_s is None else facts.time_s - self._last_s - set_by_s
        self._last_s = facts.time_s
        if not 0 < gap_s <= MAX_GAP_S or facts.blind:
            return
        day = time.strftime("%Y-%m-%d", time.gmtime(facts.time_s))
        for job in facts.jobs.values():
            if job.has_slots:
                self.slot_seconds[job.tenant] += job.slots * gap_s
                self._unwritten[job.tenant, day] += job.slots * gap_s

    def flush(self) -> None:
        """Writes what tenants have used since the last time."""
        with self._lock:
            used, self._unwritten = self._unwritten, defaultdict(float)
            self._flushed_s = time.monotonic()
        if self._store is not None and used:
            self._store.add_usage(used)
