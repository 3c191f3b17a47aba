"""Decides what is congested: operators, by a measure chosen by name, and the cluster, by machines.

SoCC'18, section 5.1: an operator is congested above a threshold, and gets instances in proportion
to how far it is above. The paper uses capacity, and names queue lengths and ETP as alternatives.

Section 5.2: a machine is congested when more threads are runnable than it has cores; a cluster,
when most of its machines are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trilithon.errors import InvalidPolicy
from trilithon.measures import rates
from trilithon.measures.capacity import capacity, congested_by_rates
from trilithon.measures.etp import etp
from trilithon.measures.group import max_by_node
from trilithon.model.columns import Floats
from trilithon.model.series import Window
from trilithon.model.snapshot import Snapshot

if TYPE_CHECKING:
    from trilithon.policies.henge.henge_parameters import HengeParameters

CAPACITY: Final = "capacity"
# Per node, its congestion level: congested above 1; the excess goes into equation 4.
CongestionMeasure = Callable[[Window, "HengeParameters"], Floats]


@dataclass(frozen=True, eq=False)
class OperatorCongestion:
    """Per node: its congestion level (congested above 1) and its capacity; NaN if not measured."""

    level: Floats
    capacity: Floats


def operator_congestion(window: Window, parameters: "HengeParameters") -> OperatorCongestion:
    level = MEASURES[parameters.congestion](window, parameters)
    return OperatorCongestion(level, capacity(window))


def register(name: str, measure: CongestionMeasure) -> None:
    """Adds a measure of congestion that the parameter `congestion` can name."""
    if name in MEASURES:
        raise InvalidPolicy(
            f"A measure of congestion named {name!r} exists already.",
            "Register it under another name.",
        )
    MEASURES[name] = measure


def _by_capacity(window: Window, parameters: "HengeParameters") -> Floats:
    return capacity(window) / parameters.capacity_threshold


def _by_queue(window: Window, parameters: "HengeParameters") -> Floats:
    return max_by_node(window.layout, window.queue) / parameters.queue_threshold


def _by_etp(window: Window, parameters: "HengeParameters") -> Floats:
    """Input over processing rate, relative to its threshold.

    An operator with an ETP of 0 cannot change the job's output (Stela, section II-D): while other
    operators can, it does not count as congested.
    """
    threshold = parameters.rate_threshold
    input_rate, processing_rate = rates.input_rate(window), rates.processing_rate(window)
    layout = window.layout
    congested = congested_by_rates(input_rate, processing_rate, threshold)
    congested[layout.sink_nodes] = False
    effect = np.nan_to_num(etp(layout, processing_rate, congested))
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(input_rate > 0, input_rate / processing_rate, input_rate)
    level = quotient / threshold
    # Input arrives and nothing is processed: the highest level.
    level = np.where(np.isinf(level), 100.0, level)
    effective = congested & (effect > 0)
    job_has_effective = np.bincount(layout.node_job[effective], minlength=len(layout.jobs)) > 0
    ineffective = congested & (effect == 0) & job_has_effective[layout.node_job]
    return np.where(ineffective, 0.0, level)


MEASURES: Final[dict[str, CongestionMeasure]] = {
    CAPACITY: _by_capacity,
    "queue": _by_queue,
    "etp": _by_etp,
}


@dataclass(frozen=True, slots=True)
class ClusterCongestion:
    """How many machines of the cluster are congested."""

    congested_machines: int
    machines: int

    @property
    def is_congested(self) -> bool:
        """Whether most machines are."""
        return 2 * self.congested_machines > self.machines


def cluster_congestion(
    snapshots: Sequence[Snapshot], parameters: "HengeParameters"
) -> ClusterCongestion:
    """Counts congested machines by their mean load over the snapshots.

    A machine whose memory is nearly full counts as well, since a Reduction helps it too. A machine
    without metrics does not count as congested.
    """
    last = snapshots[-1]
    names = last.layout.machines
    if not names:
        return ClusterCongestion(0, 0)
    loads = [
        snapshot.machines.load[[snapshot.layout.machine_row[name] for name in names]]
        for snapshot in snapshots
        if snapshot.layout is last.layout or set(names) <= set(snapshot.layout.machines)
    ]
    measured = np.array(loads)
    samples = np.maximum(1, (~np.isnan(measured)).sum(axis=0))
    load = np.where(np.isnan(measured).all(axis=0), np.nan, np.nansum(measured, axis=0) / samples)
    with np.errstate(invalid="ignore", divide="ignore"):
        used = last.machines.memory_used_bytes / last.machines.memory_bytes
        congested = (load > last.machines.cores) | (used > parameters.memory_full)
    return ClusterCongestion(int(congested.sum()), len(names))
