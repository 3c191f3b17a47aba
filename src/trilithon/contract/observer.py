"""Observes the jobs of an engine: reports become snapshots, and these a series."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Accepted, Engine
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot

# Two looks are never further apart the wrong way round, unless the clock was set back.
SET_BACK_S: Final = 1.0
Expected = Mapping[str, tuple[Job, Allocation]]


class Observer:
    """Keeps a series of `kept_s` seconds. The caller says which jobs to expect: an expected
    instance that does not report is missing, not absent.
    """

    def __init__(self, kept_s: float) -> None:
        self.assembler = Assembler()
        self.series = Series((), kept_s)
        self._expected: dict[str, tuple[Job, Allocation]] = {}
        # When the clock was last set, and how often the engine's was.
        self.clock_set_s: float | None = None
        self._clock_steps: float | None = None

    def expect(self, jobs: Expected) -> tuple[str, ...]:
        """Expects these jobs and no others; returns the names of those that are gone."""
        gone = tuple(name for name in self._expected if name not in jobs)
        for name in gone:
            self.assembler.forget(name)
        for name, (job, allocation) in jobs.items():
            before = self._expected.get(name)
            if before is None or before != (job, allocation):
                self.assembler.expect(job, allocation)
        self._expected = dict(jobs)
        return gone

    def observe(self, engine: Engine, now_s: float) -> Mapping[str, Accepted]:
        """Looks at all that an engine runs, and returns it."""
        accepted = engine.jobs()
        self.expect({name: (one.job, one.allocation) for name, one in accepted.items()})
        self.take(engine.reports())
        self.look(now_s)
        return accepted

    def take(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self.assembler.take(report)

    def look(self, now_s: float) -> Snapshot:
        """The snapshot of now. It is kept only if it is newer than the last; if the clock was set,
        the series begins anew.
        """
        if self.series.snapshots and now_s <= self.series.last.time_s:
            if self.series.last.time_s - now_s < SET_BACK_S:
                return self.series.last
            self._clock_was_set(now_s)
        snapshot = self.assembler.snapshot(now_s)
        reported = snapshot.machines.clock_steps
        if not np.isnan(reported).all():
            steps = float(np.nanmax(reported))
            if self._clock_steps is not None and steps > self._clock_steps:
                self._clock_was_set(now_s)
            self._clock_steps = steps
        self.series = self.series.extended([snapshot])
        return self.series.last

    def _clock_was_set(self, now_s: float) -> None:
        """Times before and after a step cannot be compared."""
        self.clock_set_s = now_s
        self.begin_anew()

    def begin_anew(self) -> None:
        """Drops the series."""
        self.series = Series((), self.series.limit_s)
