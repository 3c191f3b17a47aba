"""Owns what the controller sees: reports become snapshots, and of each job it is known whether to trust them."""

from collections.abc import Iterable, Mapping

import numpy as np

from trilithon.contract.assembler import Assembler
from trilithon.control.guard import LoadSigns
from trilithon.control.rules import Limits
from trilithon.measures.capacity import capacity
from trilithon.model.allocation import Allocation
from trilithon.model.columns import Floats
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot, present


class Observer:
    """Keeps the series, and since when the metrics of each job are complete."""

    def __init__(self, limits: Limits, lookback_s: float) -> None:
        self.limits = limits
        self.assembler = Assembler()
        self.series = Series((), max(lookback_s, limits.fresh_s))
        self.fresh_since_s: dict[str, float] = {}
        # From one look to the next: a policy may ask for longer rounds than the rules.
        self.wait_s = limits.round_s
        self._expected: dict[str, tuple[Job, Allocation]] = {}

    def expect(self, jobs: Mapping[str, tuple[Job, Allocation]]) -> None:
        """These jobs run, with these allocations, and no others."""
        for name in self._expected.keys() - jobs.keys():
            self.assembler.forget(name)
            self.fresh_since_s.pop(name, None)
        for name, (job, allocation) in jobs.items():
            before = self._expected.get(name)
            if before is None or before[0] is not job or before[1] != allocation:
                self.assembler.expect(job, allocation)
        self._expected = dict(jobs)

    def look(self, reports: Iterable[Report], now_s: float) -> bool:
        """Takes what was reported. False if the clock jumped, or nobody looked for long: then what was
        known before says nothing of now, and the series begins anew.
        """
        for report in reports:
            self.assembler.take(report)
        steady = True
        stale_s = max(self.limits.stale_s, 3 * self.limits.round_s, 3 * self.wait_s)
        self.assembler.lose_silent(now_s - stale_s)
        if self.series.snapshots:
            steady = 0 < now_s - self.series.last.time_s <= stale_s
        if not steady:
            self.series = Series((), self.series.limit_s)
            self.fresh_since_s.clear()
        snapshot = self.assembler.snapshot(now_s)
        self.series = self.series.extended([snapshot])
        self._judge(snapshot)
        return steady

    def distrust(self, job: str) -> None:
        """Something happened to a job: what is measured counts from now on only."""
        self.fresh_since_s.pop(job, None)

    def _judge(self, snapshot: Snapshot) -> None:
        """A job's metrics are complete when every instance of it was heard of."""
        layout = snapshot.layout
        missing = np.isnan(snapshot.instances.taken)
        job = layout.node_job[layout.instance_node]
        broken = np.bincount(job, weights=missing, minlength=len(layout.jobs)) > 0
        for row, name in enumerate(layout.jobs):
            if broken[row]:
                self.fresh_since_s.pop(name, None)
            else:
                self.fresh_since_s.setdefault(name, snapshot.time_s)

    def distrusted(self, job: str, now_s: float) -> str:
        """Why the metrics of a job are not to be acted on, in a code of the guard."""
        since_s = self.fresh_since_s.get(job)
        if since_s is None:
            return "METRICS_MISSING"
        return "NOT_ENOUGH_FRESH_DATA" if now_s - since_s < self.limits.fresh_s else ""

    def window(self) -> Window | None:
        return self.series.window(self.limits.fresh_s)

    def signs(self, jobs: Iterable[str]) -> dict[str, LoadSigns]:
        """What the guard looks at, of some jobs."""
        window = self.window()
        wanted = list(jobs)
        if window is None or not wanted:
            return {}
        # A load that came a moment ago counts whole: what is saturated now must not be lowered because
        # it was idle before.
        last = self.series.window(0.0)
        busy = capacity(window) if last is None else np.fmax(capacity(window), capacity(last))
        return {name: _signs(window, busy, name) for name in wanted if name in window.jobs}


def _signs(window: Window, busy: Floats, job: str) -> LoadSigns:
    layout = window.layout
    nodes = layout.job_nodes(job)
    found = {
        layout.node_names[node]: present(busy[node]) for node in nodes if layout.parallelism[node]
    }
    rows = slice(*np.searchsorted(layout.source_nodes, [nodes.start, nodes.stop]))
    lag, arrived = float(window.lag[rows].sum()), float(window.sources.arrived[rows].sum())
    if np.isnan(lag) or np.isnan(arrived):
        return LoadSigns(found)
    if not lag:
        return LoadSigns(found, 0.0)
    return LoadSigns(found, lag * window.span_s / arrived if arrived else np.inf)
