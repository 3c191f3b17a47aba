"""Observes the jobs of an engine: reports become snapshots, and these a series."""

from collections.abc import Iterable, Mapping

from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Accepted, Engine
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot

Expected = Mapping[str, tuple[Job, Allocation]]


class Observer:
    """Keeps a series of `kept_s` seconds. The caller says which jobs to expect: an expected
    instance that does not report is missing, not absent.
    """

    def __init__(self, kept_s: float) -> None:
        self.assembler = Assembler()
        self.series = Series((), kept_s)
        self._expected: dict[str, tuple[Job, Allocation]] = {}

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
        """The snapshot of now. It is kept only if it is newer than the last."""
        if self.series.snapshots and now_s <= self.series.last.time_s:
            return self.series.last
        self.series = self.series.extended([self.assembler.snapshot(now_s)])
        return self.series.last

    def begin_anew(self) -> None:
        """Drops the series."""
        self.series = Series((), self.series.limit_s)
