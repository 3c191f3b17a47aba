"""Defines a series: the snapshots that a policy may look back on, and the windows between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from trilithon.errors import InvalidRecording
from trilithon.model import columns, sketches
from trilithon.model.columns import Edges, Instances, Ints, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.sketches import Sketches
from trilithon.model.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class Window:
    """The difference of two snapshots: the growth of counters, and gauges at the end.

    The rows are those of the later snapshot. The work of an instance that has been removed since is
    not in the instance rows, but it is in the counters of its edges.
    """

    start_s: float
    end_s: float
    layout: Layout
    instances: Instances
    edges: Edges
    sources: Sources
    sinks: Sinks
    latencies: Sketches
    machines: Machines
    jobs: Mapping[str, Job]
    queue: npt.NDArray[np.float64]
    lag: npt.NDArray[np.float64]

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, eq=False)
class Series:
    """Snapshots in order of time, reaching back at most `limit_s` seconds."""

    snapshots: tuple[Snapshot, ...]
    limit_s: float = float("inf")

    def __post_init__(self) -> None:
        times = [snapshot.time_s for snapshot in self.snapshots]
        if any(after <= before for before, after in pairwise(times)):
            raise InvalidRecording("The times of the snapshots in a series must increase.")
        if self.snapshots and np.isfinite(self.limit_s):
            horizon = times[-1] - self.limit_s
            old = sum(time_s <= horizon for time_s in times)
            object.__setattr__(self, "snapshots", self.snapshots[max(0, old - 1) :])

    @classmethod
    def of(cls, snapshots: Iterable[Snapshot], limit_s: float = float("inf")) -> "Series":
        return cls((), limit_s).extended(snapshots)

    def extended(self, snapshots: Iterable[Snapshot]) -> "Series":
        """A series with the snapshots appended; those older than the limit are dropped.

        The youngest snapshot at or beyond the limit is kept: it is the start of the longest window.
        """
        return replace(self, snapshots=(*self.snapshots, *snapshots))

    def __len__(self) -> int:
        return len(self.snapshots)

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]

    def window(self, span_s: float | None = None) -> Window | None:
        """The window of the last `span_s` seconds, or of the whole series.

        It starts at the youngest snapshot that is old enough. None if there is no earlier snapshot:
        a single one has a window only if its `since_s` is known.
        """
        if not self.snapshots:
            return None
        last = self.last
        before: Sequence[Snapshot] = self.snapshots[:-1]
        if not before:
            return None if last.since_s is None else _between(_zero(last, last.since_s), last)
        if span_s is None:
            return _between(before[0], last)
        old = [s for s in before if s.time_s <= last.time_s - span_s * (1 - 1e-9)]
        return _between(old[-1] if old else before[0], last)

    def parts(self, window: Window, part_s: float) -> Sequence[Window]:
        """A window of this series in parts of at least this length; the window itself if it is too
        short for two.
        """
        ends = [self.last]
        for snapshot in reversed(self.snapshots[:-1]):
            if snapshot.time_s < window.start_s:
                break
            if ends[-1].time_s - snapshot.time_s >= part_s * (1 - 1e-9):
                ends.append(snapshot)
        pairs = [Series(pair).window() for pair in pairwise(reversed(ends))]
        return [part for part in pairs if part is not None] or [window]

    def windows(self) -> tuple[Window, ...]:
        """The windows between each snapshot and the next."""
        if len(self.snapshots) == 1:
            only = self.window()
            return () if only is None else (only,)
        return tuple(_between(before, after) for before, after in pairwise(self.snapshots))


def _zero(snapshot: Snapshot, since_s: float) -> Snapshot:
    """The snapshot at the time when its counters were 0."""
    zeroed = {}
    for name in ("instances", "edges", "sources", "sinks"):
        table = getattr(snapshot, name)
        block = table.block.copy()
        block[table.counters()] *= 0.0
        zeroed[name] = table.of_block(block)
    empty = Sketches.of({} if known else None for known in snapshot.latencies.known)
    return replace(snapshot, time_s=since_s, since_s=None, latencies=empty, **zeroed)


# Several measures of a round use the same window: it is cached as long as its snapshots exist.
_cache: WeakKeyDictionary[Snapshot, WeakKeyDictionary[Snapshot, Window]] = WeakKeyDictionary()


def _between(before: Snapshot, after: Snapshot) -> Window:
    windows = _cache.setdefault(after, WeakKeyDictionary())
    if (window := windows.get(before)) is None:
        window = windows[before] = _make_window(before, after)
    return window


def _make_window(before: Snapshot, after: Snapshot) -> Window:
    same = before.layout is after.layout
    aligned = before if same else _aligned(before, after)
    restarted, unknown = columns.restarts(aligned.sinks, after.sinks)
    return Window(
        start_s=before.time_s,
        end_s=after.time_s,
        layout=after.layout,
        instances=columns.difference(aligned.instances, after.instances),
        edges=columns.difference(aligned.edges, after.edges),
        sources=columns.difference(aligned.sources, after.sources),
        sinks=columns.difference(aligned.sinks, after.sinks),
        latencies=sketches.difference(aligned.latencies, after.latencies, restarted, unknown),
        machines=after.machines,
        jobs=after.jobs,
        # At the end of the window: sent to an instance and not taken by it.
        queue=np.maximum(0.0, after.instances.sent - after.instances.taken),
        # At the end of the window: arrived in the topics of a source and not read.
        lag=np.maximum(0.0, after.sources.arrived - after.sources.taken),
    )


def _aligned(snapshot: Snapshot, after: Snapshot) -> Snapshot:
    """A snapshot with the rows of a later one.

    A row that it does not have started in between: its counters are 0, not missing.
    """
    old, layout = snapshot.layout, after.layout
    instances = _rows(old.instance_row, layout.instance_row)
    edges = _rows(old.edge_row, layout.edge_row)
    sources = _rows(old.source_row, layout.source_row)
    sinks = _rows(old.sink_row, layout.sink_row)
    latencies = snapshot.latencies.take(sinks)
    aligned_instances = _aligned_table(snapshot.instances, after.instances, instances)
    return replace(
        snapshot,
        layout=layout,
        # The rows of machines may have changed; the old machine of an instance is not needed.
        instances=replace(aligned_instances, machine=np.full(len(instances), np.nan)),
        edges=_aligned_table(snapshot.edges, after.edges, edges),
        sources=_aligned_table(snapshot.sources, after.sources, sources),
        sinks=_aligned_table(snapshot.sinks, after.sinks, sinks),
        latencies=replace(latencies, known=latencies.known | (sinks < 0)),
        machines=snapshot.machines.take(_rows(old.machine_row, layout.machine_row)),
    )


def _rows(old: Mapping[columns.Key, int], new: Mapping[columns.Key, int]) -> Ints:
    """For each new row, its old row; −1 if there was none."""
    return np.fromiter(map(old.get, new, repeat(-1)), dtype=np.int64, count=len(new))


def _aligned_table(before: columns.C, after: columns.C, rows: Ints) -> columns.C:
    """The old rows; for new ones, counters of 0 and the gauges of `after`."""
    new = after.block.copy()
    new[after.counters()] = 0.0
    return before.of_block(np.where(rows < 0, new, before.take(rows).block))
