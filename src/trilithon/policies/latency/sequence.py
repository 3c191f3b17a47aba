"""Measures constrained sequences: what their operators do, what records wait for, what is fixed.

Latency guarantees, section IV-C. The **global summary** holds averages over the instances of every
operator and the channels of every edge. A constrained sequence takes its own edges from it:
the waiting of an operator is that of the records of the sequence's edge into it (equation 4). An
operator with which a sequence begins has no such edge: how long records wait for it does not count.

The time of a sequence has two parts. Instances change the waiting for its operators. They do not
change the task latencies, batching and transport, nor the whole channel latency of an edge with
which the sequence ends.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from trilithon.measures import queueing, rates
from trilithon.measures.group import ratio, sum_by_node
from trilithon.measures.queueing import OperatorLoad, WaitingCurve
from trilithon.measures.task_latency import task_latency
from trilithon.measures.true_rates import wanted_input
from trilithon.model.columns import Floats
from trilithon.model.intent import Constraint, EdgeName
from trilithon.model.series import Window
from trilithon.policies.scene import JobStatus

# Chosen: a queue that is worked off explains the waiting from this share on. Records that are taken
# then came when the queue was longer yet, so they have waited about twice as long as it tells.
DRAINED: Final = 0.25


@dataclass(frozen=True, eq=False)
class GlobalSummary:
    """The averages of a window (section IV-C1), per node or per edge.

    `rate_per_s` is λ per instance. Behind a gate, what arrives is no more than what is processed:
    λ is what was sent / (1 − share of time that senders were parked), if that is more. That is how
    fast senders send while they may. With a backlog behind them it is far more than what comes, so
    it counts up to what the sources' arrivals become on their way.
    """

    window: Window
    load: OperatorLoad
    rate_per_s: Floats
    task_s: Floats
    kingman_s: Floats
    channel_s: Floats
    transport_s: Floats
    batching_s: Floats
    waiting_s: Floats
    queue: Floats
    drained_s: Floats

    @classmethod
    def of(cls, window: Window) -> "GlobalSummary":
        load = queueing.operator_load(window)
        wanted = np.fmin(rates.input_rate(window), wanted_input(window))
        demand = ratio(wanted, load.parallelism)
        return cls(
            window=window,
            load=load,
            rate_per_s=np.fmax(load.arrival_per_s, demand),
            task_s=task_latency(window, load.service_s),
            kingman_s=queueing.kingman(load),
            channel_s=queueing.channel_latency(window),
            transport_s=queueing.transport(window),
            batching_s=queueing.batching(window),
            waiting_s=queueing.edge_waiting(window),
            queue=np.nan_to_num(sum_by_node(window.layout, window.queue)),
            drained_s=queueing.drained_waiting(window),
        )


@dataclass(frozen=True, slots=True)
class ConstrainedOperator:
    """An operator of a sequence, as measured with its present instances.

    `edge` is the sequence's edge into it, if there is one. `least` and `most` are the bounds of its
    parallelism; a fixed operator has its present number as both.
    """

    name: str
    edge: str | None
    instances: int
    least: int
    most: int
    fixed: bool
    rate_per_s: float
    service_s: float
    task_s: float
    waiting_s: float
    kingman_s: float
    # Records that wait for it at the end of the window, and how long a queue that was worked off
    # within the window made records wait on average.
    queue: float = 0.0
    drained_s: float = 0.0

    @property
    def draining(self) -> bool:
        """Whether the waiting is for the most part that of a queue which was worked off: it ends by
        itself, and says nothing of the steady state that the model is of.
        """
        return self.drained_s > DRAINED * self.waiting_s

    @property
    def work(self) -> float:
        """b = λ·S·p: how many instances the records keep busy all the time."""
        return self.rate_per_s * self.service_s * self.instances

    @property
    def utilisation(self) -> float:
        return self.rate_per_s * self.service_s

    @property
    def coefficient(self) -> float | None:
        """e: measured over Kingman's waiting (equation 4); None where the formula gives none."""
        if not 0 < self.kingman_s < math.inf:
            return None
        return self.waiting_s / self.kingman_s

    def curve(self, least_coefficient: float) -> WaitingCurve:
        """The fitted model, exact with the present instances. Only below full utilisation.

        a = e · λ·S²·p·(c²_A + c²_S)/2 = W · (p − b). Little waiting at a low load says little of a
        higher one: with e below `least_coefficient`, that is taken instead.
        """
        kingman_s = self.kingman_s if math.isfinite(self.kingman_s) else 0.0
        waiting_s = max(self.waiting_s, least_coefficient * kingman_s)
        return WaitingCurve(waiting_s * (self.instances - self.work), self.work)


@dataclass(frozen=True, slots=True)
class ConstrainedEdge:
    """An edge of a sequence: the mean time in batches at the sender, and what neither instances nor
    batching change. Of an edge with which a sequence ends, that is also the waiting behind it.
    """

    name: EdgeName
    batching_s: float
    other_s: float


