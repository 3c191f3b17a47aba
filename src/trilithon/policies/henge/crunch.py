"""Owns the crunch indicator: who is overly hungry, and whether the cluster can meet all intents at all.

SoCC'18, section 5.5, names the signs: jobs of high priority that many Reconfigurations touch, and many missed
intents on a congested cluster. How many slots are missing is our own:

    demand   λₒ = what the sources get, carried through the graph by what each operator passes on
    load     aₒ = λₒ · Sₒ instances' worth of work; fewer than that never keep up, and who is promised a juice
             or a throughput only must keep up with that share of it
    waiting  Wₒ(p) = e · ρ·S / (1 − ρ) · (c²_A + c²_S)/2 with ρ = a/p       (Kingman, as in measures/queueing.py)
    latency  of a job: the longest way from a source to a sink, Σ (S + W) + transport + batching

For each job the fewest instances are sought with which its thresholds hold; if their sum exceeds the slots,
no division of the cluster meets all intents. A model is a model: it says where to look, and policies do not
act on it. Where numbers are missing it assumes e = 1 and c² = 1, and a tail beyond the mean as that of an
exponential: waiting · ln(1/(1 − q)).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trilithon.measures import queueing
from trilithon.measures.group import ratio, sum_by_node
from trilithon.measures.rates import processing_rate
from trilithon.model.columns import Bools, Floats, Ints
from trilithon.model.hosts import sum_over_hosts
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import NodeKind
from trilithon.model.layout import NODE_KINDS, Layout
from trilithon.model.series import Window
from trilithon.policies.henge.memory import Memory
from trilithon.policies.henge.parameters import HengeParameters
from trilithon.policies.henge.view import view
from trilithon.policies.policy import State
from trilithon.policies.scene import JobStatus, Scene

# Chosen: an operator that is to keep up is busy for at most this share of the time.
FULL = 0.9
# Chosen: overly hungry is who was touched so often within the time of a blacklisting and still misses.
HUNGRY_TOUCHES = 3


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs by the model: instances per operator, and what it has.

    `instances` is None where numbers are missing. `possible` is False if not even the most instances
    that it may have would do: the promise is below what its operators need by themselves, bounds are
    too tight, or less comes in than is to go out.
    """

    job: str
    has: int
    instances: Mapping[str, int] | None
    possible: bool
    latency_ms: float | None
    least: int = 1

    @property
    def slots(self) -> int:
        """At least: of a job of which too little is known, what it cannot do without."""
        return self.least if self.instances is None else sum(self.instances.values())


@dataclass(frozen=True, slots=True)
class Crunch:
    """Whether there is enough. `feasible` is None while it cannot be told."""

    needs: tuple[Need, ...]
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
        """Whether all intents can be met, however the cluster is divided."""
        short_of_cores = (
            self.cores is not None and self.cores_needed is not None and self.cores_needed > self.cores
        )  # fmt: skip
        if self.impossible or self.slots_missing or short_of_cores:
            return False
        return None if self.unknown else True


def crunch(scene: Scene, state: State, parameters: HengeParameters | None = None) -> Crunch | None:
    """By what the last window shows, and by what Henge remembers. None without a window."""
    given = parameters or HengeParameters()
    found = view(scene, given)
    if found is None:
        return None
    window = found.window
    work = _Work.of(window)
    memory = Memory.of(state.get("henge", {}))
    missed = tuple(n for n, seen in found.jobs.items() if seen.misses(given.missed))
    cores = sum_over_hosts(window.layout.machines, window.machines.cores)
    shares = {name: _share(window, name, work) for name in window.layout.jobs}
    needed = work.cores(window, shares)
    return Crunch(
        needs=tuple(_need(scene.statuses[n], window, work, shares) for n in sorted(scene.statuses)),
        hungry=_hungry(scene, memory, missed, given),
        missed=missed,
        congested=found.crowd.most,
        slots=scene.cluster.slots,
        cores=None if math.isnan(cores) or cores == 0 else cores,
        cores_needed=None if math.isnan(needed) else needed,
    )


