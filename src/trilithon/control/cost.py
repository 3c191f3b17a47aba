"""Learns the cost of actions: for how long a job processed no records after each kind of action.

Reports come about every second and count what each instance has taken. After an action, the job is
watched for the longest time between two reports with progress. What exceeds twice the report
interval (an action may fall anywhere between two reports) is the gap; a shorter one cannot be seen
and counts as 0. A job without progress since the action, or without progress though records arrive,
is watched until it makes progress, for ten minutes at most: an outage longer than the usual watch
is learned in full.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Final

from trilithon.model.capability import Ability
from trilithon.model.layout import NodeKey
from trilithon.model.report import Report

# Chosen: the last gap counts half, the one before a quarter …
NEWEST_SHARE: Final = 0.5
# Chosen: a job without records for so long after an action teaches nothing.
LONGEST_WATCH_S: Final = 600.0


@dataclass
class _Watch:
    """A job after an action: when it last made progress, and the longest time without."""

    ability: Ability
    until_s: float
    moved_s: float
    taken: dict[tuple[str, str, int], float] = field(default_factory=dict)
    longest_s: float = 0.0
    moves: int = 0
    # What had arrived at its sources at the last report, and whether more arrived since the last
    # progress.
    arrived: dict[NodeKey, float] = field(default_factory=dict)
    stalled: bool = False

    @property
    def recovering(self) -> bool:
        return not self.moves or self.stalled


@dataclass(frozen=True, slots=True)
class Gap:
    job: str
    ability: Ability
    seconds: float


class Costs:
    """Watches jobs after actions."""

    def __init__(self, watch_s: float) -> None:
        self.watch_s = watch_s
        self._watched: dict[str, _Watch] = {}
        self._last_report_s: dict[str, float] = {}
        # Per sender and table its keys, and where the rows of each job are among them.
        self._places: dict[tuple[str, str], tuple[object, dict[str, list[int]]]] = {}
        self._interval_s: float | None = None

    def began(self, job: str, ability: Ability, now_s: float) -> None:
        self._watched[job] = _Watch(ability, now_s + self.watch_s, now_s)

    def forget(self, job: str) -> None:
        self._watched.pop(job, None)

    def forget_all(self) -> None:
        self._watched.clear()

    def take(self, reports: Iterable[Report]) -> None:
        for report in reports:
            before = self._last_report_s.get(report.sender)
            self._last_report_s[report.sender] = report.time_s
            if before is not None and report.time_s > before:
                span_s = report.time_s - before
                known = self._interval_s
                self._interval_s = span_s if known is None else min(2 * known, span_s)
            if self._watched:
                self._look(report)

    def _look(self, report: Report) -> None:
        instances = self._rows(report.sender, "instances", report.instance_keys)
        sources = self._rows(report.sender, "sources", report.source_keys)
        named = self._watched.keys() & (instances.keys() | sources.keys())
        taken = report.instances.taken.tolist() if named else []
        for job in named:
            watch = self._watched[job]
            moved = _moved(watch, report, taken, instances.get(job, ()))
            if moved and report.time_s > watch.moved_s:
                watch.longest_s = max(watch.longest_s, report.time_s - watch.moved_s)
                watch.moved_s = report.time_s
                watch.moves += 1
                watch.stalled = False
            elif _arrived(watch, report, sources.get(job, ())):
                watch.stalled = True

    def _rows(
        self, sender: str, table: str, keys: Sequence[tuple[str, *tuple[str | int, ...]]]
    ) -> dict[str, list[int]]:
        known = self._places.get((sender, table))
        if known is not None and (known[0] is keys or known[0] == keys):
            return known[1]
        places: dict[str, list[int]] = {}
        for row, key in enumerate(keys):
            places.setdefault(key[0], []).append(row)
        self._places[sender, table] = (keys, places)
        return places

    def ended(self, now_s: float) -> tuple[Gap, ...]:
        """The gaps of actions whose watch is over. A job that made no progress at all teaches
        nothing: perhaps there were no records.
        """
        over = [
            job
            for job, watch in self._watched.items()
            if now_s >= watch.until_s
            and (not watch.recovering or now_s >= watch.until_s - self.watch_s + LONGEST_WATCH_S)
        ]
        gaps = []
        for job in over:
            watch = self._watched.pop(job)
            if watch.stalled:
                watch.longest_s = max(watch.longest_s, now_s - watch.moved_s)
            if watch.moves or watch.stalled:
                gap_s = watch.longest_s - 2 * (self._interval_s or 0.0)
                gaps.append(Gap(job, watch.ability, max(0.0, gap_s)))
        return tuple(gaps)


def _moved(watch: _Watch, report: Report, taken: Sequence[float], rows: Sequence[int]) -> bool:
    """Whether any of these instances took a record since the previous report."""
    moved = False
    for row in rows:
        now = taken[row]
        if isnan(now):
            continue
        key = report.instance_keys[row]
        # A counter that fell was restarted: records flow again.
        moved |= watch.taken.get(key, now) != now
        watch.taken[key] = now
    return moved


def _arrived(watch: _Watch, report: Report, rows: Sequence[int]) -> bool:
    """Whether records arrived at these sources since the previous report."""
    more = False
    for row in rows:
        now = float(report.sources.arrived[row])
        if not isnan(now):
            key = report.source_keys[row]
            more |= now > watch.arrived.get(key, now)
            watch.arrived[key] = now
    return more


def learned(before: tuple[float, int] | None, gap_s: float) -> tuple[float, int]:
    """The expected gap and the number of gaps it was learned from, after one more."""
    if before is None:
        return gap_s, 1
    known, times = before
    return (1 - NEWEST_SHARE) * known + NEWEST_SHARE * gap_s, times + 1
