"""Models what a job needs and how long its records take: demand, waiting and the longest path.

    demand   λₒ = the sources' arrivals, multiplied along the graph by each operator's selectivity
    load     aₒ = λₒ · Sₒ instances' worth of work; with fewer instances the operator falls behind
    waiting  Wₒ(p) = e · ρ·S / (1 − ρ) · (c²_A + c²_S)/2 with ρ = a/p
             (Kingman, as in measures/queueing.py)
    latency  of a job: the longest path from a source to a sink, Σ (S + W) + transport + batching

Where metrics are missing it assumes e = 1 and c² = 1, and for a quantile q the tail of an
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
from trilithon.model.layout import Layout
from trilithon.model.series import Window


@dataclass(frozen=True, eq=False)
class Demand:
    """Per node: its input rate if nothing were held back, and the cost of a record."""

    rate_per_s: Floats
    service_s: Floats
    cpu_s: Floats
    variation: Floats
    coefficient: Floats
    transport_s: Floats  # per edge, without waiting: idle transport and batching

    @classmethod
    def of(cls, window: Window) -> "Demand":
        layout, edges = window.layout, window.edges
        load = queueing.operator_load(window)
        taken = sum_by_node(layout, window.instances.taken)
        cv2 = np.where(np.isnan(load.arrival_cv2), 1.0, load.arrival_cv2)
        cs2 = np.where(np.isnan(load.service_cv2), 1.0, load.service_cv2)
        e = queueing.fitted_coefficient(load)
        batching = np.nan_to_num(ratio(edges.batching_s, edges.transfers))
        return cls(
            rate_per_s=unthrottled_rates(window),
            service_s=load.service_s,
            cpu_s=ratio(sum_by_node(layout, window.instances.cpu_s), taken),
            variation=(cv2 + cs2) / 2,
            coefficient=np.where(np.isnan(e), 1.0, e),
            transport_s=np.nan_to_num(edges.idle_transport_s) + batching,
        )

    @property
    def load(self) -> Floats:
        return self.rate_per_s * self.service_s

    def waiting(self, nodes: Ints, counts: Floats) -> Floats:
        rho = self.load[nodes] / counts
        factor = self.coefficient[nodes] * self.variation[nodes]
        with np.errstate(divide="ignore", invalid="ignore"):
            steady = factor * rho * self.service_s[nodes] / (1 - rho)
        return np.where(rho >= 1, np.inf, steady)

    def cores(self, window: Window, shares: Mapping[str, float]) -> float:
        """The cores that all operators keep busy with the required shares of their input."""
        layout = window.layout
        node_shares = np.array([shares[name] for name in layout.jobs])[layout.node_job]
        busy = self.rate_per_s * self.cpu_s * node_shares
        return float(busy[layout.operator_nodes].sum())


def unthrottled_rates(window: Window) -> Floats:
    """Each node's input rate if nothing were held back: of a source, its arrivals; of another node,
    what its upstream nodes would emit to it.
    """
    layout = window.layout
    nodes = len(layout.node_names)
    rates = np.zeros(nodes)
    rates[layout.source_nodes] = window.sources.arrived / window.span_s
    selectivity = ratio(
        window.edges.emitted / window.span_s,
        processing_rate(window)[layout.edge_source],
        nothing=0.0,
    )
    for edges in layout.edges_by_depth:
        emitted = rates[layout.edge_source[edges]] * selectivity[edges]
        rates += np.bincount(layout.edge_target[edges], weights=emitted, minlength=nodes)
    return rates


@dataclass(frozen=True, eq=False)
class JobGraph:
    """The paths through one job. Edges and costs number its nodes from 0; `first` is the row of
    node 0 in the layout.
    """

    nodes: Ints
    first: int
    size: int
    edges: tuple[tuple[int, int, float], ...]
    demand: Demand

    @classmethod
    def of(cls, layout: Layout, rows: Ints, nodes: Ints, demand: Demand) -> "JobGraph":
        # The edges of a job are contiguous in the layout, and each points to a later node.
        start, stop = np.searchsorted(layout.edge_source, [rows[0], rows[-1] + 1])
        first = int(rows[0])
        edges = sorted(
            (
                int(layout.edge_source[edge]) - first,
                int(layout.edge_target[edge]) - first,
                float(demand.transport_s[edge]),
            )
            for edge in range(int(start), int(stop))
        )
        return cls(nodes, first, len(rows), tuple(edges), demand)

    def waits(self, counts: Floats) -> Floats:
        return self.demand.waiting(self.nodes, counts)

    def latency_s(self, counts: Floats, quantile: float | None) -> float:
        """The latency of the longest path; for a quantile, with the tail of the waiting times."""
        cost = self._cost(counts, quantile)
        return max(reached + own for reached, own in zip(self._reached_s(cost), cost, strict=True))

    def on_longest_path(self, counts: Floats, quantile: float | None) -> Bools:
        """Which operators are on a path that is as long as the longest."""
        cost = self._cost(counts, quantile)
        remaining = list(cost)
        for source, target, transport_s in reversed(self.edges):
            through_target = cost[source] + transport_s + remaining[target]
            remaining[source] = max(remaining[source], through_target)
        path_s = np.array(self._reached_s(cost)) + np.array(remaining)
        longest: Bools = (path_s >= path_s.max() * (1 - 1e-9))[self.nodes - self.first]
        return longest

    def _cost(self, counts: Floats, quantile: float | None) -> list[float]:
        tail = 1.0 if quantile is None else max(1.0, math.log(1 / (1 - quantile)))
        cost = np.zeros(self.size)
        service = np.nan_to_num(self.demand.service_s[self.nodes])
        cost[self.nodes - self.first] = service + tail * self.waits(counts)
        return [float(cost_s) for cost_s in cost]

    def _reached_s(self, cost: list[float]) -> list[float]:
        """The longest time from a source to each node."""
        reached = [0.0] * self.size
        for source, target, transport_s in self.edges:
            through_source = reached[source] + cost[source] + transport_s
            reached[target] = max(reached[target], through_source)
        return reached
