"""Owns the figures of a run: what each round tells of every job and machine, and their summary."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trilithon.measures import slo
from trilithon.measures.group import sum_by_job
from trilithon.measures.rates import input_rate
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Window
from trilithon.scenarios.rounds import Acted


def _plain(value: Any) -> float | None:
    found = float(value)
    return float(f"{found:.6g}") if np.isfinite(found) else None


@dataclass
class JobFigures:
    """What a job did, round by round; None where it is not known."""

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
        """Those that every job has."""
        return self.utility, self.satisfaction, self.input_per_s, self.lag, self.queue


@dataclass
class Figures:
    """The lines of all jobs and machines over the rounds of a run."""

    times_s: list[float] = field(default_factory=list)
    spans_s: list[float] = field(default_factory=list)
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    load: dict[str, list[float | None]] = field(default_factory=dict)
    cluster: list[float | None] = field(default_factory=list)
    # The share of all machines' memory that is in use.
    memory: list[float | None] = field(default_factory=list)
    acted: list[Acted] = field(default_factory=list)
    _rows: tuple[Layout, dict[str, Any]] | None = None

    def add(self, window: Window, acted: Sequence[Acted]) -> None:
        """The window of a round, and what was done after it."""
        layout = window.layout
        outcome = slo.assess_intents(window)
        before = len(self.times_s)
        self.times_s.append(window.end_s)
        self.spans_s.append(window.span_s)
        self.cluster.append(_plain(outcome.cluster_satisfaction))
        machines = window.machines
        with np.errstate(invalid="ignore"):
            used = machines.memory_used_bytes.sum() / machines.memory_bytes.sum()
        self.memory.append(_plain(used))
        self.acted += acted
        rates = input_rate(window)
        nodes = self._nodes(layout)
        queues = sum_by_job(layout, window.queue)
        for row, name in enumerate(layout.jobs):
            lines = self.jobs.get(name)
            if lines is None:
                lines = self.jobs[name] = JobFigures(window.jobs[name])
                _pad(lines, before)
            lines.utility.append(_plain(outcome.utility[row]))
            lines.satisfaction.append(_plain(outcome.satisfaction[row]))
            for key, values in outcome.values.items():
                lines.values.setdefault(key, [None] * before).append(_plain(values[row]))
            sources, first, operators = nodes[name]
            lines.input_per_s.append(_plain(rates[first].sum()))
            lines.lag.append(_plain(window.lag[sources].sum()))
            lines.queue.append(_plain(queues[row]))
            for operator, node in operators:
                lines.parallelism.setdefault(operator, [0] * before).append(
                    int(layout.parallelism[node])
                )
        for row, name in enumerate(layout.machines):
            self.load.setdefault(name, [None] * before).append(_plain(window.machines.load[row]))
        self._even(before + 1)

    def _nodes(self, layout: Layout) -> dict[str, Any]:
        """Rows of each job's sources and operators: worked out once per layout."""
        if self._rows is None or self._rows[0] is not layout:
            found = {}
            for name in layout.jobs:
                nodes = layout.job_nodes(name)
                first = [n for n in nodes if n in layout.source_nodes]
                sources = [layout.source_row[name, layout.node_names[n]] for n in first]
                operators = [(layout.node_names[n], n) for n in nodes if layout.parallelism[n]]
                found[name] = (sources, first, operators)
            self._rows = (layout, found)
        return self._rows[1]

    def _even(self, length: int) -> None:
        """What was not there in this round has a gap."""
        gaps: list[list[Any]] = [*self.load.values()]
        for lines in self.jobs.values():
            gaps += lines.plain
            gaps += lines.values.values()
            for counts in lines.parallelism.values():
                counts.extend([0] * (length - len(counts)))
        for line in gaps:
            line.extend([None] * (length - len(line)))

    def summary(self) -> list[dict[str, Any]]:
        """A row per job: how well its intent was kept, over the whole run and at its end."""
        return [self._summary(name, lines) for name, lines in self.jobs.items()]

    def _summary(self, name: str, lines: JobFigures) -> dict[str, Any]:
        satisfaction = np.array([np.nan if v is None else v for v in lines.satisfaction])
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
            "at_end": lines.satisfaction[-1],
            "utility": lines.utility[-1],
            "max_utility": lines.job.intent.max_utility,
            "throughput": lines.values["throughput"][-1],
            "latency_ms": lines.values["latency.mean"][-1],
            "juice": lines.values["juice"][-1],
            "lag": lines.lag[-1],
            "instances": sum(counts[-1] for counts in lines.parallelism.values()),
            "actions": len(actions),
        }

    @property
    def overall(self) -> float | None:
        """The cluster's satisfaction over the run."""
        values = np.array([np.nan if v is None else v for v in self.cluster])
        found = slo.satisfaction_over_time(values, np.array(self.spans_s))
        return None if found is None else _plain(found.average)


def _pad(lines: JobFigures, length: int) -> None:
    for line in lines.plain:
        line.extend([None] * length)


def first_latency_threshold(job: Job) -> Threshold | None:
    """The first latency that a job asks for."""
    return next((t for t in job.intent.thresholds if t.metric is Metric.LATENCY), None)
