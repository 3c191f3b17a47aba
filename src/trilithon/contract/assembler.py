"""Owns putting reports together: what every sender knows of a job becomes one snapshot.

Every engine sends the same reports and this makes snapshots of them, so that no engine can know more
than another. Counters of one row from several senders add up; of a gauge the youngest report counts.
A row is missing while a sender that counted for it is silent: half a sum is worse than none. What was
counted in an earlier life of a job than the latest that anybody knows does not count any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from trilithon.model.allocation import Allocation
from trilithon.model.columns import Columns, Edges, Instances, Ints, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.layout import InstanceKey, Layout
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
    gone: bool = False


@dataclass(frozen=True)
class _Return:
    """How often an instance came back, and what it had counted then, in which life of its job."""

    times: int
    life: float
    counted: Mapping[str, float]


@dataclass
class Assembler:
    """Keeps the last report of each sender and knows which jobs there should be."""

    silent_after_s: float = SILENT_AFTER_S
    _senders: dict[str, _Sender] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _parallelism: dict[str, dict[str, int]] = field(default_factory=dict)
    _layout: Layout | None = None
    _known: Mapping[str, Job] = field(default_factory=dict)
    # What an instance had counted when it came back, and how often it did: it begins at 0 again.
    _returned: dict[InstanceKey, _Return] = field(default_factory=dict)
    _gone: set[InstanceKey] = field(default_factory=set)

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
        self._layout = None

    def forget(self, job: str) -> None:
        """A job is gone, and what was known of it."""
        self._jobs = {name: known for name, known in self._jobs.items() if name != job}
        self._parallelism.pop(job, None)
        self._returned = {key: v for key, v in self._returned.items() if key[0] != job}
        self._gone = {key for key in self._gone if key[0] != job}
        self._layout = None

    def lose(self, sender: str) -> None:
        """A sender will not report again: what it counted stays in the sums, its machine is gone."""
        if sender in self._senders:
            self._senders[sender].gone = True
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
        for sender in report.lost:
            self.lose(sender)

    @property
    def lost_reports(self) -> int:
        return sum(sender.lost for sender in self._senders.values())

    def snapshot(self, time_s: float) -> Snapshot:
        """Everything known at this time."""
        layout = self._current_layout()
        reports = self._reports(gone=True) + self._reports(gone=False)
        silent = [r for r in self._reports(gone=False) if r.time_s < time_s - self.silent_after_s]
        merged = {
            name: _merge(reports, silent, name, rows, table)
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
            instances=Instances(**self._since_return(layout, merged["instance"])),
            edges=Edges(**merged["edge"]),
            sources=Sources(**merged["source"]),
            sinks=Sinks(**merged["sink"]),
            latencies=_latencies(reports, silent, layout.sink_row),
            machines=Machines(**merged["machine"]),
            jobs=self._known,
        )

    def _reports(self, *, gone: bool) -> list[Report]:
        """The last reports of the senders that are there, or of those that are gone, the youngest last."""
        found = [sender.report for sender in self._senders.values() if sender.gone is gone]
        return sorted(found, key=lambda report: (report.time_s, report.sender))

    def _current_layout(self) -> Layout:
        if self._layout is None:
            self._known = dict(self._jobs)
            machines = sorted(
                {name for report in self._reports(gone=False) for name in report.machine_keys}
            )
            self._layout = Layout.build(self._known.values(), self._parallelism, machines)
        return self._layout

    def _came_back(self, key: InstanceKey) -> None:
        """An index that was there before counts from 0 again, in a new incarnation."""
        if key not in self._gone:
            return
        self._gone.discard(key)
        reports = self._reports(gone=True) + self._reports(gone=False)
        merged = _merge(reports, [], "instance", {key: 0}, Instances)
        counters = [column.name for column in Instances.describe() if column.counter]
        counted = {name: float(np.nan_to_num(merged[name][0])) for name in counters}
        before = self._returned.get(key)
        times = 1 if before is None else before.times + 1
        self._returned[key] = _Return(times, float(merged["incarnation"][0]), counted)

    def _since_return(self, layout: Layout, columns: dict[str, Any]) -> dict[str, Any]:
        machine = np.full(len(layout.instance_row), np.nan)
        for report, rows in _placed(self._reports(gone=False), "instance", layout.instance_row):
            on = layout.machine_row.get(report.machine_keys[0]) if report.machine_keys else None
            if on is not None:
                machine[rows[(rows >= 0) & ~np.isnan(report.instances.busy_s)]] = on
        columns["machine"] = machine
        for key, back in self._returned.items():
            if (place := layout.instance_row.get(key)) is None:
                continue
            life = columns["incarnation"][place]
            columns["incarnation"][place] += back.times
            if life > back.life:
                continue  # the whole job began anew since, and counted from 0 by itself
            for name, value in back.counted.items():
                columns[name][place] = max(0.0, columns[name][place] - value)
        return columns


def _merge(
    reports: list[Report],
    silent: list[Report],
    name: str,
    rows: Mapping[Any, int],
    table: type[Columns],
) -> dict[str, Any]:
    """Counters added up, gauges of the youngest; rows that a silent sender counted for are missing."""
    placed = _placed(reports, name, rows)
    found: list[Columns] = [getattr(report, f"{name}s") for report, _ in placed]
    place = np.concatenate([np.zeros(0, np.int64), *(place for _, place in placed)])
    mine = place >= 0
    place = place[mine]
    merged: dict[str, Any] = {}
    # All reports in one go, the youngest last: a loop over many senders would cost more than the sums.
    for column in table.describe():
        values = np.concatenate([np.zeros(0), *(one.column(column.name) for one in found)])[mine]
        known = ~np.isnan(values)
        target, values = place[known], values[known]
        if column.adds:
            total = np.bincount(target, values, minlength=len(rows))
            told = np.bincount(target, minlength=len(rows)) > 0
            merged[column.name] = np.where(told, total, np.nan)
        else:
            merged[column.name] = np.full(len(rows), np.nan)
            merged[column.name][target] = values
    silently = {id(report) for report in silent}
    quiet = sorted({row for r, p in placed if id(r) in silently for row in p[p >= 0].tolist()})
    for values in merged.values():
        values[quiet] = np.nan
    return merged


def _placed(reports: list[Report], name: str, rows: Mapping[Any, int]) -> list[tuple[Report, Ints]]:
    """Each report with the rows of a snapshot that its rows are: −1 for one that nobody expects, and for
    one of an earlier life than the latest that any sender knows of that row.
    """
    placed = [
        (report, np.array([rows.get(k, -1) for k in getattr(report, f"{name}_keys")], np.int64))
        for report in reports
    ]
    if name == "machine":
        return placed
    lives = np.full(len(rows) + 1, -np.inf)  # the last one is for what nobody expects
    for report, place in placed:
        life = getattr(report, f"{name}s").incarnation
        np.fmax.at(lives, place, life)
    for report, place in placed:
        place[getattr(report, f"{name}s").incarnation < lives[place]] = -1
    return placed


def _latencies(reports: list[Report], silent: list[Report], rows: Mapping[Any, int]) -> Sketches:
    known = np.zeros(len(rows), dtype=bool)
    entries: list[tuple[Any, Any, Any]] = []
    silently = {id(report) for report in silent}
    quiet: set[int] = set()
    for report, place in _placed(reports, "sink", rows):
        if id(report) in silently:
            quiet.update(place[place >= 0].tolist())
        found = report.latencies
        known[place[(place >= 0) & found.known]] = True
        row = place[found.entry_row] if len(place) else np.zeros(0, np.int64)
        mine = row >= 0
        entries.append((row[mine], found.buckets[mine], found.counts[mine]))
    known[sorted(quiet)] = False
    if not entries:
        return Sketches.missing(len(rows))
    row, bucket, count = (np.concatenate(column) for column in zip(*entries, strict=True))
    return summed(row, bucket, count, known)
