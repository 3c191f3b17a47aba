"""Owns juice: the share of what came in that was processed, whatever the rate and the graph.

Henge, SoCC'18, section 6 (report, section 5). For an operator o and its parents i

    Jₒ = Σᵢ Jᵢ · Eₒⁱ / Tᵢ          Eₒⁱ: taken by o from i,  Tᵢ: sent by i over all its edges
    juice = Σ over sinks of J / number of sources

T counts everything the parent sent to all its children: a record that goes to two of them counts
twice. The paper sums over sources too; J is linear in them, so one pass serves all sources. A
source begins with taken / arrived.

With weights wₖ on sinks the sum becomes Σ wₖ·Jₖ / Σ wₖ·J̃ₖ, where J̃ is the juice that there would
be if nothing were left over; for equal weights Σ J̃ₖ is the number of sources, and nothing changes.

Chosen: where nothing was sent nothing is left over, and each child has its equal part; where
nothing arrived at a source its juice is 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from trilithon.measures.group import ratio, sum_by, weighted
from trilithon.model.columns import Floats
from trilithon.model.series import Window


@dataclass(frozen=True, eq=False)
class Juice:
    """Juice per node, and per job."""

    node: Floats
    job: Floats


# A window is one of the parts of several longer ones: its juice is kept for as long as it exists.
_cache: WeakKeyDictionary[Window, tuple[Floats | None, Juice]] = WeakKeyDictionary()


def juice(window: Window, sink_weight: Floats | None = None) -> Juice:
    """Juice in one window. It may exceed 1 while a backlog is worked off."""
    known = _cache.get(window)
    if known is None or known[0] is not sink_weight:
        known = _cache[window] = (sink_weight, _juice(window, sink_weight))
    return known[1]


def _juice(window: Window, sink_weight: Floats | None) -> Juice:
    layout = window.layout
    nodes = len(layout.node_names)
    source, target = layout.edge_source, layout.edge_target
    sent_by_parent = sum_by(source, window.edges.emitted, nodes)[source]
    children = np.bincount(source, minlength=nodes)[source]
    even = 1.0 / np.maximum(1, children)
    processed = _share(window.edges.taken, sent_by_parent, even)
    possible = _share(window.edges.emitted, sent_by_parent, even)

    actual = np.zeros(nodes)
    ideal = np.zeros(nodes)
    # Nothing arrived: nothing is left over. Something was read all the same: a backlog.
    actual[layout.source_nodes] = ratio(window.sources.taken, window.sources.arrived, nothing=1.0)
    ideal[layout.source_nodes] = 1.0
    for edges in layout.edges_by_depth:
        actual += np.bincount(
            target[edges], weights=actual[source[edges]] * processed[edges], minlength=nodes
        )
        ideal += np.bincount(
            target[edges], weights=ideal[source[edges]] * possible[edges], minlength=nodes
        )

    sinks = layout.sink_nodes
    weight = np.ones(len(sinks)) if sink_weight is None else sink_weight
    job = layout.node_job[sinks]
    jobs = len(layout.jobs)
    return Juice(
        node=actual,
        job=ratio(
            sum_by(job, weighted(weight, actual[sinks]), jobs),
            sum_by(job, weighted(weight, ideal[sinks]), jobs),
        ),
    )


def _share(part: Floats, whole: Floats, even: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((whole == 0) & ~np.isnan(part), even, part / whole)


def juice_over(windows: Sequence[Window], sink_weights: Sequence[Floats] = ()) -> Floats:
    """The mean of the juice in sub-windows, per job of the last one.

    The paper looks at a minute in parts of ten seconds, so that a short burst weighs no more than
    the part it falls into. Parts in which a job was not there are left out. Weights of sinks are
    given for each window, or not at all.
    """
    by_job: dict[str, list[float]] = {}
    weights: Sequence[Floats | None] = sink_weights or [None] * len(windows)
    for window, weight in zip(windows, weights, strict=True):
        for job, value in zip(window.layout.jobs, juice(window, weight).job, strict=True):
            by_job.setdefault(job, []).append(float(value))
    return np.array([np.mean(by_job[job]) for job in windows[-1].layout.jobs] if windows else [])
