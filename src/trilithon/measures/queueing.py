"""Owns waiting: how long records wait for an instance, and how that depends on parallelism.

Latency guarantees in Nephele, section IV-C. The values of an operator are averages over its
instances (equation 2), each of which is a GI/G/1 queue; Kingman's formula gives

    W = (ρ/μ) / (1 − ρ) · (c²_A + c²_S) / 2                                             (equation 3)

and e = measured waiting / W fits it to what was measured (equation 4).
With p instances now, p* later

    W(p*) = e · λ·S²·p / (p* − λ·S·p) · (c²_A + c²_S) / 2  =  a / (p* − b)           (section IV-C2)
    a = e · λ·S²·p · (c²_A + c²_S) / 2          b = λ·S·p

The paper's algorithm leaves e out of a; that would minimise something else than what it predicts,
so it is in. For p* ≤ b there is no steady state and the waiting is infinite.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from trilithon.measures.group import mean_by_node, ratio, sum_by, sum_by_node
from trilithon.model.columns import Bools, Floats, Ints
from trilithon.model.layout import Layout
from trilithon.model.series import Window

# More than any cluster has: what would need more cannot be had.
MOST_INSTANCES: Final = 2.0**31


@dataclass(frozen=True, eq=False)
class OperatorLoad:
    """What queueing needs to know of each operator; all but `waiting_s` are per instance."""

    arrival_per_s: Floats
    service_s: Floats
    arrival_cv2: Floats
    service_cv2: Floats
    waiting_s: Floats
    parallelism: Floats

    @property
    def utilisation(self) -> Floats:
        """ρ = λ·S."""
        return self.arrival_per_s * self.service_s


def operator_load(window: Window) -> OperatorLoad:
    """From the measurements of a window: averages over the instances of each operator.

    Equation 2 averages over instances and not over records: an instance that is slow and gets few
    records counts as much as the others. Of an instance that took none, only its rate of 0 counts.
    """
    layout, instances = window.layout, window.instances
    service = ratio(instances.busy_s, instances.taken)
    service_sq = ratio(instances.busy_sq_s2, instances.taken)
    gap = ratio(instances.gap_s, instances.gaps)
    gap_sq = ratio(instances.gap_sq_s2, instances.gaps)
    # The first record of an instance has no gap before it.
    no_gap = instances.gaps == 0
    rate = np.where(no_gap, instances.taken / window.span_s, ratio(np.ones_like(gap), gap))
    took, followed = instances.taken != 0, ~no_gap
    return OperatorLoad(
        arrival_per_s=mean_by_node(layout, rate),
        service_s=mean_of(layout, service, took),
        arrival_cv2=mean_of(layout, _variation(gap, gap_sq), followed) ** 2,
        service_cv2=mean_of(layout, _variation(service, service_sq), took) ** 2,
        waiting_s=waiting(window),
        parallelism=layout.parallelism.astype(float),
    )


def mean_of(layout: Layout, values: Floats, chosen: Bools) -> Floats:
    """The mean over the chosen instances of each node; missing where none is."""
    counted = np.where(chosen, values, 0.0)
    return ratio(sum_by_node(layout, counted), sum_by_node(layout, chosen.astype(float)))


def _variation(mean: Floats, mean_of_squares: Floats) -> Floats:
    """c = √Var(X) / mean, from the first two moments."""
    variance = np.maximum(0.0, mean_of_squares - mean**2)
    return ratio(np.sqrt(variance), mean, nothing=0.0)


def channel_latency(window: Window) -> Floats:
    """Mean time from leaving the sender to being taken, per edge. What is shorter than the clocks
    of the two ends may be apart is missing.
    """
    edges = window.edges
    mean_s = ratio(edges.channel_s, edges.transfers)
    return np.where(mean_s < 2 * edges.clock_error_s, np.nan, mean_s)


def batching(window: Window) -> Floats:
    """Mean time per edge that a record waits at its sender for others."""
    return ratio(window.edges.batching_s, window.edges.transfers)


def transport(window: Window) -> Floats:
    """Mean time per edge that a record travels without waiting: batching and idle transport."""
    return batching(window) + window.edges.idle_transport_s


def edge_waiting(window: Window) -> Floats:
    """Mean time in the queue of the receiver, of the records of each edge: channel latency −
    batching − idle transport. Equation 4 takes that of a sequence's own edge: where two streams
    meet, the records of one may wait longer than those of the other.
    """
    return np.maximum(0.0, channel_latency(window) - transport(window))


def waiting(window: Window) -> Floats:
    """Mean time in the queue per operator, over the records of all its edges."""
    layout, edges = window.layout, window.edges
    nodes = len(layout.node_names)
    waited = edges.channel_s - edges.batching_s - edges.idle_transport_s * edges.transfers
    unsure = edges.channel_s < 2 * edges.clock_error_s * edges.transfers
    total = sum_by(layout.edge_target, np.where(unsure, np.nan, waited), nodes)
    return np.maximum(0.0, ratio(total, sum_by(layout.edge_target, edges.transfers, nodes)))


def drained_waiting(window: Window) -> Floats:
    """How long queues that were worked off within the window made records wait, per operator, on
    average over all records that it took; 0 where no queue has become shorter.

    The queue of an instance shrinks from q₀ to q₁ records at a rate of μ − λ, for (q₀ − q₁)/(μ − λ)
    seconds. Meanwhile (q₀ + q₁)/2 records wait. Each instance has its own: where records stay with
    the instance that they were sent to, those that were added later have none. What others grow by
    meanwhile is no queue that is worked off, and counts against it: queues go up and down.
    """
    layout, instances, span_s = window.layout, window.instances, window.span_s
    gone = instances.taken - instances.sent
    spare = ratio(instances.taken, instances.busy_s) * span_s - instances.sent
    lasts_s = span_s * np.where(spare > gone, ratio(gone, spare), 1.0)
    waited_s = np.where(gone > 0, lasts_s * (window.queue + gone / 2), 0.0)
    taken = sum_by_node(layout, instances.taken)
    shrunk = sum_by_node(layout, np.maximum(gone, 0.0))
    net = np.maximum(0.0, ratio(sum_by_node(layout, gone), shrunk))
    return np.nan_to_num(ratio(sum_by_node(layout, waited_s), taken) * net)


def kingman(load: OperatorLoad) -> Floats:
    """Kingman's waiting in seconds; infinite at a utilisation of 1 or more."""
    rho = load.utilisation
    with np.errstate(divide="ignore", invalid="ignore"):
        steady = rho * load.service_s / (1 - rho) * (load.arrival_cv2 + load.service_cv2) / 2
    return np.where(rho >= 1, np.inf, steady)


