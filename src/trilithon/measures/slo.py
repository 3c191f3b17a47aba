"""Owns what measurements are worth: each job's utility, and how
well intents were kept over time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from trilithon.measures import sketch
from trilithon.measures.group import ratio, sum_by, weighted
from trilithon.measures.juice import juice
from trilithon.model.columns import Floats
from trilithon.model.intent import Threshold, latency_key
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Window
from trilithon.model.sketches import Sketches
from trilithon.model.utility import UTILITIES, Utilities


@dataclass(frozen=True, eq=False)
class IntentAssessment:
    """How each job did in a window: the values its intent is about, their utility, and whether
    every threshold was met (NaN where it is unknown). `asked`: which jobs have thresholds.
    """

    values: Mapping[str, Floats]
    utility: Floats
    max_utility: Floats
    met: Floats
    asked: npt.NDArray[np.bool_]

    @property
    def satisfaction(self) -> Floats:
        """Utility over maximum utility, per job: the papers' SLO satisfaction."""
        return self.utility / self.max_utility

    @property
    def cluster_satisfaction(self) -> float:
        """Total utility over the total of the maxima, of the jobs whose utility is known."""
        known = ~np.isnan(self.utility)
        return float(ratio(self.utility[known].sum(), self.max_utility[known].sum()))


def sink_weights(layout: Layout, jobs: Mapping[str, Job]) -> Floats:
    """The weight of each sink, 1 for those of jobs whose file is not known."""
    weights = np.ones(len(layout.sink_nodes))
    for job in jobs.values():
        for sink in job.sinks:
            if sink.weight != 1.0 and (row := layout.sink_row.get((job.id, sink.name))) is not None:
                weights[row] = sink.weight
    return weights


def job_latencies(window: Window, weights: Floats | None = None) -> Sketches:
    """One histogram per job, over all its sinks."""
    layout = window.layout
    return sketch.merge(
        window.latencies, layout.node_job[layout.sink_nodes], len(layout.jobs), weights
    )


def mean_latency_ms(window: Window, weights: Floats | None = None) -> Floats:
    layout = window.layout
    weight = np.ones(len(layout.sink_nodes)) if weights is None else weights
    job = layout.node_job[layout.sink_nodes]
    jobs = len(layout.jobs)
    total = sum_by(job, weighted(weight, window.sinks.latency_s), jobs)
    return 1000 * ratio(total, sum_by(job, weighted(weight, window.sinks.latencies), jobs))


def throughput(window: Window) -> Floats:
    """Records per second written by all sinks of each job."""
    layout = window.layout
    job = layout.node_job[layout.sink_nodes]
    return sum_by(job, window.sinks.written, len(layout.jobs)) / window.span_s


def emission(window: Window) -> Floats:
    """Records per second that all sources of each job emit: those that they read from their topics
    (Dhalion, section 5.2). Back-pressure lowers it; a record that goes to two operators counts
    once.
    """
    layout = window.layout
    job = layout.node_job[layout.source_nodes]
    return sum_by(job, window.sources.taken, len(layout.jobs)) / window.span_s


def values(
    window: Window, quantiles: Iterable[float], weights: Floats | None = None
) -> dict[str, Floats]:
    """Everything that a threshold can be about, per job."""
    merged = job_latencies(window, weights)
    measured = {
        "latency.mean": mean_latency_ms(window, weights),
        "juice": juice(window, weights).job,
        "throughput": throughput(window),
        "emission": emission(window),
    }
    for q in quantiles:
        measured[latency_key(q)] = sketch.quantile(merged, q)
    return measured


