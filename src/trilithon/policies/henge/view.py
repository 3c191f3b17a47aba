"""Measures what a round of Henge decides from: each job's utility, and what is congested."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trilithon.measures import slo
from trilithon.measures.capacity import capacity
from trilithon.measures.group import sum_by
from trilithon.measures.juice import juice_over
from trilithon.model.columns import Bools, Floats, Ints
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot
from trilithon.model.utility import UTILITIES, Sense
from trilithon.policies.henge.congestion import (
    ClusterCongestion,
    OperatorCongestion,
    cluster_congestion,
    operator_congestion,
)
from trilithon.policies.henge.henge_parameters import MAX_TOTAL, HengeParameters
from trilithon.policies.scene import JobStatus, Scene


@dataclass(frozen=True, slots=True)
class JobView:
    """One job in a round.

    `utility` is None while it is unknown: because metrics are missing, or because the job has no
    input. A job that has input waiting and writes nothing has a utility of 0.
    """

    status: JobStatus
    intent: Intent
    utility: float | None
    values: Mapping[str, float | None]
    metrics_missing: bool
    load_per_s: float | None

    @property
    def id(self) -> str:
        return self.status.job

    @property
    def max_utility(self) -> float:
        return self.intent.max_utility

    def misses(self, tolerance: float) -> bool:
        return self.utility is not None and self.utility < self.max_utility * (1 - tolerance)

    def worst_threshold(self) -> tuple[Threshold, float | None]:
        """The threshold that costs the job the most utility, with the measured value."""

        def fraction(threshold: Threshold) -> float:
            value = self.values.get(threshold.key)
            if value is None:
                return -1.0
            fractions = UTILITIES.fraction(
                threshold.utility, np.array([value]), threshold.value, threshold.sense
            )
            return float(fractions[0])

        worst = min(self.intent.thresholds, key=fraction)
        return worst, self.values.get(worst.key)


@dataclass(frozen=True, eq=False)
class ClusterView:
    """All jobs that have thresholds, in order of names, and what is congested."""

    window: Window
    jobs: Mapping[str, JobView]
    congestion: OperatorCongestion
    cluster_congestion: ClusterCongestion
    # The runnable threads of a machine, the mean over machines and the window; NaN if unknown.
    mean_load: float = math.nan

    def utilities(self, among: Iterable[str]) -> dict[str, float]:
        """The known utilities of the named jobs, in order of names."""
        named = set(among)
        return {
            name: job.utility
            for name, job in self.jobs.items()
            if name in named and job.utility is not None
        }

    def levels(
        self, utilities: Mapping[str, float], parameters: HengeParameters
    ) -> tuple[float, ...]:
        """What Henge maximises, 0…1 each, the most important first.

        With `max_total` it is one number: the sum of the utilities over the sum of their maxima.
        With `max_min` it is the share that each job has of its own maximum, the smallest first:
        what the worst job has decides, then the second worst, and so on. A job that nothing can
        help then does not hide what happens to the others.

        The sum is exact, so that it does not depend on the order of jobs.
        """
        maxima = {name: self.jobs[name].max_utility for name in utilities}
        if parameters.goal == MAX_TOTAL:
            return (_share(math.fsum(utilities.values()), math.fsum(maxima.values())),)
        return tuple(sorted(_share(u, maxima[name]) for name, u in utilities.items())) or (1.0,)

    def foreign_load(self) -> float | None:
        """Runnable threads that are not the jobs' own, per core of the cluster; None if unknown.

        The jobs' own threads are at most the instances that are busy, so it is a lower bound.
        """
        machines = self.window.machines
        cores = math.fsum(machines.cores)
        busy = float(self.window.instances.busy_s.sum()) / self.window.span_s
        if not cores > 0 or math.isnan(self.mean_load) or math.isnan(busy):
            return None
        return max(0.0, self.mean_load * len(machines.cores) - busy) / cores


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 1.0


def observe(
    scene: Scene, parameters: HengeParameters, since_s: float | None = None
) -> ClusterView | None:
    """Measures the last window, or the time since `since_s` if that is shorter. None while there
    are fewer than two snapshots.
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
        parts = series.parts(window, parameters.part_s)
        weights = [slo.IntentTable.of(part).sink_weight for part in parts]
        values["juice"] = juice_over(parts, weights)
    congestion = operator_congestion(window, parameters)
    columns = _JobColumns.of(window, table.judge(values), congestion, parameters)
    in_window = [s for s in series.snapshots if s.time_s > window.start_s]
    return ClusterView(
        window=window,
        jobs={
            name: columns.job_view(scene.statuses[name], job)
            for name in sorted(scene.statuses)
            if (job := window.jobs.get(name)) is not None and job.intent.thresholds
        },
        congestion=congestion,
        cluster_congestion=cluster_congestion(in_window, parameters),
        mean_load=_mean_load(in_window),
    )


