"""Owns capacity: how busy instances are, and which operators that makes congested.

Henge, SoCC'18, equation 3: executed records × mean service time / window, which is the sum of the
service times over the window; an operator's capacity is the largest among its instances.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from trilithon.measures.group import max_by_node, ratio, sum_by_node
from trilithon.model.columns import Floats
from trilithon.model.series import Window

# Henge, section 5.1: low on purpose, so that more operators become candidates.
CAPACITY_THRESHOLD: Final = 0.3
# Stela, section II-C.
CONGESTION_RATE: Final = 1.2


def instance_capacity(window: Window) -> Floats:
    """The share of time each instance was at work; 0…1 but for the error of clocks."""
    return window.instances.busy_s / window.span_s


def capacity(window: Window) -> Floats:
    """Per node; missing for sources and sinks, which have no instances."""
    return max_by_node(window.layout, instance_capacity(window))


def cpu_capacity(window: Window) -> Floats:
    """The same with CPU time of the thread: far below `capacity` means waiting, not computing."""
    return max_by_node(window.layout, window.instances.cpu_s / window.span_s)


def service_s(window: Window) -> Floats:
    """Mean service time per node."""
    taken = sum_by_node(window.layout, window.instances.taken)
    return ratio(sum_by_node(window.layout, window.instances.busy_s), taken)


def congested_by_capacity(
    capacity: Floats, threshold: float = CAPACITY_THRESHOLD
) -> npt.NDArray[np.bool_]:
    """Above the threshold. What is missing is not called congested."""
    return np.nan_to_num(capacity) > threshold


def congested_by_rates(
    input_rate: Floats, processing_rate: Floats, threshold: float = CONGESTION_RATE
) -> npt.NDArray[np.bool_]:
    """Input / processing above the threshold (Stela, section II-C). Something coming in and nothing
    processed is congested; what is missing is not called so.
    """
    asked = np.nan_to_num(input_rate)
    done = np.where(np.isnan(processing_rate), np.inf, processing_rate)
    return (asked > 0) & (asked > threshold * done)
