"""Measures task latency: how long an operator has a record, by the kind of operator.

Latency guarantees, section II-A3.

    Read-Ready    from taking a record to being ready for the next: the service time. For operators
                  that compute record by record.
    Read-Write    from taking a record to the next time that the instance writes anything. For
                  operators that compute from several records: aggregations.

Both are averages over the instances of an operator (equation 2).
"""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np

from trilithon.measures import queueing
from trilithon.measures.group import ratio
from trilithon.model.columns import Bools, Floats
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Window


def task_latency(window: Window, service_s: Floats | None = None) -> Floats:
    """Mean task latency per node, in seconds. `service_s` is that of `operator_load`, if known."""
    ready = queueing.operator_load(window).service_s if service_s is None else service_s
    aggregating = _aggregating_nodes(window.layout, window.jobs)
    return np.where(aggregating, read_write(window), ready) if aggregating.any() else ready


def read_write(window: Window) -> Floats:
    """Mean Read-Write latency per node; missing where no instance wrote after taking a record."""
    instances = window.instances
    each = ratio(instances.write_wait_s, instances.write_waits)
    return queueing.mean_of(window.layout, each, instances.write_waits != 0)


def _aggregating_nodes(layout: Layout, jobs: Mapping[str, Job]) -> Bools:
    """The nodes of operators that aggregate, found once while neither jobs nor rows change."""
    known = _known.get(layout)
    if known is None or known[0] is not jobs:
        nodes = np.zeros(len(layout.node_names), dtype=bool)
        for name, job in jobs.items():
            for operator in job.operators:
                row = (
                    layout.node_row.get((name, operator.name)) if operator.work.aggregate else None
                )
                if row is not None:
                    nodes[row] = True
        known = _known[layout] = (jobs, nodes)
    return known[1]


_known: WeakKeyDictionary[Layout, tuple[Mapping[str, Job], Bools]] = WeakKeyDictionary()
