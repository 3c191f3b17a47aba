"""Collects the figures of a run: time series of every job and machine, and a summary per job."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from trilithon.measures import slo
from trilithon.measures.constraints import assess_constraints
from trilithon.measures.group import sum_by_job
from trilithon.measures.rates import input_rate
from trilithon.model.columns import Floats
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Window
from trilithon.scenarios.rounds import DecisionResult

# A whole number below it has no more than six digits.
_SIX_DIGITS: Final = 1e6


def _plain(value: Any) -> float | None:
    """The number rounded to six digits; None if it is missing or infinite."""
    number = float(value)
    if number.is_integer() and -_SIX_DIGITS < number < _SIX_DIGITS:
        return number
    return float(f"{number:.6g}") if math.isfinite(number) else None


def _all_plain(values: Floats) -> list[float | None]:
    return list(map(_plain, values.tolist()))


@dataclass
class JobFigures:
    """The time series of a job, with one value per round; None where it is unknown."""

    job: Job
    utility: list[float | None] = field(default_factory=list)
    satisfaction: list[float | None] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=dict)
    input_per_s: list[float | None] = field(default_factory=list)
    lag: list[float | None] = field(default_factory=list)
    # Records in the queues of all its instances.
    queue: list[float | None] = field(default_factory=list)
    parallelism: dict[str, list[int]] = field(default_factory=dict)

    @property
    def plain(self) -> tuple[list[float | None], ...]:
        """The series that every job has."""
        return self.utility, self.satisfaction, self.input_per_s, self.lag, self.queue


@dataclass
class RunFigures:
    """The time series of all jobs and machines over the rounds of a run."""

    times_s: list[float] = field(default_factory=list)
    spans_s: list[float] = field(default_factory=list)
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    load: dict[str, list[float | None]] = field(default_factory=dict)
    cluster: list[float | None] = field(default_factory=list)
    # The share of all machines' memory that is in use.
    memory: list[float | None] = field(default_factory=list)
    acted: list[DecisionResult] = field(default_factory=list)
    _rows: tuple[Layout, dict[str, Any]] | None = None
    _keys: tuple[str, ...] = ()
    # The series without a value in this round, and what stands there: the same ones in the next
    # round if its rows are the same.
    _absent: list[tuple[list[Any], int | None]] = field(default_factory=list)

    def add(self, window: Window, acted: Sequence[DecisionResult]) -> None:
        """Add the window of a round, and the decisions made in it."""
        layout = window.layout
        outcome = slo.assess_intents(window)
        measured = {**outcome.values, **assess_constraints(window).means(len(layout.jobs))}
        before = len(self.times_s)
        self.times_s.append(window.end_s)
        self.spans_s.append(window.span_s)
        self.cluster.append(_plain(outcome.cluster_satisfaction))
        machines = window.machines
        with np.errstate(invalid="ignore"):
            used = machines.memory_used_bytes.sum() / machines.memory_bytes.sum()
        self.memory.append(_plain(used))
        self.acted += acted
        rates, lag = input_rate(window), window.lag
        rate_list, lag_list = rates.tolist(), lag.tolist()
        same = self._rows is not None and self._rows[0] is layout
        nodes = self._nodes(layout)
        queues = _all_plain(sum_by_job(layout, window.queue))
        utility, satisfaction = _all_plain(outcome.utility), _all_plain(outcome.satisfaction)
        values = {key: _all_plain(of_jobs) for key, of_jobs in measured.items()}
        for row, name in enumerate(layout.jobs):
            figures = self.jobs.get(name)
            if figures is None:
                figures = self.jobs[name] = JobFigures(window.jobs[name])
                for series in figures.plain:
                    series.extend([None] * before)
            figures.utility.append(utility[row])
            figures.satisfaction.append(satisfaction[row])
            for key, of_jobs in values.items():
                if key not in figures.values:
                    figures.values[key] = [None] * before
                figures.values[key].append(of_jobs[row])
            sources, source_nodes, operators = nodes[name]
            if len(sources) == 1:
                figures.input_per_s.append(_plain(rate_list[source_nodes[0]]))
                figures.lag.append(_plain(lag_list[sources[0]]))
            else:
                figures.input_per_s.append(_plain(rates[source_nodes].sum()))
                figures.lag.append(_plain(lag[sources].sum()))
            figures.queue.append(queues[row])
            for operator, count in operators:
                if operator not in figures.parallelism:
                    figures.parallelism[operator] = [0] * before
                figures.parallelism[operator].append(count)
        for name, load in zip(layout.machines, _all_plain(machines.load), strict=True):
            if name not in self.load:
                self.load[name] = [None] * before
            self.load[name].append(load)
        if not same or self._keys != tuple(values):
            self._keys = tuple(values)
            self._pad(before + 1)
        else:
            for series, nothing in self._absent:
                series.append(nothing)

    def _nodes(self, layout: Layout) -> dict[str, Any]:
        """The rows of each job's sources, and the instances of its operators: once per layout."""
        if self._rows is None or self._rows[0] is not layout:
            rows = {}
            all_sources = set(layout.source_nodes.tolist())
            for name in layout.jobs:
                nodes = layout.job_nodes(name)
                source_nodes = [n for n in nodes if n in all_sources]
                sources = [layout.source_row[name, layout.node_names[n]] for n in source_nodes]
                operators = [
                    (layout.node_names[n], int(layout.parallelism[n]))
                    for n in nodes
                    if layout.parallelism[n]
                ]
                rows[name] = (
                    np.array(sources, np.int64),
                    np.array(source_nodes, np.int64),
                    operators,
                )
            self._rows = (layout, rows)
        return self._rows[1]

    def _pad(self, length: int) -> None:
        """Extend the series of jobs and machines that are absent in this round."""
        all_series: list[tuple[list[Any], int | None]] = [
            (load, None) for load in self.load.values()
        ]
        for figures in self.jobs.values():
            all_series += [(series, None) for series in (*figures.plain, *figures.values.values())]
            all_series += [(counts, 0) for counts in figures.parallelism.values()]
        self._absent = [(series, nothing) for series, nothing in all_series if len(series) < length]
        for series, nothing in self._absent:
            series.extend([nothing] * (length - len(series)))

    def summary(self) -> list[dict[str, Any]]:
        """A row per job: its SLO satisfaction over the run, and its figures at the end."""
        return [self._summary(name, figures) for name, figures in self.jobs.items()]

    def _summary(self, name: str, figures: JobFigures) -> dict[str, Any]:
        satisfaction = np.array([np.nan if v is None else v for v in figures.satisfaction])
        over = slo.satisfaction_over_time(satisfaction, np.array(self.spans_s))
        actions = [
            outcome
            for acted in self.acted
            if acted.decision.job == name
            for outcome in acted.outcomes
            if outcome.changed
        ]
        return {
            "job": name,
            "satisfaction": None if over is None else _plain(over.average),
            "p15": None if over is None else _plain(over.percentiles[15]),
            "at_end": figures.satisfaction[-1],
            "utility": figures.utility[-1],
            "max_utility": figures.job.intent.max_utility,
            "throughput": figures.values["throughput"][-1],
            "latency_ms": figures.values["latency.mean"][-1],
            "juice": figures.values["juice"][-1],
            "lag": figures.lag[-1],
            "instances": sum(counts[-1] for counts in figures.parallelism.values()),
            "actions": len(actions),
        }

    @property
    def overall(self) -> float | None:
        """The cluster's average SLO satisfaction over the run."""
        values = np.array([np.nan if v is None else v for v in self.cluster])
        over = slo.satisfaction_over_time(values, np.array(self.spans_s))
        return None if over is None else _plain(over.average)


def first_latency_threshold(job: Job) -> Threshold | None:
    """The first latency threshold of a job; None if it has none."""
    return next((t for t in job.intent.thresholds if t.metric is Metric.LATENCY), None)
