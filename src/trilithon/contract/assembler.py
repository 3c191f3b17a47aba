"""Owns putting reports together: what every sender knows of a job becomes one snapshot.

Every engine sends the same reports and this makes snapshots of them, so that no engine can know more
than another. Counters of one row from several senders add up; of a gauge the youngest report counts.
A row is missing while a sender that counted for it is silent: half a sum is worse than none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Final

import numpy as np

from trilithon.model.allocation import Allocation
from trilithon.model.columns import Columns, Edges, Instances, Ints, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.layout import InstanceKey, Layout, Part
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches, summed
from trilithon.model.snapshot import Snapshot

# Senders report every second. One that missed three is silent.
SILENT_AFTER_S: Final = 3.5


@dataclass
class _Sender:
    """The last report of one sender, and what was lost on the way."""

    report: Report
    lost: int = 0


@dataclass
class Assembler:
    """Keeps the last report of each sender and knows which jobs there should be."""

    silent_after_s: float = SILENT_AFTER_S
    _senders: dict[str, _Sender] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _parallelism: dict[str, dict[str, int]] = field(default_factory=dict)
    _parts: dict[str, Part] = field(default_factory=dict)
    _layout: Layout | None = None
    _known: Mapping[str, Job] = field(default_factory=dict)
    # What an instance had counted when it came back, and how often it did: it begins at 0 again.
    _returned: dict[InstanceKey, tuple[int, dict[str, float]]] = field(default_factory=dict)
    _gone: set[InstanceKey] = field(default_factory=set)
    # Where the rows of each sender's tables are in the layout: looked up once per layout.
    _places: dict[tuple[str, str], tuple[Layout, object, Ints]] = field(default_factory=dict)

    def expect(self, job: Job, allocation: Allocation) -> None:
        """A job is there, with so many instances: from now on they are rows."""
        before = self._parallelism.get(job.id, {})
        for operator, count in allocation.parallelism.items():
            was = before.get(operator, 0)
            self._gone |= {(job.id, operator, index) for index in range(count, was)}
            for index in range(was, count):
                self._came_back((job.id, operator, index))
        self._jobs = {**self._jobs, job.id: job}
        self._parallelism[job.id] = dict(allocation.parallelism)
        self._parts[job.id] = Part.of(job, self._parallelism[job.id])
        self._layout = None

    def forget(self, job: str) -> None:
        """A job is gone, and what was known of it."""
        self._jobs = {name: known for name, known in self._jobs.items() if name != job}
        self._parallelism.pop(job, None)
        self._parts.pop(job, None)
        self._returned = {key: v for key, v in self._returned.items() if key[0] != job}
        self._gone = {key for key in self._gone if key[0] != job}
        self._layout = None

    def lose(self, sender: str) -> None:
        """A sender will not report again: what it counted stays in the sums."""
        if sender in self._senders:
            found = self._senders[sender]
            found.report = replace(found.report, time_s=np.inf)

    def forget_silent(self, before_s: float) -> None:
        """Senders that reported last before this time are gone, and so is what they counted: the sums
        they were part of begin anew. Otherwise one executor that died would hide a job for ever.
        """
        gone = [name for name, one in self._senders.items() if one.report.time_s < before_s]
        for name in gone:
            del self._senders[name]
            self._places = {key: place for key, place in self._places.items() if key[0] != name}
            self._layout = None

    def take(self, report: Report) -> None:
        """A report came. One that is older than the last of its sender changes nothing."""
        found = self._senders.get(report.sender)
        if found is None:
            self._senders[report.sender] = _Sender(report)
            self._layout = None
        elif report.sequence > found.report.sequence:
            found.lost += report.sequence - found.report.sequence - 1
            if report.machine_keys != found.report.machine_keys:
                self._layout = None
            found.report = report

    @property
    def lost_reports(self) -> int:
        return sum(sender.lost for sender in self._senders.values())

    def snapshot(self, time_s: float) -> Snapshot:
        """Everything known at this time."""
        layout = self._current_layout()
        reports = [sender.report for sender in self._senders.values()]
        reports.sort(key=lambda report: (report.time_s, report.sender))
        silent = [r for r in reports if r.time_s < time_s - self.silent_after_s]
        merged = {
            name: _merge(reports, self._rows_of(reports, name, rows), silent, name, rows, table)
            for name, table, rows in (
                ("instance", Instances, layout.instance_row),
                ("edge", Edges, layout.edge_row),
                ("source", Sources, layout.source_row),
                ("sink", Sinks, layout.sink_row),
                ("machine", Machines, layout.machine_row),
            )
        }
        return Snapshot(
            time_s=time_s,
            layout=layout,
            instances=Instances(**self._since_return(layout, merged["instance"], reports)),
            edges=Edges(**merged["edge"]),
            sources=Sources(**merged["source"]),
            sinks=Sinks(**merged["sink"]),
            latencies=_latencies(reports, silent, layout.sink_row),
            machines=Machines(**merged["machine"]),
            jobs=self._known,
        )

    def _rows_of(self, reports: Iterable[Report], name: str, rows: Mapping[Any, int]) -> list[Ints]:
        """Per report the row of the layout for each of its keys, −1 where there is none."""
        layout = self._current_layout()
        found = []
        for report in reports:
            keys = getattr(report, f"{name}_keys")
            known = self._places.get((report.sender, name))
            if known is None or known[0] is not layout or known[1] != keys:
                place = np.fromiter(map(rows.get, keys, repeat(-1)), np.int64, len(keys))
                known = self._places[report.sender, name] = (layout, keys, place)
            found.append(known[2])
        return found

    def _current_layout(self) -> Layout:
        if self._layout is None:
            self._known = dict(self._jobs)
            machines = sorted(
                {name for sender in self._senders.values() for name in sender.report.machine_keys}
            )
            self._layout = Layout.join([self._parts[name] for name in self._known], machines)
        return self._layout

    def _came_back(self, key: InstanceKey) -> None:
        """An index that was there before counts from 0 again, in a new incarnation."""
        if key not in self._gone:
            return
        self._gone.discard(key)
        counted: dict[str, float] = {}
        for sender in self._senders.values():
            keys = sender.report.instance_keys
            for row in (i for i, found in enumerate(keys) if found == key):
                for column in Instances.describe():
                    value = sender.report.instances.column(column.name)[row]
                    if column.counter and not np.isnan(value):
                        counted[column.name] = counted.get(column.name, 0.0) + float(value)
        times, _ = self._returned.get(key, (0, {}))
        self._returned[key] = (times + 1, counted)

    def _since_return(
        self, layout: Layout, columns: dict[str, Any], reports: Iterable[Report]
    ) -> dict[str, Any]:
        machine = np.full(len(layout.instance_row), np.nan)
        sent = list(reports)
        for report, places in zip(
            sent, self._rows_of(sent, "instance", layout.instance_row), strict=True
        ):
            on = layout.machine_row.get(report.machine_keys[0]) if report.machine_keys else None
            if on is not None:
                machine[places[(places >= 0) & ~np.isnan(report.instances.busy_s)]] = on
        columns["machine"] = machine
        for key, (times, counted) in self._returned.items():
            if (place := layout.instance_row.get(key)) is None:
                continue
            columns["incarnation"][place] += times
            for name, value in counted.items():
                columns[name][place] = max(0.0, columns[name][place] - value)
        return columns


def _merge(
    reports: list[Report],
    places: list[Ints],
    silent: list[Report],
    name: str,
    rows: Mapping[Any, int],
    table: type[Columns],
) -> dict[str, Any]:
    """Counters added up, gauges of the youngest; rows that a silent sender counted for are missing."""
    merged = {column.name: np.full(len(rows), np.nan) for column in table.describe()}
    for report, place in zip(reports, places, strict=True):
        found: Columns = getattr(report, f"{name}s")
        mine = place >= 0
        for column in table.describe():
            values = found.column(column.name)[mine]
            known = ~np.isnan(values)
            target, values = place[mine][known], values[known]
            column_of = merged[column.name]
            if column.adds:
                column_of[target] = (
                    np.where(np.isnan(column_of[target]), 0, column_of[target]) + values
                )
            else:
                column_of[target] = values
    quiet = {key for report in silent for key in getattr(report, f"{name}_keys")}
    for key in quiet:
        if (place_of := rows.get(key)) is not None:
            for values in merged.values():
                values[place_of] = np.nan
    return merged


def _latencies(reports: list[Report], silent: list[Report], rows: Mapping[Any, int]) -> Sketches:
    known = np.zeros(len(rows), dtype=bool)
    entries: list[tuple[Any, Any, Any]] = []
    for report in reports:
        place = np.array([rows.get(key, -1) for key in report.sink_keys], dtype=np.int64)
        found = report.latencies
        known[place[(place >= 0) & found.known]] = True
        row = place[found.entry_row] if len(place) else np.zeros(0, np.int64)
        mine = row >= 0
        entries.append((row[mine], found.buckets[mine], found.counts[mine]))
    for report in silent:
        for key in report.sink_keys:
            if key in rows:
                known[rows[key]] = False
    if not entries:
        return Sketches.missing(len(rows))
    row, bucket, count = (np.concatenate(column) for column in zip(*entries, strict=True))
    return summed(row, bucket, count, known)
