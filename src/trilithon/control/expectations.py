"""Owns looking back: what a decision expected, and what it came to."""

import heapq
import json
from collections.abc import Callable, Mapping

import numpy as np

from trilithon.control.guard import Ruling
from trilithon.control.journal import Journal
from trilithon.measures.slo import assess_intents
from trilithon.model.columns import Floats
from trilithon.model.series import Window
from trilithon.model.snapshot import present


class Expectations:
    """The expectations whose time has not come yet. Those of earlier lives are read from the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._due: list[tuple[float, str, str, str, float]] = []
        rows = journal.database.all(
            "SELECT id, job, expects, granted FROM decision "
            "WHERE expects IS NOT NULL AND came IS NULL AND job IS NOT NULL"
        )
        for row in rows:
            if json.loads(row["granted"]):
                self._push(row["id"], row["job"], **json.loads(row["expects"]))

    def add(self, ruling: Ruling) -> None:
        """A decision of which something was granted."""
        decision, expects = ruling.decision, ruling.decision.expects
        if expects is not None and decision.job is not None and ruling.granted:
            self._push(decision.id, decision.job, expects.metric, expects.value, expects.by_s)

    def _push(self, decision: str, job: str, metric: str, value: float, by_s: float) -> None:
        heapq.heappush(self._due, (by_s, decision, job, metric, value))

    def check(self, window: Callable[[], Window | None], now_s: float) -> None:
        """Writes down what became of those whose time has come."""
        if not self._due or self._due[0][0] > now_s:
            return
        seen = window()
        values = {} if seen is None else _values(seen)
        results = []
        while self._due and self._due[0][0] <= now_s:
            _, decision, job, metric, value = heapq.heappop(self._due)
            found = None if seen is None else _value(seen, values, job, metric)
            results.append(
                (decision, {"time_s": now_s, "value": found, "kept": _kept(metric, found, value)})
            )
        self._journal.came(results)


def _values(window: Window) -> dict[str, Floats]:
    """What may be expected of each job; `satisfaction` is that of the whole cluster."""
    found = assess_intents(window)
    whole = np.full(len(window.layout.jobs), found.cluster_satisfaction)
    return {**found.values, "satisfaction": whole}


def _value(window: Window, values: Mapping[str, Floats], job: str, metric: str) -> float | None:
    row = window.layout.job_row.get(job)
    return None if row is None or metric not in values else present(values[metric][row])


def _kept(metric: str, found: float | None, value: float) -> bool | None:
    if found is None:
        return None
    return found <= value if metric.startswith("latency") else found >= value
