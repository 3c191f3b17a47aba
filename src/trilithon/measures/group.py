"""Adds up rows by group: sums, maxima and means per node or job."""

import numpy as np

from trilithon.model.columns import Floats, Ints
from trilithon.model.layout import Layout


def sum_by(group: Ints, values: Floats, groups: int) -> Floats:
    """The sum per group; missing where one part is missing or where a group has no rows."""
    totals = np.bincount(group, weights=values, minlength=groups)
    sizes = np.bincount(group, minlength=groups)
    return np.where(sizes == 0, np.nan, totals)


def max_by_node(layout: Layout, values: Floats) -> Floats:
    """The largest value among a node's instances; missing where
    one is missing or there are none.
    """
    return _reduce(layout, values, np.maximum)


def _reduce(layout: Layout, values: Floats, function: np.ufunc) -> Floats:
    result = np.full(len(layout.node_names), np.nan)
    occupied = layout.parallelism > 0
    if occupied.any():
        starts = layout.first_instance[occupied]
        result[occupied] = function.reduceat(values, starts)
    return result


def sum_by_node(layout: Layout, values: Floats) -> Floats:
    return sum_by(layout.instance_node, values, len(layout.node_names))


def sum_by_job(layout: Layout, values: Floats) -> Floats:
    return sum_by(layout.node_job[layout.instance_node], values, len(layout.jobs))


def mean_by_node(layout: Layout, values: Floats) -> Floats:
    return sum_by_node(layout, values) / np.maximum(1, layout.parallelism)


def weighted(weight: Floats, values: Floats) -> Floats:
    """Weight times value; what weighs nothing is 0 even if it is missing."""
    return np.where(weight == 0, 0.0, weight * values)


def ratio(part: Floats, whole: Floats, nothing: float = np.nan) -> Floats:
    """part / whole, and `nothing` where the whole is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole == 0, np.where(np.isnan(part), np.nan, nothing), part / whole)