def _mean_load(snapshots: Sequence[Snapshot]) -> float:
    loads = [snapshot.machines.load for snapshot in snapshots if len(snapshot.machines.load)]
    return float(np.mean([load.mean() for load in loads])) if loads else math.nan


def jobs_without_metrics(scene: Scene) -> frozenset[str]:
    """The jobs of which an operator has no metrics between the last two snapshots."""
    window = Series(scene.series.snapshots[-2:]).window()
    if window is None:
        return frozenset(scene.statuses)
    layout = window.layout
    operators = layout.operator_nodes
    unmeasured = np.isnan(capacity(window)[operators])
    missing = {layout.jobs[row] for row in layout.node_job[operators[unmeasured]]}
    return frozenset(scene.statuses) - (set(layout.jobs) - missing)


@dataclass(frozen=True, eq=False)
class _JobColumns:
    """What a `JobView` needs of every job, in the order of the layout."""

    rows: Mapping[str, int]
    assessment: slo.IntentAssessment
    utility: Floats
    metrics_missing: Bools
    load_per_s: Floats

    @classmethod
    def of(
        cls,
        window: Window,
        assessment: slo.IntentAssessment,
        congestion: OperatorCongestion,
        parameters: HengeParameters,
    ) -> "_JobColumns":
        layout = window.layout
        jobs = len(layout.jobs)

        def by_job(nodes: Ints, values: Floats) -> Floats:
            return sum_by(layout.node_job[nodes], values, jobs)

        operators = layout.operator_nodes
        unmeasured = np.isnan(congestion.capacity[operators]).astype(float)
        unseen = by_job(operators, unmeasured) > 0
        arrived = by_job(layout.source_nodes, window.sources.arrived)
        waiting = by_job(layout.source_nodes, window.lag)
        written = by_job(layout.sink_nodes, window.sinks.written)
        unknown = np.isnan(assessment.utility)
        silent = unknown & (np.isnan(written) | np.isnan(waiting) | (written > 0))
        # All that arrived in the last part of the window still waits, and nothing is written.
        stuck = unknown & (written == 0) & (waiting > arrived * parameters.part_s / window.span_s)
        return cls(
            rows={name: row for row, name in enumerate(layout.jobs)},
            assessment=assessment,
            utility=np.where(stuck, 0.0, assessment.utility),
            metrics_missing=unseen | silent,
            load_per_s=arrived / window.span_s,
        )

    def job_view(self, status: JobStatus, job: Job) -> JobView:
        row = self.rows.get(status.job)
        if row is None:
            return JobView(status, job.intent, None, {}, metrics_missing=True, load_per_s=None)
        missing = bool(self.metrics_missing[row])
        values = {
            threshold.key: _known(self.assessment.values[threshold.key][row])
            for threshold in job.intent.thresholds
        }
        return JobView(
            status,
            job.intent,
            None if missing else _known(self.utility[row]),
            values,
            missing,
            _known(self.load_per_s[row]),
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def expected_value(threshold: Threshold, value: float | None, improvement: float) -> float:
    """The value if a Reconfiguration helps as much as it must: better by Δ, or at the threshold."""
    if value is None:
        return threshold.value
    if threshold.sense is Sense.AT_MOST:
        return max(threshold.value, value / (1 + improvement))
    return min(threshold.value, value * (1 + improvement))
