"""Tells which utilities are steady, which sink by themselves, and which jobs drain a backlog.

A step's effect is judged by comparing utilities before and after it. That needs utilities that
stand still before the step, and again after it (SoCC'18, section 5.1: Henge waits for the measured
utilities to quiesce). A job whose backlog grows loses utility in each minute, whoever acts: it has
no "before" that a step could be blamed for.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from trilithon.measures import slo
from trilithon.measures.group import ratio, sum_by
from trilithon.model.columns import Floats
from trilithon.model.series import Series, Window
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.scene import Scene

# Chosen: utility is steady when this many parts of a window in a row show the same.
STEADY_PARTS: Final = 3


@dataclass(frozen=True, eq=False)
class Trend:
    """The shares of their maximum utility that jobs had, and their backlogs, part by part.

    `jobs` has the column of each job.
    """

    jobs: Mapping[str, int]
    parts: Sequence[Window]
    parameters: HengeParameters

    @classmethod
    def of(cls, scene: Scene, parameters: HengeParameters, since_s: float | None) -> "Trend":
        """Over the window of a round, or over what there is of it since a moment."""
        begin_s = scene.now_s - parameters.window_s
        if since_s is not None:
            begin_s = max(begin_s, since_s)
        snapshots = tuple(s for s in scene.series.snapshots if s.time_s >= begin_s - 1e-9)
        columns = {name: column for column, name in enumerate(sorted(scene.statuses))}
        series = Series(snapshots)
        if len(snapshots) < 2 or (window := series.window()) is None:
            return cls(columns, (), parameters)
        return cls(columns, series.parts(window, parameters.part_s), parameters)

    @cached_property
    def shares(self) -> Floats:
        """A row per part, the latest last, and a column per job; NaN where nothing is known."""
        shares = np.full((len(self.parts), len(self.jobs)), np.nan)
        for row, part in enumerate(self.parts):
            rows = [n for n, name in enumerate(part.layout.jobs) if name in self.jobs]
            columns = [self.jobs[part.layout.jobs[n]] for n in rows]
            shares[row, columns] = slo.assess_intents(part).satisfaction[rows]
        return shares

    def is_steady(self, job: str) -> bool:
        """Whether the last parts show the same utility of a job, and it drains no backlog."""
        if len(self.parts) < STEADY_PARTS or job in self.draining:
            return False
        shares = self.shares[-STEADY_PARTS:, self.jobs[job]] if job in self.jobs else np.empty(0)
        return self._same(shares[~np.isnan(shares)])

    def total_is_steady(self, max_utilities: Mapping[str, float]) -> bool:
        """Whether the last parts show the same sum of utilities, and it does not still move in one
        direction by as much as would count as a fall.
        """
        if len(self.parts) < STEADY_PARTS:
            return False
        shares = self.shares[-STEADY_PARTS:]
        weights = np.array([max_utilities.get(name, 0.0) for name in self.jobs])
        known = ~np.isnan(shares).any(axis=0) & (weights > 0)
        if not known.any():
            return True  # no records flow
        totals = shares[:, known] @ weights[known] / weights[known].sum()
        moves = np.diff(totals)
        one_way = bool((moves > 0).all() or (moves < 0).all())
        moved = abs(totals[-1] - totals[0])
        still_moves = one_way and moved > self._tolerance(float(totals.max()))
        return self._same(totals) and not still_moves

    def sinking(self, among: Iterable[str]) -> list[str]:
        """The jobs whose utility falls from each third of the time to the next, by more than may
        pass unnoticed.
        """
        if len(self.parts) < 3:
            return []
        first, middle, last = (
            _mean_of_known(rows) for rows in np.array_split(self.shares, 3, axis=0)
        )
        with np.errstate(invalid="ignore"):
            falls = (first > middle) & (middle > last)
            limits = np.maximum(self.parameters.noise * first, self.parameters.least_fall)
            falls &= first - last > limits
        return sorted(name for name in among if name in self.jobs and falls[self.jobs[name]])

    def swing(self, max_utilities: Mapping[str, float], *, of_sum: bool) -> float:
        """The standard deviation between parts of what Henge maximises: of the sum of utilities
        over the sum of their maxima, or, as a rule, of a job's share of its own.

        Random arrivals make utilities swing, the more the closer a job is to saturation. Jobs swing
        independently of each other.
        """
        if len(self.parts) < 2:
            return 0.0
        weights = np.array([max_utilities.get(name, 0.0) for name in self.jobs])
        known = ~np.isnan(self.shares).any(axis=0) & (weights > 0)
        if not known.any():
            return 0.0
        deviations = self.shares[:, known].std(axis=0, ddof=1)
        if of_sum:
            return float(np.hypot.reduce(deviations * weights[known]) / weights[known].sum())
        return float(np.sqrt(np.mean(deviations**2)))

    @cached_property
    def draining(self) -> frozenset[str]:
        """The jobs whose backlog is longer than a part and shrinks, by more than a steady utility
        may move. They are on their way to meet their intents, though it does not show yet.
        """
        parts = self.parts[-STEADY_PARTS:]
        if len(parts) < STEADY_PARTS:
            return frozenset()
        first, last = _backlogs_s(parts[0]), _backlogs_s(parts[-1])
        shrink = 1 - self.parameters.steady
        return frozenset(
            name
            for name, backlog_s in last.items()
            if name in first
            and backlog_s > self.parameters.part_s
            and backlog_s < first[name] * shrink
        )

    def _same(self, values: Floats) -> bool:
        if not len(values):
            return True  # no records flow
        return bool(np.ptp(values) <= self.parameters.steady * values.max())

    def _tolerance(self, level: float) -> float:
        return max(self.parameters.noise * level, self.parameters.least_fall)


def _mean_of_known(rows: Floats) -> Floats:
    known = ~np.isnan(rows)
    counts = known.sum(axis=0)
    sums = np.where(known, rows, 0.0).sum(axis=0)
    means: Floats = np.where(counts > 0, sums / np.maximum(1, counts), np.nan)
    return means


def _backlogs_s(part: Window) -> dict[str, float]:
    """The jobs' waiting records in seconds: in their source topics at the rate of arrival, in their
    queues at the rate that each operator takes them. Jobs of which it is not known are absent.
    """
    layout = part.layout
    in_topics = sum_by(
        layout.node_job[layout.source_nodes],
        ratio(part.lag, part.sources.arrived),
        len(layout.jobs),
    )
    operators = layout.operator_nodes
    waiting = sum_by(layout.instance_node, part.queue, len(layout.node_names))
    taken = sum_by(layout.edge_target, part.edges.taken, len(layout.node_names))
    in_queues = sum_by(
        layout.node_job[operators], ratio(waiting, taken)[operators], len(layout.jobs)
    )
    seconds = (in_topics + in_queues) * part.span_s
    return {
        name: float(value)
        for name, value in zip(layout.jobs, seconds, strict=True)
        if not math.isnan(value)
    }
