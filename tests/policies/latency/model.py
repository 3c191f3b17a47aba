"""A cluster in which records wait as Kingman's formula says, times a coefficient that tests choose.

Its snapshots have exact numbers. Saturated operators hold their senders back: they take what they
can, and the share of time for which senders are parked shows what else would have come.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from trilithon.model.allocation import initial
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import Alert, ParallelismChange
from trilithon.model.columns import Edges, Instances, Sources
from trilithon.model.intent import Constraint, Intent, sequence_of
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.decision import Decision
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.latency_policy import LatencyPolicy
from trilithon.policies.policy import State
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span

INTERVAL_S = 5.0


def limit(ms: float, *path: str) -> Constraint:
    return Constraint(sequence_of(path), ms, over_s=INTERVAL_S)


def line(
    *operators: str,
    constraints: tuple[Constraint, ...],
    name: str = "line",
    instances: int = 4,
    most: int = 100,
    priority: float = 1.0,
    edges: tuple[tuple[str, str], ...] | None = None,
    sources: tuple[str, ...] = ("in",),
) -> Job:
    pairs = edges or tuple(pairwise(["in", *operators, "out"]))
    return Job(
        tenant="t",
        name=name,
        sources=tuple(Source(source, (), ()) for source in sources),
        operators=tuple(
            Operator(o, parallelism=Parallelism(instances, 1, most)) for o in operators
        ),
        edges=tuple(Edge(a, b) for a, b in pairs),
        sinks=(Sink("out", ()),),
        intent=Intent(constraints=constraints, priority=priority),
    )


@dataclass
class Operating:
    """How an operator behaves: its rate and service time, how irregular they are, and how much
    longer records wait than Kingman's formula says. `edge_factor` multiplies the waiting of the
    records of single edges into it.
    """

    rate_per_s: float
    service_s: float = 0.01
    arrival_cv2: float = 1.0
    service_cv2: float = 1.0
    coefficient: float = 1.0
    edge_factor: Mapping[str, float] = field(default_factory=dict)
    # How fast its senders send while the gate is open; as fast as records come, if none is given.
    open_per_s: float | None = None
    # Relative service times and shares of the records, by instance; 1 where none is given.
    slowness: Mapping[int, float] = field(default_factory=dict)
    share: Mapping[int, float] = field(default_factory=dict)

    def waiting_s(self, p: int) -> float:
        rho = self.rate_per_s * self.service_s / p
        if rho >= 1:
            return 0.5
        variation = (self.arrival_cv2 + self.service_cv2) / 2
        return self.coefficient * rho * self.service_s / (1 - rho) * variation

    def done_per_s(self, p: int) -> float:
        return min(self.rate_per_s, p / self.service_s)


@dataclass
class QueueCluster:
    """Jobs that a policy sees every five seconds. What it decides is done at once."""

    jobs: dict[str, Job]
    operating: dict[tuple[str, str], Operating]
    # The paper's share for waiting, with or without batching.
    parameters: LatencyParameters = field(
        default_factory=lambda: LatencyParameters(waiting_share_alone=0.2)
    )
    how: Mapping[Ability, How] = field(default_factory=dict)
    slots: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    transport_s: float = 0.0005
    time_s: float = 1000.0
    # Records per second that come to each source; not measured if none is given.
    arriving_per_s: float | None = None
    # Records that were sent to an operator and not taken, by job and operator.
    queued: Mapping[tuple[str, str], float] = field(default_factory=dict)
    missing: bool = False
    idle: bool = False
    obey: bool = True
    state: State = field(default_factory=lambda: {"seed": 1})
    round: int = 0
    counted: defaultdict[tuple[Any, ...], float] = field(default_factory=lambda: defaultdict(float))

    def __post_init__(self) -> None:
        self.policy = LatencyPolicy(self.parameters)
        self.statuses = {
            name: JobStatus(
                name,
                job.tenant,
                initial(job),
                self.time_s,
                fixed=self.fixed,
                spans={o.name: Span(o.parallelism.min, o.parallelism.max) for o in job.operators},
            )
            for name, job in self.jobs.items()
        }
        self.series = Series((self.snapshot(),), self.policy.lookback_s)

    @classmethod
    def of(cls, *jobs: tuple[Job, Mapping[str, Operating]], **settings: Any) -> "QueueCluster":
        operating = {(job.id, name): o for job, each in jobs for name, o in each.items()}
        return cls({job.id: job for job, _ in jobs}, operating, **settings)

    def parallelism(self, job: str | None = None) -> dict[str, int]:
        return dict(self.statuses[job or next(iter(self.jobs))].allocation.parallelism)

    def operator(self, name: str, job: str | None = None) -> Operating:
        return self.operating[job or next(iter(self.jobs)), name]

    def run(self, seconds: float = INTERVAL_S) -> None:
        self.time_s += seconds
        for name, job in ({} if self.idle else self.jobs).items():
            for operator, p in self.parallelism(name).items():
                self._work(name, job, operator, p, seconds)

    def _work(self, name: str, job: Job, operator: str, p: int, seconds: float) -> None:
        o = self.operating[name, operator]
        done = o.done_per_s(p) * seconds
        shares = np.array([o.share.get(i, 1.0) for i in range(p)])
        for i, share in enumerate(shares / shares.sum()):
            taken, service_s = done * share, o.service_s * o.slowness.get(i, 1.0)
            gap_s = seconds / taken
            for what, value in (
                ("taken", taken),
                ("busy_s", taken * service_s),
                ("busy_sq_s2", taken * service_s**2 * (1 + o.service_cv2)),
                ("gaps", taken),
                ("gap_s", taken * gap_s),
                ("gap_sq_s2", taken * gap_s**2 * (1 + o.arrival_cv2)),
            ):
                self.counted[name, operator, i, what] += value
        into = job.parents[operator]
        for edge in into:
            sent = done / len(into)
            waiting_s = o.waiting_s(p) * o.edge_factor.get(edge.source, 1.0)
            parked = 1 - done / ((o.open_per_s or o.rate_per_s) * seconds)
            for what, value in (
                ("sent", sent),
                ("parked_s", parked * seconds),
                ("channel_s", sent * (waiting_s + self.transport_s)),
            ):
                self.counted[name, edge.source, edge.target, what] += value

    def snapshot(self) -> Snapshot:
        counts = {name: self.parallelism(name) for name in self.jobs}
        layout = Layout.build(self.jobs.values(), counts, ["m0", "m1"])

        def column(keys: Mapping[Any, int], what: str) -> list[float]:
            if self.missing:
                return [math.nan] * len(keys)
            return [self.counted[(*key, what)] for key in keys]

        n, e = len(layout.instance_row), len(layout.edge_row)
        taken, sent = column(layout.instance_row, "taken"), column(layout.edge_row, "sent")
        return replace(
            Snapshot.empty(self.time_s, layout, self.jobs),
            instances=Instances.of(
                n,
                incarnation=np.zeros(n),
                machine=[float(i % 2) for _, _, i in layout.instance_row],
                sent=[
                    records + self.queued.get((job, operator), 0.0) / counts[job][operator]
                    for records, (job, operator, _) in zip(taken, layout.instance_row, strict=True)
                ],
                taken=taken,
                **{
                    what: column(layout.instance_row, what)
                    for what in ("busy_s", "busy_sq_s2", "gaps", "gap_s", "gap_sq_s2")
                },
            ),
            edges=Edges.of(
                e,
                incarnation=np.zeros(e),
                senders=np.ones(e),
                idle_transport_s=np.full(e, self.transport_s),
                clock_error_s=np.zeros(e),
                emitted=sent,
                taken=sent,
                transfers=sent,
                batching_s=np.zeros(e),
                parked_s=column(layout.edge_row, "parked_s"),
                channel_s=column(layout.edge_row, "channel_s"),
            ),
            sources=self._sources(layout),
        )

    def _sources(self, layout: Layout) -> Sources:
        """What came to each source, and what it has read: as much as it could send."""
        count = len(layout.source_row)
        if self.arriving_per_s is None:
            return Sources.missing(count)
        sent = np.array([self.counted[(*key, "sent")] for key in layout.edge_row])
        return Sources.of(
            count,
            incarnation=np.zeros(count),
            arrived=np.full(count, self.arriving_per_s * self.time_s),
            taken=np.bincount(layout.edge_source, sent, len(layout.node_names))[
                layout.source_nodes
            ],
        )

    def scene(self) -> Scene:
        used = sum(status.allocation.instances for status in self.statuses.values())
        cluster = Cluster(Capabilities(self.how), self.slots, used, self.quotas)
        return Scene(self.round, self.series, self.statuses, cluster)

    def decide(self) -> list[Decision]:
        self.run()
        self.series = self.series.extended([self.snapshot()])
        self.round += 1
        verdict = self.policy.decide(self.scene(), self.state)
        assert json.loads(json.dumps(verdict.state)) == verdict.state
        assert verdict.next_round_s == self.parameters.interval_s
        self.state = verdict.state
        for decision in verdict.decisions:
            for change in decision.changes:
                if isinstance(change, ParallelismChange) and self.obey:
                    self.rescale(change.job, **change.parallelism)
        return list(verdict.decisions)

    def rounds(self, count: int) -> list[Decision]:
        return [decision for _ in range(count) for decision in self.decide()]

    def rescale(self, job: str, **counts: int) -> None:
        status = self.statuses[job]
        allocation = status.allocation.rescaled(counts).next_generation()
        # The change ends a little after the round.
        changed_s = self.time_s + 0.1
        self.statuses[job] = replace(status, allocation=allocation, changed_s=changed_s)


def scaling(decisions: list[Decision]) -> list[Decision]:
    return [d for d in decisions if any(isinstance(c, ParallelismChange) for c in d.changes)]


def alerts(decisions: list[Decision]) -> list[Alert]:
    return [c for d in decisions for c in d.changes if isinstance(c, Alert)]
