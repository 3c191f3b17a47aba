"""Runs a simulated cluster in real time: its time passes with the machine's clock, whoever asks.

For trying the product without Spark. A simulated cluster alone stands still until its caller
advances it; here every call of the contract first advances it to now.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trilithon.contract.engine import (
    Accepted,
    Action,
    Capabilities,
    Condition,
    Outcome,
    Status,
)
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.engines.simulated.simulated_job import SourceLoad
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report


class SteadyLoad:
    """The same number of records per second, from the cluster's start on."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s

    def total(self, at_s: float) -> float:
        return self.per_s * at_s

    def totals(self, at_s: Sequence[float]) -> list[float]:
        return list(map(self.total, at_s))


class LiveSimulation:
    """An engine and its clock. The cluster's time is `speed` times as fast as the machine's, and
    begins at `began_s`, in seconds since 1970. Calls from several threads wait for each other.
    """

    def __init__(
        self,
        engine: SimulatedEngine,
        *,
        began_s: float,
        speed: float = 1.0,
        load_per_s: float = 0.0,
        wall_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Jobs that are submitted get a load of `load_per_s` at each source, unless they continue
        with the load that they had.
        """
        self._engine, self._began_s, self._speed, self._wall_s = engine, began_s, speed, wall_s
        self._load: SourceLoad = SteadyLoad(load_per_s)
        self._wall_began_s = wall_s()
        self._lock = threading.RLock()

    def now_s(self) -> float:
        with self._lock:
            return self._began_s + self._now().now_s

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        with self._lock:
            outcome = self._now().submit(job, allocation, checkpoint)
            running = self._engine.running.get(job.id)
            if outcome.status is Status.DONE and running is not None:
                for source in job.sources:
                    if source.name not in running.loads:
                        self._engine.feed(job.id, source.name, self._load)
            return outcome

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        with self._lock:
            return self._now().cancel(job, keep)

    def apply(self, action: Action) -> Outcome:
        with self._lock:
            return self._now().apply(action)

    def jobs(self) -> Mapping[str, Accepted]:
        with self._lock:
            return self._now().jobs()

    def conditions(self) -> Mapping[str, Condition]:
        with self._lock:
            return self._now().conditions()

    def reports(self) -> Sequence[Report]:
        """The cluster counts its time from 0; reports carry the time of this clock."""
        with self._lock:
            reports = self._now().reports()
        return [replace(report, time_s=self._began_s + report.time_s) for report in reports]

    def capabilities(self) -> Capabilities:
        with self._lock:
            return self._now().capabilities()

    def close(self) -> None:
        self._engine.close()

    def _now(self) -> SimulatedEngine:
        """The cluster, advanced to now."""
        due_s = (self._wall_s() - self._wall_began_s) * self._speed
        if (behind_s := due_s - self._engine.now_s) > 0:
            self._engine.advance(behind_s)
        return self._engine