def _hungry(
    scene: Scene, memory: Memory, missed: tuple[str, ...], parameters: HengeParameters
) -> tuple[str, ...]:
    """Those that miss their intents after many Reconfigurations, the most touched first. Of them only
    jobs whose priority is no lower than the middle one: others are not preferred.
    """
    jobs = scene.series.last.jobs
    priorities = sorted(jobs[n].intent.priority for n in scene.statuses if n in jobs)
    middle = priorities[len(priorities) // 2] if priorities else 0.0
    since_s = scene.now_s - parameters.blacklist_s
    touches = {
        name: sum(at_s > since_s for at_s in memory.jobs[name].touched_s)
        for name in missed
        if name in memory.jobs and jobs[name].intent.priority >= middle
    }
    many = [name for name, count in touches.items() if count >= HUNGRY_TOUCHES]
    return tuple(sorted(many, key=lambda name: (-touches[name], name)))


@dataclass(frozen=True, eq=False)
class _Work:
    """Per node: what would come in if nothing were held back, and what it costs."""

    demand_per_s: Floats
    service_s: Floats
    cpu_s: Floats
    variation: Floats
    coefficient: Floats
    transport_s: Floats  # per edge, what is not waiting: idle transport and batching

    @classmethod
    def of(cls, window: Window) -> "_Work":
        layout, edges = window.layout, window.edges
        load = queueing.operator_load(window)
        taken = sum_by_node(layout, window.instances.taken)
        cv2 = np.where(np.isnan(load.arrival_cv2), 1.0, load.arrival_cv2)
        cs2 = np.where(np.isnan(load.service_cv2), 1.0, load.service_cv2)
        e = queueing.fitted_coefficient(load)
        batching = np.nan_to_num(ratio(edges.batching_s, edges.transfers))
        return cls(
            demand_per_s=_demand(window),
            service_s=load.service_s,
            cpu_s=ratio(sum_by_node(layout, window.instances.cpu_s), taken),
            variation=(cv2 + cs2) / 2,
            coefficient=np.where(np.isnan(e), 1.0, e),
            transport_s=np.nan_to_num(edges.idle_transport_s) + batching,
        )

    @property
    def load(self) -> Floats:
        return self.demand_per_s * self.service_s

    def waiting(self, nodes: Ints, counts: Floats) -> Floats:
        rho = self.load[nodes] / counts
        factor = self.coefficient[nodes] * self.variation[nodes]
        with np.errstate(divide="ignore", invalid="ignore"):
            steady = factor * rho * self.service_s[nodes] / (1 - rho)
        return np.where(rho >= 1, np.inf, steady)

    def cores(self, window: Window, shares: Mapping[str, float]) -> float:
        """The cores that all operators keep busy with what the intents ask for."""
        layout = window.layout
        of_node = np.array([shares[name] for name in layout.jobs])[layout.node_job]
        busy = self.demand_per_s * self.cpu_s * of_node
        return float(busy[layout.operator_nodes].sum())


def _demand(window: Window) -> Floats:
    """What each node would get: sources what arrives, others what their parents would pass on."""
    layout = window.layout
    nodes = len(layout.node_names)
    demand = np.zeros(nodes)
    demand[layout.source_nodes] = window.sources.arrived / window.span_s
    passed = ratio(
        window.edges.emitted / window.span_s,
        processing_rate(window)[layout.edge_source],
        nothing=0.0,
    )
    for edges in layout.edges_by_depth:
        more = demand[layout.edge_source[edges]] * passed[edges]
        demand += np.bincount(layout.edge_target[edges], weights=more, minlength=nodes)
    return demand


def _share(window: Window, name: str, work: _Work) -> float:
    """Of what comes to a job, the share that it must carry so that its intent can be met: all of it for a
    latency, as a backlog would grow; what is asked for where that is juice or throughput; nothing without one.
    """
    thresholds = window.jobs[name].intent.thresholds
    if any(one.metric is Metric.LATENCY for one in thresholds):
        return 1.0
    written = _written(window, name, work)
    asked = [one.value for one in thresholds if one.metric is Metric.JUICE]
    asked += [
        one.value / written if written > 0 else 1.0
        for one in thresholds
        if one.metric is Metric.THROUGHPUT
    ]
    return min(1.0, max(asked, default=0.0))


def _written(window: Window, name: str, work: _Work) -> float:
    """What a job would write if nothing were held back."""
    rows = np.array(window.layout.job_nodes(name))
    sinks = rows[window.layout.node_kind[rows] == NODE_KINDS.index(NodeKind.SINK)]
    return float(work.demand_per_s[sinks].sum())


def _need(status: JobStatus, window: Window, work: _Work, shares: Mapping[str, float]) -> Need:
    layout, job = window.layout, window.jobs.get(status.job)
    has = status.allocation.instances
    fewest = sum(span.min for span in status.spans.values())
    unknown = Need(status.job, has, None, possible=True, latency_ms=None, least=fewest)
    if job is None or status.job not in layout.jobs:
        return unknown
    rows = np.array(layout.job_nodes(status.job))
    nodes = rows[layout.node_kind[rows] == NODE_KINDS.index(NodeKind.OPERATOR)]
    load = work.load[nodes]
    if np.isnan(load).any():
        return unknown
    names = [layout.node_names[node] for node in nodes]
    now = np.array([status.allocation.parallelism.get(n, 1) for n in names], float)
    fixed = np.array([n in status.fixed or n not in status.spans for n in names])
    least = np.array([status.spans[n].min if n in status.spans else 1 for n in names], float)
    most = np.array([status.spans[n].max if n in status.spans else 1 for n in names], float)
    least, most = np.where(fixed, now, least), np.where(fixed, now, most)
    share = shares[status.job]
    # Who need not keep up may be busy all the time.
    full = FULL if share >= 1 else 1.0
    counts = np.clip(np.maximum(1.0, np.ceil(load * share / full - 1e-9)), least, most)
    keeps_up = bool((load < counts).all() if share >= 1 else (load * share <= counts + 1e-9).all())
    written = _written(window, status.job, work)
    comes_in = all(t.met(written) for t in job.intent.thresholds if t.metric is Metric.THROUGHPUT)
    limits = [t for t in job.intent.thresholds if t.metric is Metric.LATENCY]
    path = _Path.of(layout, rows, nodes, work)
    counts, met = _grown(path, counts, most, limits)
    latency = path.latency_s(counts, None)
    return Need(
        status.job,
        has,
        {name: int(count) for name, count in zip(names, counts, strict=True)},
        possible=keeps_up and comes_in and met,
        latency_ms=1000 * latency if math.isfinite(latency) else None,
    )


def _grown(
    path: "_Path", counts: Floats, most: Floats, limits: list[Threshold]
) -> tuple[Floats, bool]:
    """The fewest instances that keep the latencies, one by one where it gains the most."""
    for threshold in limits:
        wanted, quantile = threshold.value / 1000, threshold.quantile
        if path.latency_s(most, quantile) > wanted:
            return counts, False
        while (now := path.latency_s(counts, quantile)) > wanted:
            open_ones = np.flatnonzero(counts < most)
            trials = [counts + (np.arange(len(counts)) == one) for one in open_ones]
            found = [path.latency_s(trial, quantile) for trial in trials]
            best = int(np.argmin(found))
            if not found[best] < now:
                # No single one shortens the longest way, as there are several: on with the busiest on any of them.
                waits = np.where(path.longest(counts, quantile), path.waits(counts), -1.0)
                best = int(np.argmax(waits[open_ones]))
            counts = trials[best]
    return counts, True


@dataclass(frozen=True, eq=False)
class _Path:
    """The ways through one job; its nodes are counted from the first of them."""

    nodes: Ints
    first: int
    size: int
    edges: tuple[tuple[int, int, float], ...]
    work: _Work

    @classmethod
    def of(cls, layout: Layout, rows: Ints, nodes: Ints, work: _Work) -> "_Path":
        # The edges of a job stand together, and each points forwards.
        start, stop = np.searchsorted(layout.edge_source, [rows[0], rows[-1] + 1])
        first = int(rows[0])
        edges = sorted(
            (
                int(layout.edge_source[edge]) - first,
                int(layout.edge_target[edge]) - first,
                float(work.transport_s[edge]),
            )
            for edge in range(int(start), int(stop))
        )
        return cls(nodes, first, len(rows), tuple(edges), work)

    def waits(self, counts: Floats) -> Floats:
        return self.work.waiting(self.nodes, counts)

    def latency_s(self, counts: Floats, quantile: float | None) -> float:
        """Of the longest way from a source to a sink; for a quantile, with the tail of the waiting."""
        cost = self._cost(counts, quantile)
        return max(a + b for a, b in zip(self._reached(cost), cost, strict=True))

    def longest(self, counts: Floats, quantile: float | None) -> Bools:
        """Which operators are on a way that is as long as the longest."""
        cost = self._cost(counts, quantile)
        left = list(cost)
        for source, target, transport_s in reversed(self.edges):
            left[source] = max(left[source], cost[source] + transport_s + left[target])
        through = np.array(self._reached(cost)) + np.array(left)
        found: Bools = (through >= through.max() * (1 - 1e-9))[self.nodes - self.first]
        return found

    def _cost(self, counts: Floats, quantile: float | None) -> list[float]:
        tail = 1.0 if quantile is None else max(1.0, math.log(1 / (1 - quantile)))
        spent = np.zeros(self.size)
        service = np.nan_to_num(self.work.service_s[self.nodes])
        spent[self.nodes - self.first] = service + tail * self.waits(counts)
        return [float(one) for one in spent]

    def _reached(self, cost: list[float]) -> list[float]:
        """When each node is reached at the latest, from where a record came in."""
        found = [0.0] * self.size
        for source, target, transport_s in self.edges:
            found[target] = max(found[target], found[source] + cost[source] + transport_s)
        return found
