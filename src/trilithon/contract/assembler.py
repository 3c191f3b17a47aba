"""Assembles snapshots from the reports of all senders.

Every engine sends the same reports, so that no engine can know more than another. Counters of a row
from several senders add up; of a gauge the newest report counts. A row is missing while a sender
that counted for it is silent: half a sum is worse than none. Counts of an earlier incarnation of a
job than the latest known are dropped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import is_
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
from trilithon.model.report import Report, ReportBatch
from trilithon.model.sketches import Sketches, summed
from trilithon.model.snapshot import Snapshot

# Senders report every second. One that missed three is silent.
SILENT_AFTER_S: Final = 3.5
# Clocks of two machines are never so far apart.
SET_BACK_S: Final = 60.0
# How many senders that ended are kept apart, before their counts are added up.
_ENDED_APART: Final = 8
# The name under which those counts are kept, and how many names of their senders: their last
# reports may arrive late.
_ENDED: Final = "(ended)"
_ENDED_NAMES: Final = 1000
# A sender that was lost in silence may come back, but not after so long.
_ENDED_AFTER_S: Final = 600.0


@dataclass
class _Sender:
    """The last report of a sender, and the number of reports that were lost."""

    report: Report
    lost: int = 0
    gone: bool = False
    # It will never report again: the engine has said so, or it has been lost for long.
    ended: bool = False


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
    # and which rows of the snapshot these are.
    turns: tuple[Ints, ...]
    targets: tuple[Ints, ...]

    @classmethod
    def of(cls, by_report: Sequence[Ints], rows: int) -> "_Places":
        ends = np.cumsum([len(places) for places in by_report], dtype=np.int64).tolist()
        # The last entry is for rows that are not expected.
        before, turn = np.zeros(rows + 1, np.int64), []
        for places in by_report:
            turn.append(before[places])
            before[places] += 1
        every, number = _joined(by_report), _joined(turn)
        turns = tuple(
            np.flatnonzero((number == i) & (every >= 0)) for i in range(before[:-1].max(initial=0))
        )
        return cls(
            tuple(by_report),
            every,
            tuple(slice(end - len(p), end) for end, p in zip(ends, by_report, strict=True)),
            turns,
            tuple(every[turn] for turn in turns),
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
    # The senders whose counts were added up, the latest last.
    _ended: dict[str, None] = field(default_factory=dict)
    # The rows of the instances in the last report of a sender whose rows were looked up.
    _instance_rows: dict[str, tuple[object, dict[InstanceKey, int]]] = field(default_factory=dict)
    # The keys of all reports for which `_places` were made.
    _last_keys: dict[str, tuple[Layout, list[object]]] = field(default_factory=dict)

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
        for sender in self._senders.values():
            if sender.ended:
                sender.report = _without(sender.report, job)
        self._layout = None

    def lose(self, sender: str) -> None:
        """A sender will not report again: its counts stay in the sums, its machine is gone."""
        if sender in self._senders:
            self._senders[sender].gone = True
            self._layout = None

    def lose_silent(self, now_s: float, stale_s: float) -> None:
        """Marks senders as lost whose last report is older than `stale_s`, or of before the clock
        was set back, and that run nothing any more. Otherwise an executor that died unnoticed would
        hide a job for ever. A silent sender that runs an instance which no other sender has taken
        over stays: what it counts for is missing.
        """
        before_s, after_s = now_s - stale_s, now_s + SET_BACK_S
        for sender in self._senders.values():
            sender.ended |= sender.gone and sender.report.time_s < before_s - _ENDED_AFTER_S
        self._add_up_ended()
        last = {name: sender.report for name, sender in self._senders.items() if not sender.gone}
        silent = {
            name: report
            for name, report in last.items()
            if not before_s <= report.time_s <= after_s
        }
        if not silent:
            return
        reporting = [report for name, report in last.items() if name not in silent]
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
        if report.sender in self._ended:
            return
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
            if name in self._senders:
                self._senders[name].ended = True
        self._add_up_ended()
        if report.placed is not None and report.placed != self._placed:
            self._placed = dict(report.placed)
            for job in self._jobs.values():
                self._lay(job)

    def _add_up_ended(self) -> None:
        """Adds up the counts of senders that ended, when there are many: an engine that loses
        executors for months keeps as much as one that loses none.
        """
        ended = {name: sender for name, sender in self._senders.items() if sender.ended}
        if len(ended) <= _ENDED_APART:
            return
        for name in ended:
            del self._senders[name]
            self._ended[name] = None
        while len(self._ended) > _ENDED_NAMES:
            del self._ended[next(iter(self._ended))]
        self._rows = {key: rows for key, rows in self._rows.items() if key[0] not in ended}
        lost = sum(sender.lost for sender in ended.values())
        sums = _added_up([sender.report for sender in ended.values()])
        self._senders[_ENDED] = _Sender(sums, lost, gone=True, ended=True)
        self._ended.pop(_ENDED, None)

    @property
    def lost_reports(self) -> int:
        return sum(sender.lost for sender in self._senders.values())

    def snapshot(self, time_s: float) -> Snapshot:
        """The snapshot of everything known at this time."""
        layout = self._current_layout()
        there = self._reports(gone=False)
        reports = self._reports(gone=True) + there
        silent = [report for report in there if self._is_old(report, time_s)]
        whole = _in_batches(reports)
        tables: dict[str, Any] = {}
        for name, table, rows in (
            ("instance", Instances, layout.instance_row),
            ("edge", Edges, layout.edge_row),
            ("source", Sources, layout.source_row),
            ("sink", Sinks, layout.sink_row),
            ("machine", Machines, layout.machine_row),
        ):
            places = self._places_of(reports, name, rows)
            counted = _counted(whole, name, table)
            current = _current(counted, places, table, len(rows))
            if name == "sink":
                quiet = _quiet(reports, places, silent, current)
                latencies = _latencies(whole, current, quiet, len(rows))
            block = _merge(reports, places, silent, counted, current, table, len(rows))
            if name == "instance":
                self._since_return(layout, reports, places, counted, block)
            tables[f"{name}s"] = table.of_block(block)
        return Snapshot(
            time_s=time_s,
            layout=layout,
            latencies=latencies,
            jobs=self._known,
            **tables,
        )

    def _is_old(self, report: Report, time_s: float) -> bool:
        """Whether a sender is silent; one whose last report lies far in the future has sent nothing
        since the clock was set back.
        """
        age_s = time_s - report.time_s
        return age_s > self.silent_after_s or age_s < -SET_BACK_S

    def _reports(self, *, gone: bool) -> list[Report]:
        """The last reports of the senders that are there, or of those that are lost, the newest
        last.
        """
        reports = [sender.report for sender in self._senders.values() if sender.gone is gone]
        return sorted(reports, key=lambda report: (report.time_s, report.sender))

    def _places_of(self, reports: Sequence[Report], name: str, rows: Mapping[Any, int]) -> _Places:
        """Per report the row of the layout for each of its keys."""
        layout, attribute = self._current_layout(), f"{name}_keys"
        all_keys = [getattr(report, attribute) for report in reports]
        last = self._last_keys.get(name)
        if last is not None and last[0] is layout and _are_same(last[1], all_keys):
            return self._places[name]
        self._last_keys[name] = (layout, all_keys)
        by_report = []
        for report, keys in zip(reports, all_keys, strict=True):
            known = self._rows.get((report.sender, name))
            if (
                known is None
                or known[0] is not layout
                or (known[1] is not keys and known[1] != keys)
            ):
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
        columns = [
            report.instances.block[:, [row]]
            for report in reports
            if (row := self._instance_row(report, key)) is not None
        ]
        reported = np.concatenate([np.zeros((len(Instances.names()), 0)), *columns], axis=1)
        places = _Places.of([np.zeros(1, np.int64)] * len(columns), 1)
        current = _current(reported, places, Instances, 1)
        block = _merge(reports, places, [], reported, current, Instances, 1)
        merged = dict(zip(Instances.names(), block, strict=True))
        counters = [column.name for column in Instances.describe() if column.counter]
        counted = {name: float(np.nan_to_num(merged[name][0])) for name in counters}
        before = self._returned.get(key)
        times = 1 if before is None else before.times + 1
        self._returned[key] = _Return(times, float(merged["incarnation"][0]), counted)

    def _instance_row(self, report: Report, key: InstanceKey) -> int | None:
        """The row of an instance in a report; None if it does not have it."""
        known = self._instance_rows.get(report.sender)
        if known is None or known[0] is not report.instance_keys:
            rows = {other: row for row, other in enumerate(report.instance_keys)}
            known = self._instance_rows[report.sender] = (report.instance_keys, rows)
        return known[1].get(key)

    def _since_return(
        self,
        layout: Layout,
        reports: Sequence[Report],
        places: _Places,
        counted: Floats,
        block: Floats,
    ) -> None:
        """Adds to the instances where they run, and takes away what they counted before they came
        back.
        """
        columns = dict(zip(Instances.names(), block, strict=True))
        machine = columns["machine"]
        machine[:] = np.nan
        machines = np.array([self._machine_row(layout, report) for report in reports], np.int64)
        on = np.repeat(machines, np.array([len(rows) for rows in places.by_report], np.int64))
        here = (on >= 0) & (places.rows >= 0) & _run_here(reports, counted)
        # The newest report comes last, and counts.
        machine[places.rows[here]] = on[here]
        for key, back in self._returned.items():
            if (place := layout.instance_row.get(key)) is None:
                continue
            life = columns["incarnation"][place]
            columns["incarnation"][place] += back.times
            if life > back.life:
                continue  # the whole job was restarted since, and counted from 0 by itself
            for name, value in back.counted.items():
                columns[name][place] = max(0.0, columns[name][place] - value)

    def _machine_row(self, layout: Layout, report: Report) -> int:
        """The row of a sender's machine; −1 if it has none, or is lost."""
        if not report.machine_keys or self._senders[report.sender].gone:
            return -1
        return layout.machine_row.get(report.machine_keys[0], -1)


