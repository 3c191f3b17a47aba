"""Computes the crunch indicator: is the cluster too small, and which jobs are overly hungry?

SoCC'18, section 5.5, names the signs: jobs of high priority that many Reconfigurations changed, and
many missed intents on a congested cluster. How many slots are missing is our own model
(`measures/demand.py`): a job needs the fewest instances that keep its thresholds. One whose intent
is a juice or a throughput must carry only that share of its load. If the sum exceeds the slots, no
allocation meets all intents. Policies do not act on this model; it tells people where to look.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trilithon.measures.demand import Demand, JobGraph
from trilithon.model.columns import Floats
from trilithon.model.hosts import sum_over_hosts
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import NodeKind
from trilithon.model.layout import NODE_KINDS
from trilithon.model.series import Window
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.memory import Memory
from trilithon.policies.henge.view import observe
from trilithon.policies.policy import State
from trilithon.policies.scene import JobStatus, Scene

# Chosen: an operator that must keep up is busy for at most this share of the time.
MAX_UTILISATION = 0.9
# Chosen: a job that still misses its intent after so many Reconfigurations within `blacklist_s` is
# overly hungry.
HUNGRY_RECONFIGURATIONS = 3


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """The slots that a job needs by the model, per operator, and those that it has (`current`).

    `instances` is None where metrics are missing; then the job needs `least` at any rate.
    `possible` is False if even the most instances that the job may have are too few: the latency
    threshold is below the operators' own service times, the bounds are too tight, or less input
    arrives than the throughput threshold demands.
    """

    job: str
    current: int
    instances: Mapping[str, int] | None
    possible: bool
    latency_ms: float | None
    least: int = 1

    @property
    def slots(self) -> int:
        """The slots needed; without metrics, the least that the job can run with."""
        return self.least if self.instances is None else sum(self.instances.values())


@dataclass(frozen=True, slots=True)
class Crunch:
    """Whether the cluster is large enough for all intents."""

    needs: tuple[SlotNeed, ...]
    hungry: tuple[str, ...]
    missed: tuple[str, ...]
    congested: bool
    slots: int | None
    cores: float | None
    cores_needed: float | None

    @property
    def slots_needed(self) -> int:
        return sum(need.slots for need in self.needs)

    @property
    def slots_missing(self) -> int:
        return 0 if self.slots is None else max(0, self.slots_needed - self.slots)

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(need.job for need in self.needs if need.instances is None)

    @property
    def impossible(self) -> tuple[str, ...]:
        return tuple(need.job for need in self.needs if not need.possible)

    @property
    def oversubscribed(self) -> bool:
        """The paper's sign: half of the jobs or more miss their intents on a congested cluster."""
        return self.congested and 2 * len(self.missed) >= len(self.needs) > 0

    @property
    def feasible(self) -> bool | None:
        """Whether some allocation meets all intents; None while metrics are missing."""
        short_of_cores = (
            self.cores is not None
            and self.cores_needed is not None
            and self.cores_needed > self.cores
        )
        if self.impossible or self.slots_missing or short_of_cores:
            return False
        return None if self.unknown else True


def compute_crunch(
    scene: Scene, state: State, parameters: HengeParameters | None = None
) -> Crunch | None:
    """The indicator by the last window and Henge's memory. None without a window."""
    parameters = parameters or HengeParameters()
    view = observe(scene, parameters)
    if view is None:
        return None
    window = view.window
    demand = Demand.of(window)
    memory = Memory.of(state.get("henge", {}))
    missed = tuple(name for name, job in view.jobs.items() if job.misses(parameters.missed))
    cores = sum_over_hosts(window.layout.machines, window.machines.cores)
    shares = {name: _required_share(window, name, demand) for name in window.layout.jobs}
    needed = demand.cores(window, shares)
    return Crunch(
        needs=tuple(
            _slot_need(status, window, demand, shares)
            for _, status in sorted(scene.statuses.items())
        ),
        hungry=_hungry_jobs(scene, memory, missed, parameters),
        missed=missed,
        congested=view.cluster_congestion.is_congested,
        slots=scene.cluster.slots,
        cores=None if math.isnan(cores) or cores == 0 else cores,
        cores_needed=None if math.isnan(needed) else needed,
    )


def hungry_jobs(
    scene: Scene, state: State, parameters: HengeParameters | None = None
) -> tuple[str, ...] | None:
    """The overly hungry jobs alone, which costs less than the indicator. None without a window."""
    parameters = parameters or HengeParameters()
    if (view := observe(scene, parameters)) is None:
        return None
    missed = tuple(name for name, job in view.jobs.items() if job.misses(parameters.missed))
    return _hungry_jobs(scene, Memory.of(state.get("henge", {})), missed, parameters)


