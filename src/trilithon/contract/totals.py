"""Adds up what jobs did since they were first seen, across restarts: the figures of a whole run."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trilithon.measures import sketch
from trilithon.model.sketches import Sketches
from trilithon.model.snapshot import Snapshot, plain

# The table, and the column in it, of each total.
COUNTERS = {
    "arrived": ("sources", "arrived"),
    "taken": ("sources", "taken"),
    "unreadable": ("sources", "failed"),
    "failed": ("instances", "failed"),
    "written": ("sinks", "written"),
}
Row = tuple[Any, ...]


@dataclass
class _Job:
    totals: Counter[str] = field(default_factory=Counter)
    latencies: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    met: Counter[bool | None] = field(default_factory=Counter)


class Totals:
    """What each job did since it was first seen. A counter of a new incarnation began at 0."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.now_s = began_s
        self._jobs: defaultdict[str, _Job] = defaultdict(_Job)
        self._counters: dict[Row, tuple[float, float]] = {}
        self._sketches: dict[Row, tuple[float, dict[int, float]]] = {}

    def add(self, snapshot: Snapshot, figures: Sequence[Mapping[str, Any]]) -> None:
        """Adds what happened since the snapshot before, and whether intents are met now."""
        self.now_s = snapshot.time_s
        for name, (table, column) in COUNTERS.items():
            for key, incarnation, value in _rows(snapshot, table, column):
                before = self._counters.get((name, *key))
                grown = value if before is None or before[0] < incarnation else value - before[1]
                self._jobs[key[0]].totals[name] += max(0, round(grown))
                self._counters[name, *key] = (incarnation, value)
        for row, key in enumerate(snapshot.layout.sink_row):
            self._add_latencies(snapshot, row, key)
        for job in figures:
            self._jobs[job["job"]].met[job.get("met")] += 1

    def _add_latencies(self, snapshot: Snapshot, row: int, key: Row) -> None:
        histogram = snapshot.latencies.row(row)
        incarnation = float(snapshot.sinks.incarnation[row])
        if histogram is None or np.isnan(incarnation):
            return
        known = self._sketches.get(key)
        before = {} if known is None or known[0] < incarnation else known[1]
        for bucket, count in histogram.items():
            grown = max(0.0, count - before.get(bucket, 0.0))
            if grown > 0:
                self._jobs[key[0]].latencies[bucket] += grown
        self._sketches[key] = (incarnation, histogram)

    def figures(self) -> dict[str, dict[str, Any]]:
        """The figures of each job over the whole run, as plain data."""
        span_s = self.now_s - self.began_s
        figures = {}
        for name, job in self._jobs.items():
            latencies = Sketches.of([job.latencies])
            known = job.met[True] + job.met[False]
            figures[name] = {
                "seconds": span_s,
                "arrived": job.totals["arrived"],
                "taken": job.totals["taken"],
                "written": job.totals["written"],
                "failed": job.totals["failed"] + job.totals["unreadable"],
                "input_per_s": job.totals["arrived"] / span_s if span_s > 0 else None,
                "output_per_s": job.totals["written"] / span_s if span_s > 0 else None,
                "p50_ms": plain(sketch.quantile(latencies, 0.5)[0]),
                "p95_ms": plain(sketch.quantile(latencies, 0.95)[0]),
                "intent_met": job.met[True] / known if known else None,
            }
        return figures


def _rows(snapshot: Snapshot, table: str, column: str) -> Iterator[tuple[Row, float, float]]:
    """The key, the incarnation and the value of each row of a column that is known."""
    rows: Any = getattr(snapshot, table)
    keys: Mapping[Row, int] = getattr(snapshot.layout, f"{table.removesuffix('s')}_row")
    for key, row in keys.items():
        incarnation, value = float(rows.incarnation[row]), float(rows.column(column)[row])
        if not (np.isnan(incarnation) or np.isnan(value)):
            yield key, incarnation, value
