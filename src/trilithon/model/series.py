"""Owns the snapshots that a policy may look back on, and the windows between two of them."""

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
    """What happened between two snapshots: counters as their growth, gauges as of its end.

    Its rows are those of its end. What an instance did that has gone since is not in them; the
    counters of its edges have it.
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
    """Snapshots in the order of time, no more than `limit_s` seconds of them."""

    snapshots: tuple[Snapshot, ...]
    limit_s: float = float("inf")

    def __post_init__(self) -> None:
        times = [snapshot.time_s for snapshot in self.snapshots]
        if any(after <= before for before, after in pairwise(times)):
            raise InvalidRecording("The snapshots of a series must follow each other in time.")
        if self.snapshots and np.isfinite(self.limit_s):
            horizon = times[-1] - self.limit_s
            old = sum(time_s <= horizon for time_s in times)
            object.__setattr__(self, "snapshots", self.snapshots[max(0, old - 1) :])

    @classmethod
    def of(cls, snapshots: Iterable[Snapshot], limit_s: float = float("inf")) -> "Series":
        return cls((), limit_s).extended(snapshots)

    def extended(self, snapshots: Iterable[Snapshot]) -> "Series":
        """A series with more at its end; what is older than the limit falls out at its beginning.

        One snapshot at or before the limit is kept: a window that long needs both of its ends.
        """
        return replace(self, snapshots=(*self.snapshots, *snapshots))

    def __len__(self) -> int:
        return len(self.snapshots)

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]

    def window(self, span_s: float | None = None) -> Window | None:
        """The window that ends now and is as long as asked, or as long as the series is.

        Its beginning is the youngest snapshot that is old enough. None without two ends: a single
        snapshot has a window only if it says since when its counters run.
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

    def windows(self) -> tuple[Window, ...]:
        """The windows between each snapshot and the next."""
        if len(self.snapshots) == 1:
            only = self.window()
            return () if only is None else (only,)
        return tuple(_between(before, after) for before, after in pairwise(self.snapshots))


def _zero(snapshot: Snapshot, since_s: float) -> Snapshot:
    """The moment at which the counters of a snapshot were 0."""
    zeroed = {}
    for name in ("instances", "edges", "sources", "sinks"):
        table = getattr(snapshot, name)
        zeroed[name] = type(table)(
            **{
                column.name: (0.0 if column.counter else 1.0) * table.column(column.name)
                for column in table.describe()
            }
        )
    nothing = Sketches.of({} if known else None for known in snapshot.latencies.known)
    return replace(snapshot, time_s=since_s, since_s=None, latencies=nothing, **zeroed)


# Several parts of a round look at the same window. It is made once, and goes with its snapshots.
_made: WeakKeyDictionary[Snapshot, WeakKeyDictionary[Snapshot, Window]] = WeakKeyDictionary()


def _between(before: Snapshot, after: Snapshot) -> Window:
    made = _made.setdefault(after, WeakKeyDictionary())
    if (found := made.get(before)) is None:
        found = made[before] = _make_window(before, after)
    return found


def _make_window(before: Snapshot, after: Snapshot) -> Window:
    same = before.layout is after.layout
    aligned = before if same else _aligned(before, after)
    anew, broken = columns.incarnations(aligned.sinks, after.sinks)
    return Window(
        start_s=before.time_s,
        end_s=after.time_s,
        layout=after.layout,
        instances=columns.difference(aligned.instances, after.instances),
        edges=columns.difference(aligned.edges, after.edges),
        sources=columns.difference(aligned.sources, after.sources),
        sinks=columns.difference(aligned.sinks, after.sinks),
        latencies=sketches.difference(aligned.latencies, after.latencies, anew, broken),
        machines=after.machines,
        jobs=after.jobs,
        # Sent to an instance and not taken by it, at the end of the window.
        queue=np.maximum(0.0, after.instances.sent - after.instances.taken),
        # Arrived in the log and not read, at the end of the window.
        lag=np.maximum(0.0, after.sources.arrived - after.sources.taken),
    )


def _aligned(snapshot: Snapshot, after: Snapshot) -> Snapshot:
    """The rows of a snapshot in the order of those of a later one.

    A row that was not there began at 0 in between: its counters are 0, not missing.
    """
    old, layout = snapshot.layout, after.layout
    instances = _rows(old.instance_row, layout.instance_row)
    edges = _rows(old.edge_row, layout.edge_row)
    sources = _rows(old.source_row, layout.source_row)
    sinks = _rows(old.sink_row, layout.sink_row)
    found = snapshot.latencies.take(sinks)
    began = _began(snapshot.instances, after.instances, instances)
    return replace(
        snapshot,
        layout=layout,
        # Machines have other rows now, if they are there at all; where an instance was is not needed.
        instances=replace(began, machine=np.full(len(instances), np.nan)),
        edges=_began(snapshot.edges, after.edges, edges),
        sources=_began(snapshot.sources, after.sources, sources),
        sinks=_began(snapshot.sinks, after.sinks, sinks),
        latencies=replace(found, known=found.known | (sinks < 0)),
        machines=snapshot.machines.take(_rows(old.machine_row, layout.machine_row)),
    )


def _rows(old: Mapping[columns.Key, int], new: Mapping[columns.Key, int]) -> Ints:
    return np.fromiter(map(old.get, new, repeat(-1)), dtype=np.int64, count=len(new))


def _began(before: columns.C, after: columns.C, rows: Ints) -> columns.C:
    found = before.take(rows)
    return type(before)(
        **{
            column.name: np.where(
                rows < 0,
                0.0 if column.counter else after.column(column.name),
                found.column(column.name),
            )
            for column in before.describe()
        }
    )
