"""Judges which measurements may be acted on: since when those of each job are complete."""

from collections.abc import Iterable

import numpy as np

from trilithon.contract.observer import Expected, Observer
from trilithon.control.instance_limits import LoadSigns
from trilithon.control.rules import Limits
from trilithon.measures.capacity import capacity
from trilithon.model.columns import Floats
from trilithon.model.report import Report
from trilithon.model.series import Window
from trilithon.model.snapshot import Snapshot, present


class Freshness:
    """Observes an engine, and knows since when the metrics of each job are complete."""

    def __init__(self, limits: Limits, lookback_s: float) -> None:
        self.limits = limits
        self.observer = Observer(max(lookback_s, limits.fresh_s))
        self.fresh_since_s: dict[str, float] = {}
        # The time until the next look: a policy may ask for longer rounds than the rules.
        self.wait_s = limits.round_s
        self._clock_was_set = False

    def look(self, jobs: Expected, reports: Iterable[Report], now_s: float) -> bool:
        """Takes the reports on these jobs. Returns False if the clock jumped, or the last look was
        too long ago: the series then begins again.
        """
        for name in self.observer.expect(jobs):
            self.fresh_since_s.pop(name, None)
        self.observer.take(reports)
        stale_s = max(self.limits.stale_s, 3 * self.limits.round_s, 3 * self.wait_s)
        series = self.observer.series
        steady = not series.snapshots or 0 < now_s - series.last.time_s <= stale_s
        if steady and not self._clock_was_set:
            self.observer.assembler.lose_silent(now_s, stale_s)
        self._clock_was_set = False
        if not steady:
            # How old the last report of a sender is cannot be told before the next one.
            if now_s < series.last.time_s:
                self.observer.clock_set_s = now_s
            self.observer.begin_anew()
            self.fresh_since_s.clear()
        self._judge(self.observer.look(now_s))
        return steady

    def clock_was_set(self, now_s: float) -> None:
        """Times of before cannot be compared with those from now on."""
        self.observer.clock_set_s, self._clock_was_set = now_s, True
        self.observer.begin_anew()
        self.fresh_since_s.clear()

    def distrust(self, job: str) -> None:
        """Only what is measured of a job from now on counts."""
        self.fresh_since_s.pop(job, None)

    def _judge(self, snapshot: Snapshot) -> None:
        """The metrics of a job are complete when every instance of it has reported."""
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
        """The code of why the metrics of a job must not be acted on; empty if they may."""
        since_s = self.fresh_since_s.get(job)
        if since_s is None:
            return "METRICS_MISSING"
        return "NOT_ENOUGH_FRESH_DATA" if now_s - since_s < self.limits.fresh_s else ""

    def window(self) -> Window | None:
        return self.observer.series.window(self.limits.fresh_s)

    def signs(self, jobs: Iterable[str]) -> dict[str, LoadSigns]:
        """The load of some jobs, for the guard."""
        wanted = list(jobs)
        # In most rounds nothing is to be lowered: then no window is made for it.
        window = self.window() if wanted else None
        if window is None:
            return {}
        # The last snapshot counts in full: what is saturated now must not be lowered because it was
        # idle before.
        last = self.observer.series.window(0.0)
        busy = capacity(window) if last is None else np.fmax(capacity(window), capacity(last))
        return {name: _signs(window, busy, name) for name in wanted if name in window.jobs}


def _signs(window: Window, busy: Floats, job: str) -> LoadSigns:
    layout = window.layout
    nodes = layout.job_nodes(job)
    busy_by_operator = {
        layout.node_names[node]: present(busy[node]) for node in nodes if layout.parallelism[node]
    }
    rows = slice(*np.searchsorted(layout.source_nodes, [nodes.start, nodes.stop]))
    lag, arrived = float(window.lag[rows].sum()), float(window.sources.arrived[rows].sum())
    if np.isnan(lag) or np.isnan(arrived):
        return LoadSigns(busy_by_operator)
    if not lag:
        return LoadSigns(busy_by_operator, 0.0)
    return LoadSigns(busy_by_operator, lag * window.span_s / arrived if arrived else np.inf)