def fitted_coefficient(load: OperatorLoad) -> Floats:
    """e: measured over predicted. 1 where neither model nor measurement has waiting; missing where
    only the measurement has, and where Kingman knows no steady state.
    """
    predicted = kingman(load)
    with np.errstate(divide="ignore", invalid="ignore"):
        e = load.waiting_s / predicted
    idle = (predicted == 0) & (load.waiting_s == 0)
    return np.where((predicted > 0) & np.isfinite(predicted), e, np.where(idle, 1.0, np.nan))


@dataclass(frozen=True, eq=False)
class WaitingModel:
    """W(p) = a / (p − b), for operators side by side."""

    a: Floats
    b: Floats

    @classmethod
    def fit(cls, load: OperatorLoad, e: Floats | None = None) -> "WaitingModel":
        """From measurements, with the coefficient that makes it exact at today's parallelism."""
        coefficient = fitted_coefficient(load) if e is None else e
        work = load.utilisation * load.parallelism
        variation = (load.arrival_cv2 + load.service_cv2) / 2
        return cls(a=coefficient * work * load.service_s * variation, b=work)

    def waiting(self, parallelism: npt.ArrayLike) -> Floats:
        """Seconds of waiting in each operator at these numbers of instances."""
        p = np.asarray(parallelism, float)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            steady = self.a / (p - self.b)
        unknown = np.isnan(self.a) | np.isnan(self.b)
        return np.where(unknown, np.nan, np.where(p > self.b, steady, np.inf))

    def parallelism_for(self, waiting_s: npt.ArrayLike) -> Ints:
        """P_W: the smallest number of instances with at most this waiting (section IV-D).

        0 where it is unknown, or where no number would do.
        """
        wanted = np.asarray(waiting_s, float)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Without variation there is no waiting, as soon as there are enough.
            needed = np.where(self.a == 0, 0.0, self.a / wanted)
            exact = np.ceil(needed + self.b)
        possible = (exact < MOST_INSTANCES) & (wanted >= 0)
        p = np.where(possible, np.maximum(1, exact), 1)
        # Rounding may leave the quotient a hair to either side: step to the right whole number.
        p = np.where(possible & ~(self.waiting(p) <= wanted), p + 1, p)
        p = np.where(possible & (p > 1) & (self.waiting(p - 1) <= wanted), p - 1, p)
        return np.where(possible, p, 0).astype(np.int64)


