"""Owns how unevenly the instances of an operator fare (Dhalion, section 5.1, table 1)."""

from trilithon.measures.group import max_by_node, mean_by_node, ratio
from trilithon.model.columns import Floats
from trilithon.model.layout import Layout


def imbalance(layout: Layout, values: Floats) -> Floats:
    """The largest over the mean among the instances of each node: 1 is even, p is all on one."""
    return ratio(max_by_node(layout, values), mean_by_node(layout, values), nothing=1.0)