def _are_same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether these are the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def _run_here(reports: Sequence[Report], counted: Floats) -> Bools:
    """Which of the instances of all reports run at their senders."""
    row_of = Instances.row_of()
    if np.isnan(counted[row_of["machine"]]).all():
        measured: Bools = ~np.isnan(counted[row_of["busy_s"]])
        return measured
    return np.concatenate([np.zeros(0, bool), *map(_runs, reports)])


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


_ROWS: Final[dict[str, type[Columns]]] = {
    "instance": Instances,
    "edge": Edges,
    "source": Sources,
    "sink": Sinks,
}


def _added_up(reports: Iterable[Report]) -> Report:
    """The sums of several reports, without machines."""
    ordered = sorted(reports, key=lambda report: (report.time_s, report.sender))
    tables: dict[str, Any] = {}
    for name, table in _ROWS.items():
        keys_of = [getattr(report, f"{name}_keys") for report in ordered]
        rows = {key: i for i, key in enumerate(dict.fromkeys(k for keys in keys_of for k in keys))}
        places = _Places.of(
            [np.array([rows[key] for key in keys], np.int64) for keys in keys_of], len(rows)
        )
        tables[f"{name}_keys"] = tuple(rows)
        counted = _counted(ordered, name, table)
        current = _current(counted, places, table, len(rows))
        block = _merge(ordered, places, [], counted, current, table, len(rows))
        tables[f"{name}s"] = table.of_block(block)
        if name == "sink":
            tables["latencies"] = _latencies(ordered, current, np.zeros(0, np.int64), len(rows))
    return Report(sender=_ENDED, sequence=0, time_s=ordered[-1].time_s, **tables)


