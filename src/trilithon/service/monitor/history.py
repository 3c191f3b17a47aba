"""Keeps the recent past of all jobs, for plots, lost utility and the API.

Every round adds a point in memory. What was before the daemon's start, or before the oldest point,
is in the journal, which has one every `series_every_s`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trilithon.control.compact import JOB_COLUMNS, CompactSeries, JobsPoint, Singles, jobs_columns
from trilithon.model.columns import Floats
from trilithon.model.job import tenant_of
from trilithon.model.snapshot import plain
from trilithon.service.monitor.facts import RoundFacts

if TYPE_CHECKING:
    from trilithon.control.journal import Journal
    from trilithon.measures.assess import Assessment

HOUR_S: Final = 3600.0
# A thousand jobs take 40 MB when the ring is full.
ROUNDS: Final = 1000
# What the API answers of a job.
COLUMNS: Final = ("utility", "max_utility", "slots", "p95_ms", "juice")


@dataclass(frozen=True)
class _Tenants:
    """The tenants of some jobs: their names, and the row of each job's tenant."""

    names: tuple[str, ...]
    rows: np.ndarray

    @classmethod
    def of(cls, jobs: tuple[str, ...]) -> "_Tenants":
        owners = [tenant_of(job) for job in jobs]
        row = {name: i for i, name in enumerate(dict.fromkeys(owners))}
        return cls(tuple(row), np.array([row[owner] for owner in owners], dtype=int))

    def totals(self, columns: dict[str, Singles]) -> Floats:
        """A column per tenant: how many of its jobs have a utility, the sums of their utility and
        maximum, and the slots of all of its jobs.
        """
        known = ~np.isnan(columns["utility"])
        weights = (
            known,
            np.where(known, columns["utility"], 0),
            np.where(known, columns["max_utility"], 0),
            columns["slots"],
        )
        return np.stack([np.bincount(self.rows, w, len(self.names)) for w in weights])


@dataclass(frozen=True, slots=True)
class _Round:
    """A round: what it measured of each job, and of each tenant together."""

    point: JobsPoint
    slots: int | None
    tenants: _Tenants
    totals: Floats


class History:
    """The last rounds of all jobs, and the last hour of the journal before them."""

    def __init__(self, journal: "Journal | None" = None, rounds: int = ROUNDS) -> None:
        self._lock = threading.Lock()
        self._series = None if journal is None else CompactSeries(journal)
        self._ring: deque[_Round] = deque(maxlen=rounds)
        self._jobs: tuple[str, ...] = ()
        self._tenants = _Tenants.of(())
        # What the journal has from before a point: the time of that point, and the journal's.
        self._earlier: tuple[float, tuple[JobsPoint, ...]] = (0.0, ())

    def add(self, facts: RoundFacts, assessment: "Assessment | None" = None) -> None:
        """Adds a round. `assessment` has the numbers of the jobs that were measured in it."""
        if tuple(facts.jobs) != self._jobs:
            self._jobs = tuple(facts.jobs)  # one tuple for all rounds with the same jobs
            self._tenants = _Tenants.of(self._jobs)
        jobs = facts.jobs.values()
        columns = _measured(self._jobs, assessment)
        # The window of a job that has just stopped may still have numbers of it.
        stopped = np.array([not job.has_slots for job in jobs], dtype=bool)
        for column in columns.values():
            column[stopped] = np.nan
        columns["slots"] = np.array([job.slots if job.has_slots else 0 for job in jobs], "f4")
        columns["max_utility"] = np.array([job.max_utility for job in jobs], "f4")
        point = JobsPoint(facts.time_s, self._jobs, columns)
        done = _Round(point, facts.slots, self._tenants, self._tenants.totals(columns))
        with self._lock:
            # A clock that was set back must not fold the plot over itself.
            while self._ring and self._ring[-1].point.time_s >= facts.time_s:
                self._ring.pop()
            self._ring.append(done)

    def points(self, since_s: float | None = None) -> Sequence[JobsPoint]:
        """The points after a time, by default of the last hour, up to the last round."""
        with self._lock:
            rounds = [done.point for done in self._ring]
            if not rounds:
                return []
            if since_s is None:
                since_s = rounds[-1].time_s - HOUR_S
            first_s = rounds[0].time_s
            if since_s < first_s and self._earlier[0] != first_s and self._series is not None:
                known = self._series.read_jobs(rounds[-1].time_s - HOUR_S)
                before = tuple(point for point in known if point.time_s < first_s)
                self._earlier = (first_s, before)
            earlier = self._earlier[1] if since_s < first_s else ()
        return [point for point in (*earlier, *rounds) if point.time_s > since_s]

    def read(
        self,
        sees: Callable[[str], bool],
        since_s: float = 0.0,
        points: int = 500,
        jobs: Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """Columns over time of the tenants that `sees` allows: their total, and those of each of
        `jobs`. At most `points` of them, evenly chosen, the newest among them.
        """
        with self._lock:
            entries = [done for done in self._ring if done.point.time_s > since_s]
        step = max(1, -(-len(entries) // points))
        chosen = entries[::-1][::step][::-1]
        totals = _totals(chosen, sees)
        unknown = totals[:, 0] == 0
        wanted = [] if jobs is None else [job for job in jobs if sees(tenant_of(job))]
        return {
            "time_s": [done.point.time_s for done in chosen],
            "utility": list(map(plain, np.where(unknown, np.nan, totals[:, 1]))),
            "max_utility": list(map(plain, np.where(unknown, np.nan, totals[:, 2]))),
            "slots_used": totals[:, 3].astype(int).tolist(),
            "slots": [done.slots for done in chosen],
            "jobs": {job: _columns([done.point for done in chosen], job) for job in wanted},
        }


def _totals(rounds: Sequence[_Round], sees: Callable[[str], bool]) -> Floats:
    """A row per round: the totals of the tenants that are seen. All rounds with the same tenants at
    once: one by one they would cost as much as all other work of an answer.
    """
    parts = [np.zeros((0, 4))]
    for _, group in groupby(rounds, lambda done: id(done.tenants)):
        alike = list(group)
        mine = np.array([sees(name) for name in alike[0].tenants.names], dtype=float)
        parts.append(np.stack([done.totals for done in alike]) @ mine)
    return np.concatenate(parts)


def _measured(jobs: tuple[str, ...], assessment: "Assessment | None") -> dict[str, Singles]:
    """The columns of an assessment in the order of these jobs; NaN of what it does not have."""
    if assessment is None:
        return {name: np.full(len(jobs), np.nan, dtype="f4") for name in JOB_COLUMNS}
    rows = assessment.window.layout.job_row
    # One more row, of the jobs that it does not have.
    order = np.array([rows.get(job, len(rows)) for job in jobs], dtype=int)
    nothing = np.array([np.nan], dtype="f4")
    return {
        name: np.concatenate([column, nothing])[order]
        for name, column in jobs_columns(assessment).items()
    }


def _columns(points: list[JobsPoint], job: str) -> dict[str, list[float | None]]:
    columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}
    rows: dict[int, int | None] = {}
    for point in points:
        key = id(point.jobs)
        if key not in rows:
            rows[key] = point.jobs.index(job) if job in point.jobs else None
        row = rows[key]
        for name in COLUMNS:
            columns[name].append(None if row is None else plain(point.columns[name][row]))
    return columns