@dataclass(frozen=True, eq=False)
class IntentTable:
    """The thresholds of all jobs in columns, in groups that one call of a function serves."""

    groups: tuple[tuple[Threshold, npt.NDArray[np.int64], Floats], ...]
    quantiles: tuple[float, ...]
    max_utility: Floats
    thresholds: npt.NDArray[np.int64]
    sink_weight: Floats

    @classmethod
    def of(cls, window: Window) -> "IntentTable":
        """The table of a window's jobs: made once for as long as
        neither they nor their rows change.
        """
        known = _tables.get(window.layout)
        if known is None or known[0] is not window.jobs:
            known = _tables[window.layout] = (window.jobs, cls.build(window.layout, window.jobs))
        return known[1]

    @classmethod
    def build(cls, layout: Layout, jobs: Mapping[str, Job]) -> "IntentTable":
        max_utility = np.full(len(layout.jobs), np.nan)
        rows: dict[tuple[object, ...], tuple[Threshold, list[int], list[float]]] = {}
        quantiles: set[float] = set()
        for row, name in enumerate(layout.jobs):
            if (job := jobs.get(name)) is None:
                continue
            max_utility[row] = job.intent.max_utility
            for threshold in job.intent.thresholds:
                # Groups have one metric and one function with one set of parameters.
                params = tuple(sorted(threshold.utility.params.items()))
                key = (threshold.key, threshold.utility.function, params)
                group = rows.setdefault(key, (threshold, [], []))
                group[1].append(row)
                group[2].append(threshold.value)
                if (q := threshold.quantile) is not None:
                    quantiles.add(q)
        groups = tuple(
            (like, np.array(members, dtype=np.int64), np.array(bounds))
            for like, members, bounds in rows.values()
        )
        count = np.zeros(len(layout.jobs), dtype=np.int64)
        for _, members, _ in groups:
            np.add.at(count, members, 1)
        weight = sink_weights(layout, jobs)
        return cls(groups, tuple(sorted(quantiles)), max_utility, count, weight)

    def judge(
        self, values: Mapping[str, Floats], utilities: Utilities = UTILITIES
    ) -> IntentAssessment:
        """Utility = maximum · average over the thresholds (a hybrid SLO, Henge section 8.1.1)."""
        jobs = len(self.max_utility)
        fractions, missed, unknown = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
        for like, members, bounds in self.groups:
            value = values[like.key][members]
            np.add.at(
                fractions, members, utilities.fraction(like.utility, value, bounds, like.sense)
            )
            met = value <= bounds if like.sense == "at_most" else value >= bounds
            np.add.at(missed, members, ~met & ~np.isnan(value))
            np.add.at(unknown, members, np.isnan(value))
        asked = self.thresholds > 0
        return IntentAssessment(
            values=values,
            utility=np.where(asked, fractions / np.maximum(1, self.thresholds), np.nan)
            * self.max_utility,
            max_utility=self.max_utility,
            met=np.where(missed > 0, 0.0, np.where((unknown > 0) | ~asked, np.nan, 1.0)),
            asked=asked,
        )


_tables: WeakKeyDictionary[Layout, tuple[Mapping[str, Job], IntentTable]] = WeakKeyDictionary()


# Several measures of a round assess the same window: kept for as long as it exists.
_assessed: WeakKeyDictionary[Window, IntentAssessment] = WeakKeyDictionary()


def assess_intents(window: Window) -> IntentAssessment:
    """How the jobs of a window did, by the intents in their files."""
    if (assessment := _assessed.get(window)) is None:
        table = IntentTable.of(window)
        measured = values(window, table.quantiles, table.sink_weight)
        assessment = _assessed[window] = table.judge(measured)
    return assessment


@dataclass(frozen=True, slots=True)
class Satisfaction:
    """SLO satisfaction over time, as the papers print it."""

    average: float
    percentiles: Mapping[float, float]


def satisfaction_over_time(
    satisfaction: Sequence[float] | Floats,
    seconds: Sequence[float] | Floats,
    percentiles: Sequence[float] = (15, 50, 90),
) -> Satisfaction | None:
    """The average weighted by time, and below which satisfaction was in a given share of the time.

    What is missing is left out; None when nothing is left.
    """
    value, weight = np.asarray(satisfaction, float), np.asarray(seconds, float)
    known = ~np.isnan(value) & (weight > 0)
    value, weight = value[known], weight[known]
    if not len(value):
        return None
    order = np.argsort(value, kind="stable")
    value, weight = value[order], weight[order]
    running = np.cumsum(weight) / weight.sum()
    place = np.searchsorted(running, np.asarray(percentiles, float) / 100 - 1e-12)
    reached = value[np.minimum(place, len(value) - 1)]
    return Satisfaction(
        average=float(np.average(value, weights=weight)),
        percentiles=dict(zip(percentiles, map(float, reached), strict=True)),
    )
