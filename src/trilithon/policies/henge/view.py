"""Owns what Henge sees in a round: for each job its utility, what it misses, and whether it can be seen."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from trilithon.measures import slo
from trilithon.measures.capacity import capacity
from trilithon.measures.group import ratio, sum_by, sum_by_node
from trilithon.measures.juice import juice_over
from trilithon.model.columns import Bools, Floats, Ints
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.series import Series, Window
from trilithon.model.utility import UTILITIES, Sense
from trilithon.policies.henge.congestion import ClusterCongestion, Congestion, congestion, crowd
from trilithon.policies.henge.parameters import MAX_TOTAL, HengeParameters
from trilithon.policies.scene import JobStatus, Scene

Utility = Mapping[str, float]
# Chosen: utility is steady when so many parts of a window in a row show the same.
STEADY_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class JobView:
    """One job in a round.

    `utility` is None while it cannot be told: because numbers are missing (`blind`), or because the
    job has nothing to do. A job that lets records wait and writes nothing has a utility of 0.
    """

    status: JobStatus
    intent: Intent
    utility: float | None
    values: Mapping[str, float | None]
    blind: bool
    load_per_s: float | None

    @property
    def id(self) -> str:
        return self.status.job

    @property
    def max_utility(self) -> float:
        return self.intent.max_utility

    def misses(self, tolerance: float) -> bool:
        return self.utility is not None and self.utility < self.max_utility * (1 - tolerance)

    def worst(self) -> tuple[Threshold, float | None]:
        """The threshold that costs it the most utility, with its value."""

        def fraction(threshold: Threshold) -> float:
            value = self.values.get(threshold.key)
            if value is None:
                return -1.0
            found = UTILITIES.fraction(
                threshold.utility, np.array([value]), threshold.value, threshold.sense
            )
            return float(found[0])

        worst = min(self.intent.thresholds, key=fraction)
        return worst, self.values.get(worst.key)


@dataclass(frozen=True, eq=False)
class View:
    """The round: every job that has thresholds, in the order of names."""

    window: Window
    jobs: Mapping[str, JobView]
    congestion: Congestion
    crowd: ClusterCongestion

    def utilities(self, among: Iterable[str]) -> dict[str, float]:
        """Those of the named jobs that are known, in the order of names."""
        named = set(among)
        return {
            name: seen.utility
            for name, seen in self.jobs.items()
            if name in named and seen.utility is not None
        }

    def goal(self, utilities: Utility, parameters: HengeParameters) -> float:
        """What is maximised, 0…1: the sum of the utilities over the sum of their maxima; or, with
        `max_min`, the smallest share that a job has of its own maximum.

        The sum is taken exactly, so that it does not depend on the order of jobs.
        """
        maxima = {name: self.jobs[name].max_utility for name in utilities}
        if parameters.goal == MAX_TOTAL:
            return _share(math.fsum(utilities.values()), math.fsum(maxima.values()))
        return min((_share(u, maxima[name]) for name, u in utilities.items()), default=1.0)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 1.0


def view(scene: Scene, parameters: HengeParameters, since_s: float | None = None) -> View | None:
    """What the last window shows, or what there was since a moment if that is less. None where there
    is nothing yet to look back on.
    """
    series = scene.series
    if since_s is not None:
        series = Series(tuple(s for s in series.snapshots if s.time_s >= since_s))
        if len(series) < 2:
            return None
    window = series.window(parameters.window_s)
    if window is None:
        return None
    table = slo.IntentTable.of(window)
    values = slo.values(window, table.quantiles, table.sink_weight)
    if any(like.metric is Metric.JUICE for like, _, _ in table.groups):
        parts = _parts(series, window, parameters.part_s)
        weights = [slo.sink_weights(part.layout, part.jobs) for part in parts]
        values["juice"] = juice_over(parts, weights)
    busy = congestion(window, parameters)
    columns = _Columns.of(window, table.judge(values), busy, parameters)
    within = [s for s in series.snapshots if s.time_s > window.start_s]
    return View(
        window=window,
        jobs={
            name: columns.at(scene.statuses[name], job)
            for name in sorted(scene.statuses)
            if (job := window.jobs.get(name)) is not None and job.intent.thresholds
        },
        congestion=busy,
        crowd=crowd(within, parameters),
    )


def _parts(series: Series, window: Window, part_s: float) -> Sequence[Window]:
    """The window in parts of at least this length; as it is if it is too short for two."""
    ends = [series.last]
    for snapshot in reversed(series.snapshots[:-1]):
        if snapshot.time_s < window.start_s:
            break
        if ends[-1].time_s - snapshot.time_s >= part_s * (1 - 1e-9):
            ends.append(snapshot)
    pairs = [Series(pair).window() for pair in pairwise(reversed(ends))]
    return [part for part in pairs if part is not None] or [window]


def unseen(scene: Scene) -> frozenset[str]:
    """The jobs of which an operator has no numbers between the last two snapshots, or none at all."""
    window = Series(scene.series.snapshots[-2:]).window()
    if window is None:
        return frozenset(scene.statuses)
    layout = window.layout
    operators = layout.operator_nodes
    missing = np.isnan(capacity(window)[operators])
    blind = {layout.jobs[row] for row in layout.node_job[operators[missing]]}
    return frozenset(scene.statuses) - (set(layout.jobs) - blind)


def steady(scene: Scene, job: str | None, since_s: float, parameters: HengeParameters) -> bool:
    """Whether the last parts since a moment show the same utility: of a job, or of all. A job that works
    off a backlog is not at rest, though its utility hardly moves until that is gone.
    """
    series = Series(tuple(s for s in scene.series.snapshots if s.time_s >= since_s))
    if len(series) < 2 or (window := series.window()) is None:
        return False
    found: list[float] = []
    waiting: list[float] = []
    for part in _parts(series, window, parameters.part_s)[-STEADY_PARTS:]:
        shares = slo.assess_intents(part).satisfaction
        if job is not None:
            waiting.append(_backlog_s(part, job))
            shares = shares[[name == job for name in part.layout.jobs]]
        known = shares[~np.isnan(shares)]
        found.append(math.fsum(known) / len(known) if len(known) else math.nan)
    if len(found) < STEADY_PARTS or _worked_off(waiting, parameters):
        return False
    if all(math.isnan(share) for share in found):
        return True  # nothing flows, and nothing moves
    return max(found) - min(found) <= parameters.steady * max(found)


def _backlog_s(part: Window, job: str) -> float:
    """How long what waits for a job lasts: in its logs by what comes in, in its queues by what each operator
    takes.
    """
    layout = part.layout
    if job not in layout.jobs:
        return math.nan
    nodes = layout.job_nodes(job)
    sources = slice(*np.searchsorted(layout.source_nodes, [nodes.start, nodes.stop]))
    lasts = ratio(part.lag[sources], part.sources.arrived[sources]).sum()
    queues = sum_by_node(layout, part.queue)
    taken = sum_by(layout.edge_target, part.edges.taken, len(layout.node_names))
    operators = [node for node in nodes if layout.parallelism[node]]
    return float((lasts + ratio(queues, taken)[operators].sum()) * part.span_s)


def _worked_off(waiting: Sequence[float], parameters: HengeParameters) -> bool:
    """Whether a backlog of more than a part becomes less, by more than utility may move at rest."""
    if not waiting or math.isnan(waiting[0]) or math.isnan(waiting[-1]):
        return False
    less = waiting[-1] < waiting[0] * (1 - parameters.steady)
    return less and waiting[-1] > parameters.part_s


@dataclass(frozen=True, eq=False)
class _Columns:
    """What is needed of every job, in the order of the layout."""

    rows: Mapping[str, int]
    outcome: slo.IntentAssessment
    utility: Floats
    blind: Bools
    load_per_s: Floats

    @classmethod
    def of(
        cls,
        window: Window,
        outcome: slo.IntentAssessment,
        busy: Congestion,
        parameters: HengeParameters,
    ) -> "_Columns":
        layout = window.layout
        jobs = len(layout.jobs)

        def by_job(nodes: Ints, values: Floats) -> Floats:
            return sum_by(layout.node_job[nodes], values, jobs)

        operators = layout.operator_nodes
        unmeasured = np.isnan(busy.capacity[operators]).astype(float)
        unseen = by_job(operators, unmeasured) > 0
        arrived = by_job(layout.source_nodes, window.sources.arrived)
        waiting = by_job(layout.source_nodes, window.lag)
        written = by_job(layout.sink_nodes, window.sinks.written)
        unknown = np.isnan(outcome.utility)
        silent = unknown & (np.isnan(written) | np.isnan(waiting) | (written > 0))
        # What came in during the last part of the window still waits, and nothing comes out.
        stuck = unknown & (written == 0) & (waiting > arrived * parameters.part_s / window.span_s)
        return cls(
            rows={name: row for row, name in enumerate(layout.jobs)},
            outcome=outcome,
            utility=np.where(stuck, 0.0, outcome.utility),
            blind=unseen | silent,
            load_per_s=arrived / window.span_s,
        )

    def at(self, status: JobStatus, job: Job) -> JobView:
        row = self.rows.get(status.job)
        if row is None:
            return JobView(status, job.intent, None, {}, blind=True, load_per_s=None)
        blind = bool(self.blind[row])
        return JobView(
            status,
            job.intent,
            None if blind else _known(self.utility[row]),
            {one.key: _known(self.outcome.values[one.key][row]) for one in job.intent.thresholds},
            blind,
            _known(self.load_per_s[row]),
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def expected(threshold: Threshold, value: float | None, improvement: float) -> float:
    """Where a value comes if a step helps as much as it must: nearer by Δ, or to the threshold."""
    if value is None:
        return threshold.value
    if threshold.sense is Sense.AT_MOST:
        return max(threshold.value, value / (1 + improvement))
    return min(threshold.value, value * (1 + improvement))