def _hungry_jobs(
    scene: Scene, memory: Memory, missed: tuple[str, ...], parameters: HengeParameters
) -> tuple[str, ...]:
    """Jobs that miss their intents after many Reconfigurations, most Reconfigurations first. Only
    jobs whose priority is the median or higher: Henge does not prefer the others.
    """
    jobs = scene.series.last.jobs
    priorities = sorted(jobs[n].intent.priority for n in scene.statuses if n in jobs)
    median = priorities[len(priorities) // 2] if priorities else 0.0
    since_s = scene.now_s - parameters.blacklist_s
    reconfigurations = {
        name: sum(at_s > since_s for at_s in memory.jobs[name].touched_s)
        for name in missed
        if name in memory.jobs and jobs[name].intent.priority >= median
    }
    hungry = [name for name, count in reconfigurations.items() if count >= HUNGRY_RECONFIGURATIONS]
    return tuple(sorted(hungry, key=lambda name: (-reconfigurations[name], name)))


def _required_share(window: Window, name: str, demand: Demand) -> float:
    """The share of its input that a job must process to meet its intent.

    All of it for a latency, as a backlog would grow otherwise; the share that the threshold names
    for juice or throughput; none without thresholds.
    """
    thresholds = window.jobs[name].intent.thresholds
    if any(threshold.metric is Metric.LATENCY for threshold in thresholds):
        return 1.0
    output = _unthrottled_output(window, name, demand)
    shares = [threshold.value for threshold in thresholds if threshold.metric is Metric.JUICE]
    shares += [
        threshold.value / output if output > 0 else 1.0
        for threshold in thresholds
        if threshold.metric is Metric.THROUGHPUT
    ]
    arriving = _arriving_per_s(window, name)
    shares += [
        threshold.value / arriving if arriving > 0 else 1.0
        for threshold in thresholds
        if threshold.metric is Metric.EMISSION
    ]
    return min(1.0, max(shares, default=0.0))


def _unthrottled_output(window: Window, name: str, demand: Demand) -> float:
    """The records per second that a job would write if nothing were held back."""
    rows = np.array(window.layout.job_nodes(name))
    sinks = rows[window.layout.node_kind[rows] == NODE_KINDS.index(NodeKind.SINK)]
    return float(demand.rate_per_s[sinks].sum())


def _arriving_per_s(window: Window, name: str) -> float:
    """The records per second that arrive at all sources of a job."""
    layout = window.layout
    of_job = layout.node_job[layout.source_nodes] == layout.job_row[name]
    return float(window.sources.arrived[of_job].sum() / window.span_s)


def _slot_need(
    status: JobStatus, window: Window, demand: Demand, shares: Mapping[str, float]
) -> SlotNeed:
    layout, job = window.layout, window.jobs.get(status.job)
    current = status.allocation.instances
    fewest = sum(span.min for span in status.spans.values())
    unknown = SlotNeed(status.job, current, None, possible=True, latency_ms=None, least=fewest)
    if job is None or status.job not in layout.jobs:
        return unknown
    rows = np.array(layout.job_nodes(status.job))
    nodes = rows[layout.node_kind[rows] == NODE_KINDS.index(NodeKind.OPERATOR)]
    load = demand.load[nodes]
    if np.isnan(load).any():
        return unknown
    names = [layout.node_names[node] for node in nodes]
    now = np.array([status.allocation.parallelism.get(n, 1) for n in names], float)
    fixed = np.array([n in status.fixed or n not in status.spans for n in names])
    least = np.array([status.spans[n].min if n in status.spans else 1 for n in names], float)
    most = np.array([status.spans[n].max if n in status.spans else 1 for n in names], float)
    least, most = np.where(fixed, now, least), np.where(fixed, now, most)
    share = shares[status.job]
    # A job that need not keep up may be busy all the time.
    utilisation = MAX_UTILISATION if share >= 1 else 1.0
    counts = np.clip(np.maximum(1.0, np.ceil(load * share / utilisation - 1e-9)), least, most)
    keeps_up = bool((load < counts).all() if share >= 1 else (load * share <= counts + 1e-9).all())
    output = _unthrottled_output(window, status.job, demand)
    enough_input = all(
        t.met(output) for t in job.intent.thresholds if t.metric is Metric.THROUGHPUT
    ) and all(
        t.met(_arriving_per_s(window, status.job))
        for t in job.intent.thresholds
        if t.metric is Metric.EMISSION
    )
    limits = [t for t in job.intent.thresholds if t.metric is Metric.LATENCY]
    graph = JobGraph.of(layout, rows, nodes, demand)
    counts, latency_met = _add_until_latency_met(graph, counts, most, limits)
    latency = graph.latency_s(counts, None)
    return SlotNeed(
        status.job,
        current,
        {name: int(count) for name, count in zip(names, counts, strict=True)},
        possible=keeps_up and enough_input and latency_met,
        latency_ms=1000 * latency if math.isfinite(latency) else None,
    )


def _add_until_latency_met(
    graph: "JobGraph", counts: Floats, most: Floats, limits: list[Threshold]
) -> tuple[Floats, bool]:
    """Adds instances one by one, each where it shortens latency the most, until the limits are met;
    and whether they are met.
    """
    for threshold in limits:
        limit_s, quantile = threshold.value / 1000, threshold.quantile
        if graph.latency_s(most, quantile) > limit_s:
            return counts, False
        while (latency_s := graph.latency_s(counts, quantile)) > limit_s:
            growable = np.flatnonzero(counts < most)
            trials = [counts + (np.arange(len(counts)) == operator) for operator in growable]
            latencies = [graph.latency_s(trial, quantile) for trial in trials]
            best = int(np.argmin(latencies))
            if not latencies[best] < latency_s:
                # Several paths are the longest, and one instance shortens one of them only: add it
                # to the operator on any of them where records wait the longest.
                on_longest = graph.on_longest_path(counts, quantile)
                waits = np.where(on_longest, graph.waits(counts), -1.0)
                best = int(np.argmax(waits[growable]))
            counts = trials[best]
    return counts, True