@dataclass(frozen=True, slots=True)
class WaitingCurve:
    """W(p) = a / (p − b) of one operator, in plain numbers: a search over a few operators costs
    more in arrays than it computes.
    """

    a: float
    b: float

    @property
    def least(self) -> int:
        """The fewest instances with a steady state."""
        return math.floor(self.b) + 1

    def waiting(self, p: int) -> float:
        return self.a / (p - self.b) if p > self.b else math.inf

    def gain(self, p: int) -> float:
        """How much less records wait with one more instance."""
        if p <= self.b:
            return math.inf
        return self.waiting(p) - self.waiting(p + 1)

    def parallelism_for(self, waiting_s: float) -> int | None:
        """P_W: the smallest number of instances with at most this waiting (section IV-D); None if
        no number would do.
        """
        if waiting_s < 0 or (waiting_s == 0 and self.a > 0):
            return None
        exact = self.b + (self.a / waiting_s if self.a > 0 else 0.0)
        if exact > MOST_INSTANCES:
            return None
        p = max(1, self.least, math.ceil(exact))
        # Rounding may leave the quotient a hair to either side: step to the right whole number.
        if self.waiting(p) > waiting_s:
            p += 1
        return p - 1 if p > 1 and self.waiting(p - 1) <= waiting_s else p

    def step_to(self, gain_s: float) -> int | None:
        """P_Δ: the smallest number of instances from which one more gains no more than `gain_s`;
        None if no number would do.

        W(p) − W(p + 1) = a / ((p − b)·(p + 1 − b)) ≤ g  ⟺  p ≥ b − ½ + √(¼ + a/g)
        """
        if gain_s <= 0:
            return self.least if self.a == 0 else None
        exact = self.b - 0.5 + math.sqrt(0.25 + self.a / gain_s)
        if exact > MOST_INSTANCES:
            return None
        p, slack = max(self.least, math.ceil(exact)), 1e-9 * gain_s
        if self.gain(p) > gain_s + slack:
            p += 1
        return p - 1 if p > self.least and self.gain(p - 1) <= gain_s + slack else p


def smallest_parallelism(load: OperatorLoad, utilisation: float) -> Ints:
    """The fewest instances with a utilisation of at most this: ⌈λ·S·p / ρ⌉, at least 1.

    0 where it is unknown, or where no number would do.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        exact = load.utilisation * load.parallelism / utilisation
    # A quotient that is whole but for rounding is whole.
    needed = np.ceil(exact - 1e-9 * np.maximum(1.0, np.abs(exact)))
    return np.where(exact < MOST_INSTANCES, np.maximum(1, needed), 0).astype(np.int64)
