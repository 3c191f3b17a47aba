"""Measures constraints: the mean latency of a path through a job, against the limit in its intent.

Latency guarantees, section II-A. The mean latency of a sequence of operators and edges is

    l = Σ mean task latency of its operators + Σ mean channel latency of its edges     (II-A4)

and a constraint is met if l, over the time that it names, is at most its limit (II-A5). It is
missing where a part was not measured: where no record came through, where a clock was too far off,
or on an edge into a sink.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from trilithon.measures.queueing import channel_latency
from trilithon.measures.task_latency import task_latency
from trilithon.model.columns import Floats, Ints
from trilithon.model.intent import Constraint
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window


@dataclass(frozen=True, eq=False)
class ConstraintAssessment:
    """A row per constraint of every job, in the order of the layout's jobs and of their intents."""

    constraints: tuple[Constraint, ...]
    job: Ints
    mean_ms: Floats
    limit_ms: Floats

    @property
    def met(self) -> Floats:
        """1 where the mean is at most the limit, 0 where it is more, NaN where it is missing."""
        within = (self.mean_ms <= self.limit_ms).astype(float)
        return np.where(np.isnan(self.mean_ms), np.nan, within)

    def of_job(self, job: int) -> Ints:
        """The rows of a job's constraints, by the job's row in the layout."""
        return np.flatnonzero(self.job == job)

    def means(self, jobs: int) -> dict[str, Floats]:
        """The measured means in ms by key, `constraint.0` for the first constraint of each job;
        missing for jobs that have fewer.
        """
        # Rows are ordered by job: the place of a row within its job is its distance from the first.
        place = np.arange(len(self.job)) - np.searchsorted(self.job, self.job)
        means: dict[str, Floats] = {}
        for number in range(int(place.max(initial=-1)) + 1):
            rows = np.flatnonzero(place == number)
            means[constraint_key(number)] = column = np.full(jobs, np.nan)
            column[self.job[rows]] = self.mean_ms[rows]
        return means


def constraint_key(number: int) -> str:
    """The key of a constraint's mean latency among measured values, by its place in the intent."""
    return f"constraint.{number}"


def assess_constraints(window: Window) -> ConstraintAssessment:
    """The constraints of all jobs in a window."""
    table = ConstraintTable.of(window)
    if not table.constraints:
        return table.assess(np.zeros(0), np.zeros(0))
    return table.assess(task_latency(window), channel_latency(window))


def constraints_over(series: Series, measured: ConstraintAssessment) -> ConstraintAssessment:
    """Each constraint over its own time, where the series has a window of about that length.

    `measured` are those of a window at the end of the series. A time that is shorter than from one
    snapshot to the next, or longer than the series, is taken as near as it can be.
    """
    mean_ms = measured.mean_ms.copy()
    over_s = np.array([constraint.over_s for constraint in measured.constraints])
    for own_s in sorted(set(over_s.tolist())):
        if (window := series.window(own_s)) is not None:
            rows = over_s == own_s
            mean_ms[rows] = assess_constraints(window).mean_ms[rows]
    return replace(measured, mean_ms=mean_ms)


@dataclass(frozen=True, eq=False)
class ConstraintTable:
    """The constraints of all jobs in columns: which operators and edges each is made of."""

    constraints: tuple[Constraint, ...]
    job: Ints
    limit_ms: Floats
    # Pairs of a constraint and an operator's node, and of a constraint and an edge; −1 if unknown.
    operators: tuple[Ints, Ints]
    edges: tuple[Ints, Ints]

    @classmethod
    def of(cls, window: Window) -> "ConstraintTable":
        """The table of a window's jobs, built once while neither jobs nor rows change."""
        known = _tables.get(window.layout)
        if known is None or known[0] is not window.jobs:
            known = _tables[window.layout] = (window.jobs, cls.build(window.layout, window.jobs))
        return known[1]

    @classmethod
    def build(cls, layout: Layout, jobs: Mapping[str, Job]) -> "ConstraintTable":
        constraints: list[Constraint] = []
        owners: list[int] = []
        operators: list[tuple[int, int]] = []
        edges: list[tuple[int, int]] = []
        for row, name in enumerate(layout.jobs):
            for constraint in jobs[name].intent.constraints if name in jobs else ():
                number = len(constraints)
                constraints.append(constraint)
                owners.append(row)
                operators += [
                    (number, layout.node_row.get((name, operator), -1))
                    for operator in constraint.operators
                ]
                edges += [
                    (number, layout.edge_row.get((name, edge.source, edge.target), -1))
                    for edge in constraint.edges
                ]
        return cls(
            tuple(constraints),
            np.array(owners, dtype=np.int64),
            np.array([constraint.mean_latency_ms for constraint in constraints]),
            _pairs(operators),
            _pairs(edges),
        )

    def assess(self, task_s: Floats, channel_s: Floats) -> ConstraintAssessment:
        """From the mean task latency of each node and the mean channel latency of each edge."""
        count = len(self.constraints)
        mean_s = np.zeros(count)
        for (number, row), values in ((self.operators, task_s), (self.edges, channel_s)):
            part = np.append(values, np.nan)[row]
            mean_s += np.bincount(number, weights=part, minlength=count)
        return ConstraintAssessment(self.constraints, self.job, mean_s * 1000, self.limit_ms)


def _pairs(pairs: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


_tables: WeakKeyDictionary[Layout, tuple[Mapping[str, Job], ConstraintTable]] = WeakKeyDictionary()
