"""Owns ETP, the share of a job's output that an operator can change (Stela, section II).

    ETPₒ = throughput of the sinks that o reaches over paths without a congested operator
           / throughput of all sinks of the job

o itself may be congested: it is what would get the instance. Each sink counts once, however many
paths lead to it; the algorithm that the paper prints has no set of visited sinks and counts a
diamond's sink once per path. Both are here; the definition is the one to use.

Projection (section II-E): one more instance for an operator that has k makes its rates (k + 1)/k of
what they were; its children's input grows with it, and nothing else changes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trilithon.measures.capacity import CONGESTION_RATE, congested_by_rates
from trilithon.measures.group import ratio, sum_by
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


def etp(layout: Layout, processing: Floats, congested: Bools) -> Floats:
    """ETP of every node, 0…1, by the definition."""
    reached = _reached_sinks(layout, congested)
    sinks = layout.sink_nodes
    jobs = len(layout.jobs)
    total = sum_by(layout.node_job[sinks], processing[sinks], jobs)
    place = _place_in_job(layout)
    # The throughput of a job's k-th sink, looked up for each of its nodes.
    width = int(place.max(initial=-1)) + 1
    throughput = np.zeros((jobs, width))
    throughput[layout.node_job[sinks], place] = processing[sinks]
    reachable = np.zeros(len(layout.node_names))
    for k in range(width):
        bit = (reached[:, k // 64] >> np.uint64(k % 64)) & np.uint64(1)
        # A sink that nobody measured is only missing to those who reach it.
        reachable += np.where(bit == 1, throughput[layout.node_job, k], 0.0)
    return ratio(reachable, total[layout.node_job], nothing=0.0)


def _place_in_job(layout: Layout) -> Ints:
    """Which sink of its job each sink is: 0, 1, 2 …"""
    job = layout.node_job[layout.sink_nodes]
    return np.arange(len(job)) - np.searchsorted(job, job)


def _reached_sinks(layout: Layout, congested: Bools) -> npt.NDArray[np.uint64]:
    """The sinks of its job that each node reaches, as bits, 64 to a word."""
    place = _place_in_job(layout)
    words = int(place.max(initial=0)) // 64 + 1
    reached = np.zeros((len(layout.node_names), words), dtype=np.uint64)
    sinks = layout.sink_nodes
    reached[sinks, place // 64] = np.left_shift(np.uint64(1), (place % 64).astype(np.uint64))
    for edges in reversed(layout.edges_by_depth):
        source, target = layout.edge_source[edges], layout.edge_target[edges]
        through = np.where(congested[target][:, None], np.uint64(0), reached[target])
        np.bitwise_or.at(reached, source, through)
    return reached


def etp_as_printed(layout: Layout, processing: Floats, congested: Bools) -> Floats:
    """Algorithm 1 to the letter: a sink counts once per uncongested path to it."""
    nodes = len(layout.node_names)
    sinks = layout.sink_nodes
    total = sum_by(layout.node_job[sinks], processing[sinks], len(layout.jobs))
    reachable = np.zeros(nodes)
    reachable[sinks] = processing[sinks]
    for edges in reversed(layout.edges_by_depth):
        source, target = layout.edge_source[edges], layout.edge_target[edges]
        through = np.where(congested[target], 0.0, reachable[target])
        reachable += np.bincount(source, weights=through, minlength=nodes)
    return ratio(reachable, total[layout.node_job], nothing=0.0)


def project(layout: Layout, rates: Rates, extra: Ints) -> Rates:
    """The rates after each node got `extra` more instances."""
    k = np.maximum(1, rates.parallelism)
    growth = np.where(rates.parallelism > 0, (k + extra) / k, 1.0)
    edge = rates.edge * growth[layout.edge_source]
    nodes = len(layout.node_names)
    more = np.bincount(layout.edge_target, weights=edge - rates.edge, minlength=nodes)
    return Rates(
        input=rates.input + more,
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


def etp_sum(layout: Layout, etp: Floats, instance_machine: Floats) -> Floats:
    """Per machine, the ETP of the operator of each instance on it, added up (section II-F).

    Over all jobs. An instance whose machine is missing counts nowhere.
    """
    placed = ~np.isnan(instance_machine)
    machine = instance_machine[placed].astype(np.int64)
    of_instance = etp[layout.instance_node][placed]
    sums = np.bincount(machine, weights=of_instance, minlength=len(layout.machines))
    return sums.astype(np.float64)  # of integers when no instance is placed