@dataclass(frozen=True, eq=False)
class ConstrainedSequence:
    """A constraint with its measured operators and edges, in the order of the sequence."""

    number: int
    constraint: Constraint
    operators: tuple[ConstrainedOperator, ...]
    edges: tuple[ConstrainedEdge, ...]
    # Σ task latencies.
    task_s: float

    @property
    def transport_s(self) -> float:
        """What else instances do not change: batching, transport, a last edge."""
        return sum(edge.batching_s for edge in self.edges) + self.other_s

    @property
    def other_s(self) -> float:
        """What neither instances nor batching change."""
        return sum(edge.other_s for edge in self.edges)

    @property
    def waiting_s(self) -> float:
        return sum(o.waiting_s for o in self.operators)

    @property
    def measured_s(self) -> float:
        """The mean latency of the sequence."""
        return self.task_s + self.transport_s + self.waiting_s

    @property
    def limit_s(self) -> float:
        return self.constraint.mean_latency_ms / 1000

    @property
    def met(self) -> bool:
        return self.measured_s <= self.limit_s

    def waiting_limit_s(self, share: float, *, adaptive: bool = False) -> float:
        """Ŵ: how long records may wait in all queues of the sequence.

        The paper gives waiting a share of what task latencies leave, and the rest to batching
        (section IV-F). Where batching and transport take more than that rest, they leave less.
        With `adaptive` batching, that is shortened as far as needed (`output_batching.py`).
        """
        left_s = self.limit_s - self.task_s
        return min(share * left_s, left_s - (self.other_s if adaptive else self.transport_s))

    def bottlenecks(self, utilisation: float) -> tuple[ConstrainedOperator, ...]:
        return tuple(o for o in self.operators if o.utilisation >= utilisation)

    def __str__(self) -> str:
        return path_text(self.constraint)


def path_text(constraint: Constraint) -> str:
    """A sequence for people: edges between operators that are named anyway are left out."""
    parts = constraint.sequence
    shown = [
        str(part)
        for i, part in enumerate(parts)
        if isinstance(part, str) or i in (0, len(parts) - 1)
    ]
    return ", ".join(shown)


def sequences_of(
    summary: GlobalSummary, status: JobStatus
) -> tuple[tuple[ConstrainedSequence, ...], tuple[Constraint, ...]]:
    """The constraints of a job that are measured, and those of which a part is missing."""
    job = summary.window.jobs[status.job]
    measured: list[ConstrainedSequence] = []
    missing: list[Constraint] = []
    for number, constraint in enumerate(job.intent.constraints):
        sequence = measure_sequence(summary, status, constraint, number)
        if sequence is None:
            missing.append(constraint)
        else:
            measured.append(sequence)
    return tuple(measured), tuple(missing)


def measure_sequence(
    summary: GlobalSummary, status: JobStatus, constraint: Constraint, number: int = 0
) -> ConstrainedSequence | None:
    """A constraint as measured; None if a number of it is missing."""
    operators = tuple(_operators(summary, status, constraint))
    needed = [
        value
        for o in operators
        for value in (o.rate_per_s, o.service_s, o.task_s, o.waiting_s, float(o.instances))
    ]
    edges = tuple(_edges(summary, status, constraint))
    needed += [value for edge in edges for value in (edge.batching_s, edge.other_s)]
    if any(map(math.isnan, needed)) or len(operators) < len(constraint.operators):
        return None
    task_s = sum(o.task_s for o in operators)
    return ConstrainedSequence(number, constraint, operators, edges, task_s)


def _edges(
    summary: GlobalSummary, status: JobStatus, constraint: Constraint
) -> Iterator[ConstrainedEdge]:
    edge_rows = summary.window.layout.edge_row
    for i, part in enumerate(constraint.sequence):
        if isinstance(part, str):
            continue
        row = edge_rows.get((status.job, part.source, part.target))
        if row is None:
            yield ConstrainedEdge(part, math.nan, math.nan)
            continue
        last = i == len(constraint.sequence) - 1
        whole = float((summary.channel_s if last else summary.transport_s)[row])
        batching_s = float(summary.batching_s[row])
        yield ConstrainedEdge(part, batching_s, whole - batching_s)


def _operators(
    summary: GlobalSummary, status: JobStatus, constraint: Constraint
) -> Iterator[ConstrainedOperator]:
    layout = summary.window.layout
    for i, part in enumerate(constraint.sequence):
        if not isinstance(part, str):
            continue
        node, span = layout.node_row.get((status.job, part)), status.spans.get(part)
        instances = status.allocation.parallelism.get(part)
        if node is None or span is None or instances is None:
            continue
        fixed = part in status.fixed
        edge = constraint.sequence[i - 1] if i else None
        waiting_s = 0.0
        if isinstance(edge, EdgeName):
            row = layout.edge_row.get((status.job, edge.source, edge.target))
            waiting_s = math.nan if row is None else float(summary.waiting_s[row])
        yield ConstrainedOperator(
            name=part,
            edge=None if edge is None else str(edge),
            # What was measured is of the instances that ran.
            instances=int(layout.parallelism[node]),
            least=instances if fixed else span.min,
            most=instances if fixed else max(span.min, span.max),
            fixed=fixed,
            rate_per_s=float(summary.rate_per_s[node]),
            service_s=float(summary.load.service_s[node]),
            task_s=float(summary.task_s[node]),
            waiting_s=waiting_s,
            # Without an edge of the sequence into it, waiting does not count at all.
            kingman_s=0.0 if edge is None else float(summary.kingman_s[node]),
            queue=float(summary.queue[node]),
            drained_s=float(summary.drained_s[node]),
        )
