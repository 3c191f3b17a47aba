"""Computes DS2's rates: what instances can process while they work, and what the load asks of them.

DS2 (Kalavri and others, OSDI'18), in the words of this project:

    true processing rate    records taken / service time, per instance: what one that never waits
                            for records or receivers would process per second
    selectivity             of an edge: records sent over it / records that its sender took
    wanted input            source: growth of the log's end offsets per second, so that a backlog
                            hides nothing; operator: Σ over its edges of
                            wanted input of the sender · selectivity
    needed instances        x = wanted input / true processing rate, a real number

Wanted inputs follow from each other without rounding: an operator whose number of instances is
rounded up sends no more for it.
"""

import numpy as np

from trilithon.measures.group import ratio, sum_by_node
from trilithon.measures.rates import processing_rate
from trilithon.model.columns import Floats
from trilithon.model.series import Window


def true_processing_rate(window: Window) -> Floats:
    """Records per second of service time, the mean over the instances of each node that took any.

    Missing for sources and sinks, where an instance was not measured, and where none took a record.
    """
    layout, instances = window.layout, window.instances
    idle = instances.taken == 0
    rate = np.where(idle, 0.0, ratio(instances.taken, instances.busy_s))
    return ratio(sum_by_node(layout, rate), sum_by_node(layout, np.where(idle, 0.0, 1.0)))


def selectivity(window: Window) -> Floats:
    """Records sent over each edge per record that its sender took; missing where it took none."""
    return ratio(window.edges.emitted, _sender_taken(window))


def wanted_input(window: Window) -> Floats:
    """Records per second that each node would get if no operator held another back."""
    layout = window.layout
    source, target = layout.edge_source, layout.edge_target
    sent_per_record, no_records = selectivity(window), _sender_taken(window) == 0
    wanted = np.zeros(len(layout.node_names))
    wanted[layout.source_nodes] = window.sources.arrived / window.span_s
    for edges in layout.edges_by_depth:
        # Where no record is wanted and none came, none is sent: its selectivity is not needed.
        none = no_records[edges] & (wanted[source[edges]] == 0)
        sent = np.where(none, 0.0, wanted[source[edges]] * sent_per_record[edges])
        wanted += np.bincount(target[edges], weights=sent, minlength=len(wanted))
    return wanted


def needed_instances(window: Window) -> Floats:
    """x per node: how many instances the wanted input keeps busy all the time, unrounded. 0 where
    no record is wanted and none came; missing where no instance has shown how fast it is.
    """
    wanted = wanted_input(window)
    no_records = (wanted == 0) & (sum_by_node(window.layout, window.instances.taken) == 0)
    return np.where(no_records, 0.0, ratio(wanted, true_processing_rate(window)))


def source_rate_ratio(window: Window) -> Floats:
    """Per job: what arrived over what was read, the largest among its sources. 1 at a source at
    which nothing arrived; infinite where records arrived and none was read.
    """
    layout, sources = window.layout, window.sources
    largest = np.full(len(layout.jobs), -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        behind = np.where(sources.arrived == 0, 1.0, sources.arrived / sources.taken)
        np.maximum.at(largest, layout.node_job[layout.source_nodes], behind)
    return np.where(np.isneginf(largest), np.nan, largest)


def _sender_taken(window: Window) -> Floats:
    """Records that the sender of each edge took in the window."""
    return (processing_rate(window) * window.span_s)[window.layout.edge_source]
