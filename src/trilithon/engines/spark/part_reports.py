"""Joins what the parts of a job count to the rows of the whole job.

Each part counts in incarnations of its own, since it is restarted by itself. A cut edge is counted
by two parts, the sending and the receiving one, and a sink by every part that writes to it. Such a
row has the incarnation of the whole job: what a part counted before it was restarted stays in it.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.engines.spark.cuts import is_cut, is_part, job_of
from trilithon.model.columns import Columns, Edges, Sinks
from trilithon.model.job import Edge

Rows = MutableMapping[Any, dict[str, float]]
# What the part before a cut knows of the edge, and what the part behind it knows. The time that the
# reader of an internal topic is held back is not the sender's.
_SENDING: Final = frozenset({"emitted", "parked_s", "senders", "clock_error_s"})
_RECEIVING: Final = frozenset(
    {"taken", "transfers", "channel_s", "batching_s", "idle_transport_s", "clock_error_s"}
)
_EMITTED: Final = frozenset({"emitted"})


@dataclass
class WholeJobs:
    """The jobs that have several parts, by name, each with its incarnation; and per sender and
    part what was counted in earlier incarnations of the part.
    """

    incarnations: dict[str, float] = field(default_factory=dict)
    # The cut edges over which a source's own topics are read: nobody else sends on them.
    own_topics: dict[str, frozenset[str]] = field(default_factory=dict)
    # The cut edges that are broadcast: the part behind makes the copies, and counts them.
    broadcast: dict[str, frozenset[str]] = field(default_factory=dict)
    _before: dict[str, dict["_Key", dict[Any, float]]] = field(default_factory=dict)
    _last: dict[str, dict["_Key", tuple[float, dict[Any, float]]]] = field(default_factory=dict)

    def forget(self, job: str) -> None:
        """The job has ended."""
        self.incarnations.pop(job, None)
        self.own_topics.pop(job, None)
        self.broadcast.pop(job, None)
        for before in self._before.values():
            for key in [key for key in before if job_of(key.part) == job]:
                del before[key]
        for last in self._last.values():
            for key in [key for key in last if job_of(key.part) == job]:
                del last[key]

    def lose(self, sender: str) -> None:
        """The sender will not report again."""
        self._before.pop(sender, None)
        self._last.pop(sender, None)

    def join(
        self,
        sender: str,
        instances: Rows,
        edges: Rows,
        sources: Rows,
        sinks: Rows,
        histograms: MutableMapping[Any, dict[int, float]],
    ) -> None:
        """Replaces the rows of parts by those of their jobs. Of a part that does not run now, what
        the sender counted before stays in the sums.
        """
        reported: set[_Key] = set()
        for part, operator, index in [key for key in instances if is_part(key[0])]:
            instances[job_of(part), operator, index] = instances.pop((part, operator, index))
        for part, source in [key for key in sources if is_part(key[0])]:
            row = sources.pop((part, source))
            if not is_cut(source):
                sources[job_of(part), source] = row
        for key in [key for key in edges if is_part(key[0])]:
            self._edge(sender, key, edges.pop(key), edges, reported)
        for part, sink in [key for key in sinks if is_part(key[0])]:
            row, histogram = sinks.pop((part, sink)), histograms.pop((part, sink), {})
            if is_cut(sink):
                continue
            row_key = _Key(sender, part, "sink", (sink,))
            buckets_key = _Key(sender, part, "latencies", (sink,))
            reported |= {row_key, buckets_key}
            life = row["incarnation"]
            _add(sinks, row_key.whole, self._continued(row_key, life, row), Sinks)
            counted = self._continued(buckets_key, life, histogram)
            _add(histograms, buckets_key.whole, counted, None)
        last = self._last.get(sender, {})
        for key in [key for key in last if key not in reported]:
            rows, table = {"edge": (edges, Edges), "sink": (sinks, Sinks)}.get(
                key.kind, (histograms, None)
            )
            _add(rows, key.whole, self._continued(key, *last[key]), table)

    def host_edge(self, part: str, edge: Edge) -> tuple[str, str, str] | None:
        """The edge of the whole job that the host reports for an edge of a part. A cut edge is
        reported for the part that sends; None for the other one.
        """
        job = job_of(part)
        own = edge.source in self.own_topics.get(job, frozenset())
        if is_cut(edge.source) and not own:
            return None
        name = edge.source if own else edge.target if is_cut(edge.target) else ""
        sent, _, received = name.partition(".")
        return (job, sent, received) if name else (job, edge.source, edge.target)

    def _edge(
        self,
        sender: str,
        key: tuple[str, str, str],
        row: dict[str, float],
        edges: Rows,
        reported: set["_Key"],
    ) -> None:
        part, source, target = key
        job = job_of(part)
        if not is_cut(source) and not is_cut(target):
            edges[job, source, target] = row
            return
        name = source if is_cut(source) else target
        own = is_cut(source) and name in self.own_topics.get(job, frozenset())
        sent, _, received = name.partition(".")
        known = _SENDING if is_cut(target) else _RECEIVING | _SENDING if own else _RECEIVING
        if name in self.broadcast.get(job, frozenset()) and not own:
            known = known - _EMITTED if is_cut(target) else known | _EMITTED
        kept = {column: value for column, value in row.items() if column in known}
        place = _Key(sender, part, "edge", (sent, received))
        reported.add(place)
        _add(edges, place.whole, self._continued(place, row["incarnation"], kept), Edges)

    def _continued(self, key: "_Key", life: float, row: Mapping[Any, float]) -> dict[Any, float]:
        """A row with what the sender counted for it in earlier incarnations of the part."""
        table = _TABLES.get(key.kind)
        counted = {name: value for name, value in row.items() if _counts(table, name)}
        lasts = self._last.setdefault(key.sender, {})
        last_life, last = lasts.get(key, (life, {}))
        before = self._before.setdefault(key.sender, {}).setdefault(key, {})
        if life > last_life:
            for name, value in last.items():
                before[name] = before.get(name, 0.0) + value
        if life >= last_life:
            lasts[key] = (life, counted)
        else:
            counted = last  # of an earlier incarnation, which is in the sum already
        total = {name: before.get(name, 0.0) + counted.get(name, 0.0) for name in before | counted}
        if table is None:
            return total
        incarnation = self.incarnations.get(job_of(key.part), life)
        gauges = {name: value for name, value in row.items() if not _counts(table, name)}
        return {**gauges, **total, "incarnation": incarnation}


@dataclass(frozen=True, slots=True)
class _Key:
    """A row of a whole job, as one sender counts it for one part."""

    sender: str
    part: str
    kind: str
    nodes: tuple[str, ...]

    @property
    def whole(self) -> tuple[str, ...]:
        return (job_of(self.part), *self.nodes)


_TABLES: Final[dict[str, type[Columns]]] = {"edge": Edges, "sink": Sinks}
_COUNTERS: Final = {
    table: frozenset(column.name for column in table.describe() if column.counter)
    for table in _TABLES.values()
}


def _counts(table: type[Columns] | None, name: Any) -> bool:
    """Whether a column is a counter; in a histogram everything is."""
    return table is None or name in _COUNTERS[table]


def _add(
    rows: MutableMapping[Any, Any],
    key: Any,
    row: Mapping[Any, float],
    table: type[Columns] | None,
) -> None:
    """Adds counters to those in the row; gauges replace what is in it."""
    into = rows.setdefault(key, {})
    for name, value in row.items():
        into[name] = into.get(name, 0.0) + value if _counts(table, name) else value
