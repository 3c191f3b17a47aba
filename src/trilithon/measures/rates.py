"""Owns rates and back-pressure, by the one definition that each signal has.

processing rate   taken / window
back-pressure     b = time that senders were held back / (senders · window), per edge
input rate        source: arrived / window; operator: Σ over its edges of sent / (1 − b) / window
could take        taken / (1 − own parked share) / window: an operator that only waits for its
                  receivers is not congested, though it takes less than wants to come in
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from trilithon.measures.group import ratio, sum_by
from trilithon.model.columns import Floats
from trilithon.model.series import Window

# Chosen: with its senders held back all the time, what an operator would have got is unknown;
# it is counted as a hundred times of what it did get.
MOST_PARKED: Final = 0.99
# Chosen: an edge counts as blocked when its senders were held back for a twentieth of the time.
BLOCKED: Final = 0.05


def processing_rate(window: Window) -> Floats:
    """Records per second that each node took: from the log, from its queue, or to write them."""
    layout = window.layout
    rate = sum_by(layout.edge_target, window.edges.taken, len(layout.node_names)) / window.span_s
    rate[layout.source_nodes] = window.sources.taken / window.span_s
    rate[layout.sink_nodes] = window.sinks.written / window.span_s
    return rate


def emit_rate(window: Window) -> Floats:
    """Records per second that each node sent on, over all its edges; a sink sends nothing."""
    layout = window.layout
    rate = sum_by(layout.edge_source, window.edges.emitted, len(layout.node_names)) / window.span_s
    rate[layout.sink_nodes] = 0.0
    return rate


def back_pressure(window: Window) -> Floats:
    """b: the share of time that the senders of each edge were held back, 0…1."""
    return np.clip(ratio(window.edges.parked_s, window.edges.senders * window.span_s), 0, 1)


def input_rate(window: Window, parked: Floats | None = None) -> Floats:
    """Records per second that wanted to come in, whether they could or not."""
    layout = window.layout
    b = np.minimum(back_pressure(window) if parked is None else parked, MOST_PARKED)
    wanted = window.edges.emitted / (1 - b) / window.span_s
    rate = sum_by(layout.edge_target, wanted, len(layout.node_names))
    rate[layout.source_nodes] = window.sources.arrived / window.span_s
    return rate


def own_parked_share(window: Window, parked: Floats | None = None) -> Floats:
    """The share of time that each node was held back by its receivers, 0…1; a sink never is.

    An instance waits for one receiver at a time, so the shares of its edges add up.
    """
    layout = window.layout
    b = back_pressure(window) if parked is None else parked
    share = np.bincount(layout.edge_source, weights=b, minlength=len(layout.node_names))
    clipped: Floats = np.clip(share, 0.0, 1.0)
    return clipped


def could_take_rate(window: Window, parked: Floats | None = None) -> Floats:
    """Records per second that each node would take if its receivers did not hold it back. A node
    whose own parking was not measured counts as not held back.
    """
    share = np.minimum(np.nan_to_num(own_parked_share(window, parked)), MOST_PARKED)
    rate: Floats = processing_rate(window) / (1 - share)
    return rate


def scale_up_factor(b: Floats) -> Floats:
    """b / (1 − b): the share of the load that could not be handled (Dhalion, section 5.1).

    Held back for 20 % of the time, an operator lacks a quarter of its instances.
    """
    b = np.minimum(b, MOST_PARKED)
    return b / (1 - b)


def back_pressure_origin(window: Window, parked: Floats | None = None) -> npt.NDArray[np.bool_]:
    """The operators that hold others back and are not held back themselves: inbound edges blocked,
    outbound ones not. An edge that was not measured counts as not blocked.
    """
    layout = window.layout
    nodes = len(layout.node_names)
    blocked = np.nan_to_num(back_pressure(window) if parked is None else parked) > BLOCKED
    into = np.bincount(layout.edge_target, weights=blocked, minlength=nodes) > 0
    out = np.bincount(layout.edge_source, weights=blocked, minlength=nodes) > 0
    return into & ~out
