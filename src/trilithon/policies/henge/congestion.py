"""Owns what is congested: operators, by one of the measures that are known by name, and the cluster, by its machines.

SoCC'18, section 5.1: an operator is congested above a threshold, and gets instances in proportion to how
far above. The paper takes capacity and names queue lengths and ETP as others that would do.

Section 5.2: a machine is congested when more threads run or could run than it has cores; a cluster, when
most of its machines are.
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
    from trilithon.policies.henge.parameters import HengeParameters

CAPACITY: Final = "capacity"
# Per node, how congested it is: above 1 it is, and the excess goes into equation 4.
Measure = Callable[[Window, "HengeParameters"], Floats]


@dataclass(frozen=True, eq=False)
class Congestion:
    """Per node: how congested it is (above 1 it is), and how busy. Missing where nobody measured."""

    level: Floats
    capacity: Floats


def congestion(window: Window, parameters: "HengeParameters") -> Congestion:
    return Congestion(MEASURES[parameters.congestion](window, parameters), capacity(window))


def register(name: str, measure: Measure) -> None:
    """Adds a measure, which the parameter `congestion` can name from now on."""
    if name in MEASURES:
        raise InvalidPolicy(
            f"A measure of congestion named {name!r} exists.", "Register it under another name."
        )
    MEASURES[name] = measure


def _by_capacity(window: Window, parameters: "HengeParameters") -> Floats:
    return capacity(window) / parameters.capacity_threshold


def _by_queue(window: Window, parameters: "HengeParameters") -> Floats:
    return max_by_node(window.layout, window.queue) / parameters.queue_threshold


def _by_etp(window: Window, parameters: "HengeParameters") -> Floats:
    """Input over processing rate, relative to its threshold; but an operator with an ETP of 0 cannot
    change what the job puts out (Stela, section II-D), so while others can, it is passed over.
    """
    threshold = parameters.rate_threshold
    asked, done = rates.input_rate(window), rates.processing_rate(window)
    layout = window.layout
    congested = congested_by_rates(asked, done, threshold)
    congested[layout.sink_nodes] = False
    share = np.nan_to_num(etp(layout, done, congested))
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(asked > 0, asked / done, asked) / threshold
    # Something comes in and nothing is processed: as congested as can be told.
    level = np.where(np.isinf(level), 100.0, level)
    effective = congested & (share > 0)
    useful = np.bincount(layout.node_job[effective], minlength=len(layout.jobs)) > 0
    passed_over = congested & (share == 0) & useful[layout.node_job]
    return np.where(passed_over, 0.0, level)


MEASURES: Final[dict[str, Measure]] = {CAPACITY: _by_capacity, "queue": _by_queue, "etp": _by_etp}


@dataclass(frozen=True, slots=True)
class ClusterCongestion:
    """How many machines are congested, of how many."""

    congested: int
    machines: int

    @property
    def most(self) -> bool:
        return 2 * self.congested > self.machines


def crowd(snapshots: Sequence[Snapshot], parameters: "HengeParameters") -> ClusterCongestion:
    """By the mean load over some snapshots: a moment's load says little. Memory counts as well, as
    nearly full machines gain by a Reduction, too; a machine that nobody measured is not congested.
    """
    last = snapshots[-1]
    names = last.layout.machines
    if not names:
        return ClusterCongestion(0, 0)
    loads = [
        s.machines.load[[s.layout.machine_row[name] for name in names]]
        for s in snapshots
        if s.layout is last.layout or set(names) <= set(s.layout.machines)
    ]
    known = np.array(loads)
    counted = np.maximum(1, (~np.isnan(known)).sum(axis=0))
    load = np.where(np.isnan(known).all(axis=0), np.nan, np.nansum(known, axis=0) / counted)
    with np.errstate(invalid="ignore", divide="ignore"):
        used = last.machines.memory_used_bytes / last.machines.memory_bytes
        congested = (load > last.machines.cores) | (used > parameters.memory_full)
    return ClusterCongestion(int(congested.sum()), len(names))