def _without(report: Report, job: str) -> Report:
    """A report without the rows of a job."""
    tables: dict[str, Any] = {}
    for name in _ROWS:
        keys = getattr(report, f"{name}_keys")
        kept = np.array([i for i, key in enumerate(keys) if key[0] != job], np.int64)
        tables[f"{name}_keys"] = tuple(keys[i] for i in kept)
        tables[f"{name}s"] = getattr(report, f"{name}s").take(kept)
        if name == "sink":
            tables["latencies"] = report.latencies.take(kept)
    return replace(report, **tables)


def _in_batches(reports: Sequence[Report]) -> list[Report | ReportBatch]:
    """The reports in their order, with a batch in place of those of it if all are there."""
    whole: list[Report | ReportBatch] = []
    at = 0
    while at < len(reports):
        batch = reports[at].batch
        end = at if batch is None else at + batch.reports
        mine = reports[at:end]
        if batch is None or [(r.batch, r.place) for r in mine] != [
            (batch, place) for place in range(batch.reports)
        ]:
            whole.append(reports[at])
            at += 1
        else:
            whole.append(batch)
            at = end
    return whole


def _counted(reports: Sequence[Report | ReportBatch], name: str, table: type[Columns]) -> Floats:
    """The rows of all reports, report after report."""
    blocks = [getattr(report, f"{name}s").block for report in reports]
    return np.concatenate([np.zeros((len(table.names()), 0)), *blocks], axis=1)


