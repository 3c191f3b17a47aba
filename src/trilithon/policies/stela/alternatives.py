"""Defines the alternatives of section III-C, which migrate instances and create none.

The default takes every instance from its machine and places all of them in turn on all machines,
new ones included. The others order operators by what they call important, and move as many
instances to the new machines as Stela would create.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Final

import numpy as np

from trilithon.model.columns import Floats
from trilithon.model.layout import InstanceKey
from trilithon.policies.stela.scale_out import instances_to_give
from trilithon.policies.stela.scaling_plan import ScalingPlan, Step, placed
from trilithon.policies.stela.scaling_view import ScalingView
from trilithon.policies.stela.stela_parameters import (
    CENTRALITY,
    DESCENDANTS,
    LEAST_LINK_LOAD,
    MOST_LINK_LOAD,
    NEAR_SINK,
    NEAR_SOURCE,
)


def all_anew(view: ScalingView, machines: Sequence[str]) -> ScalingPlan:
    """Storm's default: everything is placed again, in turn, on all these machines."""
    turn = cycle(machines)
    moved = {key: next(turn) for key in _instances(view)}
    _, places = placed(view, (), (), moved)
    return ScalingPlan(places=places, throughput=_now(view), projected=_now(view))


def migrate(view: ScalingView, machines: Sequence[str], strategy: str) -> ScalingPlan:
    """The instances of the most important operators move to the new machines, in turn."""
    count = instances_to_give(view, len(machines))
    if strategy in {LEAST_LINK_LOAD, MOST_LINK_LOAD}:
        chosen = list(_by_link_load(view, count, most=strategy == MOST_LINK_LOAD))
    else:
        importance = _IMPORTANCE[strategy](view)
        rows = view.layout.node_row
        ordered = sorted(_instances(view), key=lambda key: -importance[rows[key[:2]]])
        chosen = ordered[:count]
    turn = cycle(machines)
    moved = {key: next(turn) for key in chosen}
    _, places = placed(view, (), (), moved)
    why = f"by {strategy}"
    steps = tuple(Step(f"{job} {name}[{i}]", strategy, None, None, why) for job, name, i in chosen)
    return ScalingPlan(places=places, steps=steps, throughput=_now(view), projected=_now(view))


def _now(view: ScalingView) -> float:
    """Moving creates nothing: by Stela's model throughput stays."""
    return float(view.throughput[[view.layout.job_row[name] for name in view.jobs]].sum())


def _instances(view: ScalingView) -> list[InstanceKey]:
    """Those that may be moved."""
    return [
        (job, operator, index)
        for job in view.jobs
        for operator in view.counts(job)
        if not view.fixed(job, operator)
        for index in view.indices_of(job, operator)
    ]


def _by_link_load(view: ScalingView, count: int, *, most: bool) -> Iterator[InstanceKey]:
    """Instances by the load of the links of each; neighbours of what moved already come first, so
    that operators that send to each other end up on the same machine.
    """
    layout, rows = view.layout, view.layout.node_row
    load = np.bincount(layout.edge_source, view.edge_rate, len(layout.node_names))
    load = load + np.bincount(layout.edge_target, view.edge_rate, len(layout.node_names))
    per_instance = load / np.maximum(1, layout.parallelism)
    beside: dict[int, set[int]] = {}
    for a, b in zip(layout.edge_source.tolist(), layout.edge_target.tolist(), strict=True):
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    left, moved = _instances(view), set[int]()
    sign = -1.0 if most else 1.0
    while left and count > 0:

        def order(key: InstanceKey) -> tuple[bool, bool, float]:
            node = rows[key[:2]]
            return (node in moved, not beside.get(node, set()) & moved, sign * per_instance[node])

        chosen = min(left, key=order)
        left.remove(chosen)
        moved.add(rows[chosen[:2]])
        count -= 1
        yield chosen


def _near_source(view: ScalingView) -> Floats:
    layout = view.layout
    depth = np.zeros(len(layout.node_names))
    for edges in layout.edges_by_depth:
        np.maximum.at(depth, layout.edge_target[edges], depth[layout.edge_source[edges]] + 1)
    return -depth


def _near_sink(view: ScalingView) -> Floats:
    layout = view.layout
    height = np.zeros(len(layout.node_names))
    for edges in reversed(layout.edges_by_depth):
        np.maximum.at(height, layout.edge_source[edges], height[layout.edge_target[edges]] + 1)
    return -height


def _descendants(view: ScalingView) -> Floats:
    layout = view.layout
    below: list[set[int]] = [set() for _ in layout.node_names]
    for edges in reversed(layout.edges_by_depth):
        for edge in edges:
            source, target = int(layout.edge_source[edge]), int(layout.edge_target[edge])
            below[source] |= {target} | below[target]
    return np.array([len(nodes) for nodes in below], dtype=np.float64)


def _centrality(view: ScalingView) -> Floats:
    layout = view.layout
    ends = np.concatenate([layout.edge_source, layout.edge_target])
    return np.bincount(ends, minlength=len(layout.node_names)).astype(np.float64)


_IMPORTANCE: Final[dict[str, Callable[[ScalingView], Floats]]] = {
    NEAR_SOURCE: _near_source,
    NEAR_SINK: _near_sink,
    DESCENDANTS: _descendants,
    CENTRALITY: _centrality,
}
