"""Assembles snapshots from the reports of all senders.

Every engine sends the same reports, so that no engine can know more than another. Counters of a row
from several senders add up; of a gauge the newest report counts. A row is missing while a sender
that counted for it is silent: half a sum is worse than none. Counts of an earlier incarnation of a
job than the latest known are dropped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

import numpy as np

from trilithon.model.allocation import Allocation
from trilithon.model.columns import (
    Bools,
    Columns,
    Edges,
    Floats,
    Instances,
    Ints,
    Machines,
    Sinks,
    Sources,
)
from trilithon.model.job import Job
from trilithon.model.layout import InstanceKey, JobLayout, Layout, NodeKey
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches, summed
from trilithon.model.snapshot import Snapshot

# Senders report every second. One that missed three is silent.
SILENT_AFTER_S: Final = 3.5


@dataclass
class _Sender:
    """The last report of a sender, and the number of reports that were lost."""

    report: Report
    lost: int = 0
    gone: bool = False


@dataclass(frozen=True)
class _Return:
    """How often an instance came back, and what it had counted then, in which incarnation of its
    job.
    """

    times: int
    life: float
    counted: Mapping[str, float]


@dataclass(frozen=True)
class _Places:
    """Where the rows of several reports stand in a table of the snapshot, report after report: −1
    for a row that is not expected.
    """

    by_report: tuple[Ints, ...]
    rows: Ints
    # Which of all rows belongs to which report.
    parts: tuple[slice, ...]
    # What a row of the snapshot gets from the first report that has it, then from the second, ...
    turns: tuple[Ints, ...]

    @classmethod
    def of(cls, by_report: Sequence[Ints], rows: int) -> "_Places":
        ends = np.cumsum([len(places) for places in by_report], dtype=np.int64).tolist()
        # The last entry is for rows that are not expected.
        before, turn = np.zeros(rows + 1, np.int64), []
        for places in by_report:
            turn.append(before[places])
            before[places] += 1
        every, turns = _joined(by_report), _joined(turn)
        return cls(
            tuple(by_report),
            every,
            tuple(slice(end - len(p), end) for end, p in zip(ends, by_report, strict=True)),
            tuple(
                np.flatnonzero((turns == number) & (every >= 0))
                for number in range(before[:-1].max(initial=0))
            ),
        )


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


@dataclass
class Assembler:
    """Keeps the last report of each sender, and knows which jobs are expected."""

    silent_after_s: float = SILENT_AFTER_S
    _senders: dict[str, _Sender] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _parallelism: dict[str, dict[str, int]] = field(default_factory=dict)
    _instances: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    # The instances of operators that do not use the first ones, as the engine last reported.
    _placed: Mapping[NodeKey, tuple[int, ...]] = field(default_factory=dict)
    _parts: dict[str, JobLayout] = field(default_factory=dict)
    _layout: Layout | None = None
    _known: Mapping[str, Job] = field(default_factory=dict)
    # What an instance had counted when it came back, and how often: it counts from 0 again.
    _returned: dict[InstanceKey, _Return] = field(default_factory=dict)
    _gone: set[InstanceKey] = field(default_factory=set)
    # The layout's rows for each sender's tables, and for those of all: looked up once per layout.
    _rows: dict[tuple[str, str], tuple[Layout, object, Ints]] = field(default_factory=dict)
    _places: dict[str, _Places] = field(default_factory=dict)

    def expect(self, job: Job, allocation: Allocation) -> None:
        """Expects a job with the instances of this allocation: they are rows from now on."""
        self._jobs = {**self._jobs, job.id: job}
        self._parallelism[job.id] = dict(allocation.parallelism)
        self._lay(job)

    def _lay(self, job: Job) -> None:
        """The rows of a job: the first instances of each operator, or those that the engine
        reported.
        """
        before, now = self._instances.get(job.id, {}), {}
        for operator, count in self._parallelism[job.id].items():
            placed = self._placed.get((job.id, operator), ())
            now[operator] = placed if len(placed) == count else tuple(range(count))
            was = before.get(operator, ())
            self._gone |= {(job.id, operator, index) for index in was if index not in now[operator]}
            for index in now[operator]:
                if index not in was:
                    self._came_back((job.id, operator, index))
        self._instances[job.id] = now
        self._parts[job.id] = JobLayout.of(job, now)
        self._layout = None

    def forget(self, job: str) -> None:
        """Forgets a job and everything known of it."""
        self._jobs = {name: known for name, known in self._jobs.items() if name != job}
        self._parallelism.pop(job, None)
        self._instances.pop(job, None)
        self._parts.pop(job, None)
        self._returned = {key: v for key, v in self._returned.items() if key[0] != job}
        self._gone = {key for key in self._gone if key[0] != job}
        self._layout = None

    def lose(self, sender: str) -> None:
        """A sender will not report again: its counts stay in the sums, its machine is gone."""
        if sender in self._senders:
            self._senders[sender].gone = True
            self._layout = None

    def lose_silent(self, before_s: float) -> None:
        """Marks senders as lost whose last report is older than this time and that run nothing any
        more. Otherwise an executor that died unnoticed would hide a job for ever. A silent sender
        that runs an instance which no other sender has taken over stays: what it counts for is
        missing.
        """
        last = {name: sender.report for name, sender in self._senders.items() if not sender.gone}
        reporting = [report for report in last.values() if report.time_s >= before_s]
        silent = {name: report for name, report in last.items() if report.time_s < before_s}
        if not silent:
            return
        lives: dict[InstanceKey, float] = {}
        for report in [*reporting, *silent.values()]:
            for key, life in zip(report.instance_keys, report.instances.incarnation, strict=True):
                lives[key] = max(float(life), lives.get(key, -np.inf))
        taken_over = {key for report in reporting for key in _run_by(report)}
        expected = self._current_layout().instance_row
        for name, report in silent.items():
            still = {
                key
                for key, life in _run_by(report).items()
                if key in expected and life >= lives[key] and key not in taken_over
            }
            if not still:
                self.lose(name)

    def take(self, report: Report) -> None:
        """Takes a report. A report older than the last of its sender changes nothing."""
        sender = self._senders.get(report.sender)
        if sender is None:
            self._senders[report.sender] = _Sender(report)
            self._layout = None
        elif report.sequence > sender.report.sequence:
            sender.lost += report.sequence - sender.report.sequence - 1
            if report.machine_keys != sender.report.machine_keys:
                self._layout = None
            sender.report = report
        for name in report.lost:
            self.lose(name)
        if report.placed is not None and report.placed != self._placed:
            self._placed = dict(report.placed)
            for job in self._jobs.values():
                self._lay(job)

    @property
    def lost_reports(self) -> int:
        return sum(sender.lost for sender in self._senders.values())

    def snapshot(self, time_s: float) -> Snapshot:
        """The snapshot of everything known at this time."""
        layout = self._current_layout()
        reports = self._reports(gone=True) + self._reports(gone=False)
        silent = [r for r in self._reports(gone=False) if r.time_s < time_s - self.silent_after_s]
        tables: dict[str, Any] = {}
        for name, table, rows in (
            ("instance", Instances, layout.instance_row),
            ("edge", Edges, layout.edge_row),
            ("source", Sources, layout.source_row),
            ("sink", Sinks, layout.sink_row),
            ("machine", Machines, layout.machine_row),
        ):
            places = self._places_of(reports, name, rows)
            block = _merge(reports, places, silent, name, len(rows), table)
            if name == "instance":
                self._since_return(layout, reports, places, block)
            tables[f"{name}s"] = table.of_block(block)
        return Snapshot(
            time_s=time_s,
            layout=layout,
            latencies=_latencies(reports, self._places["sink"], silent, len(layout.sink_row)),
            jobs=self._known,
            **tables,
        )

    def _reports(self, *, gone: bool) -> list[Report]:
        """The last reports of the senders that are there, or of those that are lost, the newest
        last.
        """
        reports = [sender.report for sender in self._senders.values() if sender.gone is gone]
        return sorted(reports, key=lambda report: (report.time_s, report.sender))

    def _places_of(self, reports: Iterable[Report], name: str, rows: Mapping[Any, int]) -> _Places:
        """Per report the row of the layout for each of its keys."""
        layout = self._current_layout()
        by_report = []
        for report in reports:
            keys = getattr(report, f"{name}_keys")
            known = self._rows.get((report.sender, name))
            if known is None or known[0] is not layout or known[1] != keys:
                place = np.fromiter(map(rows.get, keys, repeat(-1)), np.int64, len(keys))
                known = self._rows[report.sender, name] = (layout, keys, place)
            by_report.append(known[2])
        places = self._places.get(name)
        if places is None or list(map(id, places.by_report)) != list(map(id, by_report)):
            places = self._places[name] = _Places.of(by_report, len(rows))
        return places

    def _current_layout(self) -> Layout:
        if self._layout is None:
            self._known = dict(self._jobs)
            machines = sorted(
                {name for report in self._reports(gone=False) for name in report.machine_keys}
            )
            self._layout = Layout.join([self._parts[name] for name in self._known], machines)
        return self._layout

    def _came_back(self, key: InstanceKey) -> None:
        """An instance that was there before counts from 0 again, in a new incarnation."""
        if key not in self._gone:
            return
        self._gone.discard(key)
        reports = self._reports(gone=True) + self._reports(gone=False)
        places = [
            np.array([0 if other == key else -1 for other in report.instance_keys], np.int64)
            for report in reports
        ]
        block = _merge(reports, _Places.of(places, 1), [], "instance", 1, Instances)
        merged = dict(zip(Instances.names(), block, strict=True))
        counters = [column.name for column in Instances.describe() if column.counter]
        counted = {name: float(np.nan_to_num(merged[name][0])) for name in counters}
        before = self._returned.get(key)
        times = 1 if before is None else before.times + 1
        self._returned[key] = _Return(times, float(merged["incarnation"][0]), counted)

    def _since_return(
        self, layout: Layout, reports: Sequence[Report], places: _Places, block: Floats
    ) -> None:
        """Adds to the instances where they run, and takes away what they counted before they came
        back.
        """
        columns = dict(zip(Instances.names(), block, strict=True))
        machine = columns["machine"]
        machine[:] = np.nan
        for report, rows in zip(reports, places.by_report, strict=True):
            on = layout.machine_row.get(report.machine_keys[0]) if report.machine_keys else None
            if on is not None and not self._senders[report.sender].gone:
                machine[rows[(rows >= 0) & _runs(report)]] = on
        for key, back in self._returned.items():
            if (place := layout.instance_row.get(key)) is None:
                continue
            life = columns["incarnation"][place]
            columns["incarnation"][place] += back.times
            if life > back.life:
                continue  # the whole job was restarted since, and counted from 0 by itself
            for name, value in back.counted.items():
                columns[name][place] = max(0.0, columns[name][place] - value)


def _runs(report: Report) -> Bools:
    """Which of the instances in a report run at its sender. A report without machines runs what it
    measured.
    """
    here = report.instances.machine
    return ~np.isnan(report.instances.busy_s if np.isnan(here).all() else here)


def _run_by(report: Report) -> dict[InstanceKey, float]:
    """The instances that run at a sender, with their incarnations; the host runs none."""
    if not report.machine_keys:
        return {}
    rows = zip(report.instance_keys, _runs(report), report.instances.incarnation, strict=True)
    return {key: float(life) for key, runs, life in rows if runs}


def _merge(
    reports: Sequence[Report],
    places: _Places,
    silent: Sequence[Report],
    name: str,
    rows: int,
    table: type[Columns],
) -> Floats:
    """The columns of a table: counters added up, gauges of the newest report; rows that a silent
    sender counted for are missing.
    """
    merged = np.full((len(table.names()), rows), np.nan)
    if not reports:
        return merged
    counted = np.concatenate([getattr(report, f"{name}s").block for report in reports], axis=1)
    current = _current(reports, places, name, rows)
    for turn in places.turns:
        target = current[turn]
        if target.min() < 0:
            turn, target = turn[target >= 0], target[target >= 0]  # noqa: PLW2901
        values, before = counted[:, turn], merged[:, target]
        # A value that only one has is taken; if both have one, the column decides.
        newest = np.where(table.largest(), np.fmax(before, values), values)
        both = np.where(table.adding(), before + values, newest)
        here = np.where(np.isnan(before), values, both)
        merged[:, target] = np.where(np.isnan(values), before, here)
    merged[:, _quiet(reports, places, silent, current)] = np.nan
    return merged


def _quiet(
    reports: Sequence[Report], places: _Places, silent: Sequence[Report], current: Ints
) -> Ints:
    """The rows that a silent sender counts for."""
    silently = {id(report) for report in silent}
    parts = zip(reports, places.parts, strict=True)
    rows = _joined([current[part] for report, part in parts if id(report) in silently])
    return rows[rows >= 0]


def _current(reports: Sequence[Report], places: _Places, name: str, rows: int) -> Ints:
    """The snapshot's row for each row of the reports: −1 for a row that is not expected, and for a
    row of an earlier incarnation than the latest that any sender knows.
    """
    if name == "machine":
        return places.rows
    incarnation = np.concatenate(
        [np.zeros(0), *(getattr(report, f"{name}s").incarnation for report in reports)]
    )
    lives = np.full(rows + 1, -np.inf)  # the last entry is for rows that are not expected
    np.fmax.at(lives, places.rows, incarnation)
    return np.where(incarnation < lives[places.rows], -1, places.rows)


def _latencies(
    reports: Sequence[Report], places: _Places, silent: Sequence[Report], rows: int
) -> Sketches:
    known = np.zeros(rows, dtype=bool)
    entries: list[tuple[Ints, Ints, Floats]] = []
    current = _current(reports, places, "sink", rows)
    for report, part in zip(reports, places.parts, strict=True):
        place, sketches = current[part], report.latencies
        if not len(place):
            continue
        known[place[(place >= 0) & sketches.known]] = True
        row = place[sketches.entry_row]
        mine = row >= 0
        entries.append((row[mine], sketches.buckets[mine], sketches.counts[mine]))
    known[_quiet(reports, places, silent, current)] = False
    if not entries:
        return Sketches.missing(rows)
    row, bucket, count = (np.concatenate(column) for column in zip(*entries, strict=True))
    return summed(row, bucket, count, known)