def _merge(
    reports: Sequence[Report],
    places: _Places,
    silent: Sequence[Report],
    counted: Floats,
    current: Ints,
    table: type[Columns],
    rows: int,
) -> Floats:
    """The columns of a table: counters added up, gauges of the newest report; rows that a silent
    sender counted for are missing.
    """
    merged = np.full((len(table.names()), rows), np.nan)
    for number, turn in enumerate(places.turns):
        target = places.targets[number] if current is places.rows else current[turn]
        if target.min() < 0:
            turn, target = turn[target >= 0], target[target >= 0]  # noqa: PLW2901
        values = counted[:, turn]
        if number == 0:
            merged[:, target] = values
            continue
        before = merged[:, target]
        # A value that only one has is taken; if both have one, the column decides.
        newest = np.where(table.largest(), np.fmax(before, values), values)
        both = np.where(table.adding(), before + values, newest)
        here = np.where(np.isnan(before), values, both)
        merged[:, target] = np.where(np.isnan(values), before, here)
    if silent:
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


def _current(counted: Floats, places: _Places, table: type[Columns], rows: int) -> Ints:
    """The snapshot's row for each row of the reports: −1 for a row that is not expected, and for a
    row of an earlier incarnation than the latest that any sender knows.
    """
    row = table.row_of().get("incarnation")
    if row is None or not len(places.rows):
        return places.rows
    incarnation = counted[row]
    if incarnation.min() == incarnation.max():
        return places.rows  # nothing was restarted, the usual case
    lives = np.full(rows + 1, -np.inf)  # the last entry is for rows that are not expected
    np.fmax.at(lives, places.rows, incarnation)
    return np.where(incarnation < lives[places.rows], -1, places.rows)


def _latencies(
    reports: Sequence[Report | ReportBatch], current: Ints, quiet: Ints, rows: int
) -> Sketches:
    """The histograms of the sinks; those of rows that a silent sender counts for are missing."""
    known = np.zeros(rows, dtype=bool)
    entries: list[tuple[Ints, Ints, Floats]] = []
    end = 0
    for report in reports:
        sketches = report.latencies
        place = current[end : end + len(sketches)]
        end += len(sketches)
        if not len(place):
            continue
        known[place[(place >= 0) & sketches.known]] = True
        row = place[sketches.entry_row]
        mine = row >= 0
        entries.append((row[mine], sketches.buckets[mine], sketches.counts[mine]))
    known[quiet] = False
    if not entries:
        return Sketches.missing(rows)
    row, bucket, count = (np.concatenate(column) for column in zip(*entries, strict=True))
    return summed(row, bucket, count, known)
