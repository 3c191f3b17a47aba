"""Owns how unevenly the instances of an operator fare (Dhalion, section 5.1, table 1)."""

import numpy as np
import numpy.typing as npt

from trilithon.measures.group import max_by_node, mean_by_node, ratio, sum_by
from trilithon.model.columns import Floats
from trilithon.model.layout import Layout


def imbalance(layout: Layout, values: Floats) -> Floats:
    """The largest over the mean among the instances of each node: 1 is even, p is all on one."""
    return ratio(max_by_node(layout, values), mean_by_node(layout, values), nothing=1.0)


def contrast(layout: Layout, values: Floats, chosen: npt.NDArray[np.bool_]) -> Floats:
    """The mean over the chosen instances of a node over the mean of the others.

    Table 1 compares the instances that held others back with the rest, in rate and in queue length.
    Missing where all instances are chosen or none is; infinite where the others have nothing.
    """
    nodes = len(layout.node_names)
    node = layout.instance_node
    of_chosen = sum_by(node[chosen], values[chosen], nodes)
    of_others = sum_by(node[~chosen], values[~chosen], nodes)
    size = np.bincount(node[chosen], minlength=nodes)
    others = np.bincount(node[~chosen], minlength=nodes)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (of_chosen / size) / (of_others / others)
