"""Owns ETP, the share of a job's output that an operator can change (Stela, section II).

    ETPₒ = throughput of the sinks that o reaches over paths without a congested operator
           / throughput of all sinks of the job

o itself may be congested: it is what would get the instance. Each sink counts once, however many
paths lead to it; the algorithm that the paper prints has no set of visited sinks and counts a
diamond's sink once per path. Both are here; the definition is the one to use. Sinks may have
weights (footnote 1): the throughput of a sink then counts that many times.

Projection (section II-E): one more instance for an operator that has k makes its rates (k + 1)/k of
what they were; its children's input grows with it, and nothing else changes. In the paper a sink is
an operator. Here it is only where records leave: it has no instances, is never congested, and its
rate follows its input.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trilithon.measures.capacity import CONGESTION_RATE, congested_by_rates
from trilithon.measures.group import ratio, sum_by, weighted
from trilithon.model.columns import Floats, Ints
from trilithon.model.layout import Layout

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rates:
    """What ETP is computed from: rates per node, the rate of each edge, and instances."""

    input: Floats
    processing: Floats
    edge: Floats
    parallelism: Ints


def etp(
    layout: Layout, processing: Floats, congested: Bools, sink_weight: Floats | None = None
) -> Floats:
    """ETP of every node, 0…1, by the definition. Missing in a job with an unmeasured sink."""
    processing = _with_weights(layout, processing, sink_weight)
    reachable = np.zeros(len(layout.node_names))
    for part in _parts(layout):
        reachable += part.throughput(part.reached(congested), processing)
    return ratio(reachable, _total(layout, processing)[layout.node_job], nothing=0.0)


def _with_weights(layout: Layout, processing: Floats, sink_weight: Floats | None) -> Floats:
    if sink_weight is None:
        return processing
    sinks, rates = layout.sink_nodes, processing.copy()
    rates[sinks] = weighted(sink_weight, processing[sinks])
    return rates


def _total(layout: Layout, processing: Floats) -> Floats:
    sinks = layout.sink_nodes
    return sum_by(layout.node_job[sinks], processing[sinks], len(layout.jobs))


@dataclass(frozen=True, eq=False)
class _Part:
    """Up to 64 sinks of every job that has so many, each of them a bit."""

    layout: Layout
    sinks: Ints  # the nodes of these sinks
    bit: Ints  # which bit each of them is
    nodes: Bools  # the nodes of the jobs that have them

    def reached(self, congested: Bools) -> npt.NDArray[np.uint64]:
        """The sinks that each node reaches over paths without a congested operator."""
        layout = self.layout
        shut = _shut(layout, congested)
        reached = np.zeros(len(layout.node_names), dtype=np.uint64)
        reached[self.sinks] = np.left_shift(np.uint64(1), self.bit.astype(np.uint64))
        for edges in reversed(layout.edges_by_depth):
            mine = edges[self.nodes[layout.edge_source[edges]]]
            source, target = layout.edge_source[mine], layout.edge_target[mine]
            through = np.where(shut[target], np.uint64(0), reached[target])
            np.bitwise_or.at(reached, source, through)
        return reached

    def throughput(self, reached: npt.NDArray[np.uint64], processing: Floats) -> Floats:
        """The throughput of the sinks that each node reaches, added up."""
        layout = self.layout
        totals = np.zeros(len(layout.node_names))
        for k in range(int(self.bit.max(initial=-1)) + 1):
            # The k-th of these sinks in each job that has one, looked up for the job's nodes.
            sinks = self.sinks[self.bit == k]
            rate = np.full(len(layout.jobs), np.nan)
            rate[layout.node_job[sinks]] = processing[sinks]
            nodes = np.flatnonzero((reached >> np.uint64(k)) & np.uint64(1))
            totals[nodes] += rate[layout.node_job[nodes]]
        return totals


def _parts(layout: Layout) -> Iterator[_Part]:
    sinks = layout.sink_nodes
    job = layout.node_job[sinks]
    place = np.arange(len(job)) - np.searchsorted(job, job)
    for word in range(int(place.max(initial=-1)) // 64 + 1):
        mine = place // 64 == word
        has = np.zeros(len(layout.jobs), dtype=bool)
        has[job[mine]] = True
        yield _Part(layout, sinks[mine], place[mine] % 64, has[layout.node_job])


def _shut(layout: Layout, congested: Bools) -> Bools:
    """The nodes through which no path leads."""
    shut = congested.copy()
    shut[layout.sink_nodes] = False
    return shut


def etp_as_printed(
    layout: Layout, processing: Floats, congested: Bools, sink_weight: Floats | None = None
) -> Floats:
    """Algorithm 1 to the letter: a sink counts once per uncongested path to it."""
    processing = _with_weights(layout, processing, sink_weight)
    nodes = len(layout.node_names)
    sinks = layout.sink_nodes
    reachable = np.zeros(nodes)
    reachable[sinks] = processing[sinks]
    shut = _shut(layout, congested)
    for edges in reversed(layout.edges_by_depth):
        source, target = layout.edge_source[edges], layout.edge_target[edges]
        through = np.where(shut[target], 0.0, reachable[target])
        reachable += np.bincount(source, weights=through, minlength=nodes)
    return ratio(reachable, _total(layout, processing)[layout.node_job], nothing=0.0)


def project(layout: Layout, rates: Rates, extra: Ints) -> Rates:
    """The rates after each node got `extra` more instances."""
    k = np.maximum(1, rates.parallelism)
    growth = np.where(rates.parallelism > 0, (k + extra) / k, 1.0)
    edge = rates.edge * growth[layout.edge_source]
    nodes = len(layout.node_names)
    more = np.bincount(layout.edge_target, weights=edge - rates.edge, minlength=nodes)
    asked = rates.input + more
    sinks = layout.sink_nodes
    growth[sinks] = ratio(asked[sinks], rates.input[sinks], nothing=1.0)
    return Rates(
        input=asked,
        processing=rates.processing * growth,
        edge=edge,
        parallelism=rates.parallelism + extra,
    )


def projected_etp(
    layout: Layout, rates: Rates, extra: Ints, threshold: float = CONGESTION_RATE
) -> Floats:
    """ETP after the rates have followed the new instances."""
    after = project(layout, rates, extra)
    congested = congested_by_rates(after.input, after.processing, threshold)
    return etp(layout, after.processing, congested)


def next_target(layout: Layout, etp: Floats, congested: Bools) -> Ints:
    """The node of each job that the next instance should go to: its congested operator with the
    highest ETP (section II-E). Where none is congested the paper takes a source; what it does to a
    source happens here to the first operator, so it is one that reads a source. −1 without any.
    """
    operators = layout.operator_nodes
    first = np.zeros(len(layout.node_names), dtype=bool)
    from_source = np.isin(layout.edge_source, layout.source_nodes)
    first[layout.edge_target[from_source]] = True
    # Congested ones before those that read a source, the higher ETP before the lower.
    rank = np.where(congested[operators], 0, np.where(first[operators], 1, 2))
    order = np.lexsort((-np.nan_to_num(etp[operators]), rank, layout.node_job[operators]))
    ranked = operators[order]
    jobs, best = np.unique(layout.node_job[ranked], return_index=True)
    target = np.full(len(layout.jobs), -1, dtype=np.int64)
    useful = rank[order][best] < 2
    target[jobs[useful]] = ranked[best[useful]]
    return target


def etp_sum(layout: Layout, etp: Floats, instance_machine: Floats) -> Floats:
    """Per machine, the ETP of the operator of each instance on it, added up (section II-F).

    Over all jobs. While it is not known where an instance is, no machine's sum is known.
    """
    machines = len(layout.machines)
    if np.isnan(instance_machine).any():
        return np.full(machines, np.nan)
    of_instance = etp[layout.instance_node]
    sums = np.bincount(instance_machine.astype(np.int64), weights=of_instance, minlength=machines)
    return sums.astype(np.float64)  # of integers when there are no instances
