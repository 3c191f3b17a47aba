"""A small cluster in which a job's latency and its operators' capacities are functions of its
parallelism. It has no queues; it gives Henge scenes whose numbers are known exactly.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from trilithon.control.guard import Guard, Ruling
from trilithon.control.instance_limits import LoadSigns
from trilithon.model.action import Outcome, Status
from trilithon.model.allocation import Allocation, initial
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import ParallelismChange, Proposal
from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.mode import Mode
from trilithon.model.series import Series
from trilithon.model.sketches import Sketches, bucket_of
from trilithon.model.snapshot import Snapshot
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import Feedback
from trilithon.policies.policy import Policy, State
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span

Counts = Mapping[str, int]


def line(
    name: str,
    *operators: str,
    ms: float = 60,
    priority: float = 35,
    initial: int = 10,
    most: int = 200,
    thresholds: tuple[Threshold, ...] | None = None,
    tenant: str = "t",
) -> Job:
    """A source, some operators one after the other, a sink; by default with a mean latency."""
    chain = ["in", *(operators or ("work",)), "out"]
    asked = (Threshold(Metric.LATENCY, ms),) if thresholds is None else thresholds
    return Job(
        tenant=tenant,
        name=name,
        sources=(Source("in", (), ()),),
        operators=tuple(
            Operator(o, parallelism=Parallelism(initial, 1, most)) for o in chain[1:-1]
        ),
        edges=tuple(Edge(a, b) for a, b in pairwise(chain)),
        sinks=(Sink("out", ()),),
        intent=Intent(asked, priority),
    )


@dataclass
class Law:
    """How a job behaves. A test may change everything while the cluster runs."""

    job: Job
    latency_ms: Callable[[Counts], float]
    capacity: Callable[[Counts], Mapping[str, float]]
    rate_per_s: float = 100.0
    juice: Callable[[Counts], float] = lambda _: 1.0
    tail: float = 1.0  # the 99th percentile over the mean
    left_over: Mapping[str, float] = field(default_factory=dict)  # of what a sink is sent
    metrics_missing: bool = False


def constant(job: Job, latency_ms: float, **capacity: float) -> Law:
    """The same at any parallelism; operators that are not named have a capacity of 0.1."""
    names = [operator.name for operator in job.operators]
    return Law(job, lambda _: latency_ms, lambda _: {n: capacity.get(n, 0.1) for n in names})


def shared(job: Job, work: float, floor_ms: float = 10.0) -> Law:
    """The first operator is busy: its instances share the work, and more of them wait less."""
    first = job.operators[0].name
    names = [operator.name for operator in job.operators]
    return Law(
        job,
        lambda p: floor_ms + 1000 * work / p[first] ** 2,
        lambda p: {n: min(1.0, work / p[n]) if n == first else 0.1 for n in names},
    )


@dataclass
class ModelCluster:
    laws: dict[str, Law] = field(default_factory=dict)
    slots: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    cores: float = 8.0
    load: Callable[["ModelCluster"], float] = lambda _: 1.0
    memory_used: float = 0.2
    machines: tuple[str, ...] = ("m0", "m1", "m2")
    part_s: float = 10.0
    time_s: float = 0.0
    round: int = 0
    backwards: bool = False
    refuses: bool = False
    modes: dict[str, Mode] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    feedback: dict[str, Feedback] = field(default_factory=dict)
    in_flight: set[str] = field(default_factory=set)
    guard: Guard | None = None
    fixed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    engine_fixed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allocations: dict[str, Allocation] = field(default_factory=dict)
    accepted_s: dict[str, float] = field(default_factory=dict)
    changed_s: dict[str, float] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    counters: defaultdict[Any, float] = field(default_factory=lambda: defaultdict(float))
    histograms: dict[str, dict[int, float]] = field(default_factory=dict)
    last: tuple[Any, tuple[Mapping[str, Job], Layout]] | None = None

    @classmethod
    def of(cls, laws: Iterable[Law], **settings: Any) -> "ModelCluster":
        cluster = cls(**settings)
        for law in laws:
            cluster.add(law)
        cluster.look()
        return cluster

    def add(self, law: Law, accepted_s: float | None = None) -> None:
        self.laws[law.job.id] = law
        self.allocations[law.job.id] = initial(law.job)
        self.accepted_s[law.job.id] = -1e6 if accepted_s is None else accepted_s
        self.histograms[law.job.id] = defaultdict(float)

    def remove(self, job: str) -> None:
        for table in (self.laws, self.allocations, self.accepted_s, self.histograms):
            table.pop(job)

    def rescale(self, job: str, **counts: int) -> None:
        self.allocations[job] = self.allocations[job].rescaled(counts).next_generation()
        self.changed_s[job] = self.time_s

    def set_priority(self, job: str, priority: float) -> None:
        law = self.laws[job]
        law.job = replace(law.job, intent=replace(law.job.intent, priority=priority))

    def instances(self) -> int:
        return sum(allocation.instances for allocation in self.allocations.values())

    def tick(self) -> None:
        """Lets one part of a window pass."""
        self.time_s += self.part_s
        for name, law in self.laws.items():
            counts = self.allocations[name].parallelism
            records = law.rate_per_s * self.part_s
            through = records * law.juice(counts)
            latency = law.latency_ms(counts)
            busy = law.capacity(counts)
            for operator, p in counts.items():
                for index in range(p):
                    self.counters[name, operator, index, "busy"] += busy[operator] * self.part_s
                    self.counters[name, operator, index, "taken"] += through / p
            self.counters[name, "arrived"] += records
            self.counters[name, "taken"] += through
            self.counters[name, "latency"] += through * latency / 1000
            for share, value in ((0.98, latency), (0.02, latency * law.tail)):
                self.histograms[name][int(bucket_of(value))] += through * share
        self.look()

    def look(self) -> None:
        """Takes a snapshot."""
        self.snapshots = [*self.snapshots[-40:], self.snapshot()]

    def layout(self) -> tuple[Mapping[str, Job], Layout]:
        """As in an engine, the same for as long as nothing changes."""
        names = sorted(self.laws, reverse=self.backwards)
        jobs = {name: self.laws[name].job for name in names}
        counts = {name: dict(self.allocations[name].parallelism) for name in names}
        machines = sorted(self.machines, reverse=self.backwards)
        if self.last is None or self.last[0] != (jobs, counts, machines):
            layout = Layout.build(jobs.values(), counts, machines)
            self.last = (jobs, counts, machines), (jobs, layout)
        return self.last[1]

    def snapshot(self) -> Snapshot:
        jobs, layout = self.layout()
        machines = layout.machines
        keys = list(layout.instance_row)
        gone = float("nan")

        def per_instance(what: str) -> list[float]:
            return [
                gone if self.laws[j].metrics_missing else self.counters[j, o, i, what]
                for j, o, i in keys
            ]

        def per_job(rows: Iterable[str], what: str) -> list[float]:
            return [gone if self.laws[j].metrics_missing else self.counters[j, what] for j in rows]

        edges = [job for job, _, _ in layout.edge_row]
        taken = [
            (1 - self.laws[job].left_over.get(target, 0.0)) * records
            for records, (job, _, target) in zip(
                per_job(edges, "taken"), layout.edge_row, strict=True
            )
        ]
        sources = [job for job, _ in layout.source_row]
        sinks = [job for job, _ in layout.sink_row]
        load = self.load(self)
        return Snapshot(
            time_s=self.time_s,
            layout=layout,
            instances=Instances.of(
                len(keys),
                incarnation=np.zeros(len(keys)),
                taken=per_instance("taken"),
                sent=per_instance("taken"),
                busy_s=per_instance("busy"),
                cpu_s=per_instance("busy"),
            ),
            edges=Edges.of(
                len(edges),
                incarnation=np.zeros(len(edges)),
                emitted=per_job(edges, "taken"),
                taken=taken,
                senders=np.ones(len(edges)),
                parked_s=np.zeros(len(edges)),
            ),
            sources=Sources.of(
                len(sources),
                incarnation=np.zeros(len(sources)),
                arrived=per_job(sources, "arrived"),
                taken=per_job(sources, "taken"),
            ),
            sinks=Sinks.of(
                len(sinks),
                incarnation=np.zeros(len(sinks)),
                written=per_job(sinks, "taken"),
                latencies=per_job(sinks, "taken"),
                latency_s=per_job(sinks, "latency"),
            ),
            latencies=Sketches.of(
                None if self.laws[j].metrics_missing else dict(self.histograms[j]) for j in sinks
            ),
            machines=Machines.of(
                len(machines),
                cores=np.full(len(machines), self.cores),
                load=np.full(len(machines), load),
                memory_bytes=np.full(len(machines), 100.0),
                memory_used_bytes=np.full(len(machines), 100 * self.memory_used),
            ),
            jobs=jobs,
        )

    def scene(self, lookback_s: float, rounds: int = 1000) -> Scene:
        statuses = {}
        for name in sorted(self.laws, reverse=self.backwards):
            job = self.laws[name].job
            statuses[name] = status = JobStatus(
                job=name,
                tenant=job.tenant,
                allocation=self.allocations[name],
                accepted_s=self.accepted_s[name],
                changed_s=self.changed_s.get(name),
                mode=self.modes.get(name, Mode.AUTO),
                hold_reason=self.held.get(name, ""),
                in_flight=name in self.in_flight,
                fixed=self.fixed.get(name, frozenset()),
                spans={o.name: Span(o.parallelism.min, o.parallelism.max) for o in job.operators},
            )
            if self.guard is not None and not status.hold_reason:
                held = self.guard.hold(status, self.time_s)
                statuses[name] = replace(status, hold_reason=held)
        return Scene(
            round=self.round,
            series=Series(tuple(self.snapshots), lookback_s),
            statuses=statuses,
            cluster=Cluster(
                Capabilities(dict.fromkeys(Ability, How.LIVE), fixed=self.engine_fixed),
                self.slots,
                self.instances(),
                self.quotas,
                down_delay_s=0.0 if self.guard is None else self.guard.rules.limits.down_delay_s,
            ),
            feedback={
                id_: feedback
                for id_, feedback in self.feedback.items()
                if self.round - feedback.round <= rounds
            },
        )

    def rulings(self, scene: Scene, decisions: Sequence[Decision]) -> Sequence[Ruling]:
        """What is granted of the decisions: all of it, or what the guard grants."""
        if self.guard is None:
            return [Ruling(decision, decision.changes) for decision in decisions]
        jobs = {name: law.job for name, law in self.laws.items()}
        signs = {
            name: LoadSigns(law.capacity(self.allocations[name].parallelism), 0.0)
            for name, law in self.laws.items()
        }
        return self.guard.review(scene, decisions, jobs, signs)

    def apply(self, scene: Scene, decisions: Sequence[Decision]) -> None:
        for ruling in self.rulings(scene, decisions):
            outcomes = [self._changed(ruling.decision, change) for change in ruling.granted]
            self.feedback[ruling.decision.id] = Feedback(
                ruling.decision.id,
                self.round,
                self.time_s,
                ruling.decision.job,
                ruling.granted,
                ruling.clips,
                tuple(outcomes),
            )

    def _changed(self, decision: Decision, change: Proposal) -> Outcome:
        assert isinstance(change, ParallelismChange)
        job = change.job
        assert decision.job == job
        if self.refuses or self.modes.get(job, Mode.AUTO) is not Mode.AUTO or self.held.get(job):
            return Outcome(Status.REFUSED)
        self.allocations[job] = self.allocations[job].changed([change]).next_generation()
        self.changed_s[job] = self.time_s
        if self.slots is not None:
            assert self.instances() <= self.slots
        return Outcome(Status.DONE)


@dataclass
class Run:
    """Runs a policy on a cluster, round after round; the state goes through JSON each time."""

    cluster: ModelCluster
    policy: Policy
    state: State = field(default_factory=lambda: {"seed": 1})
    decisions: list[Decision] = field(default_factory=list)

    def rounds(self, count: int) -> list[Decision]:
        """Runs some rounds of ten seconds; returns their decisions."""
        decisions: list[Decision] = []
        for _ in range(count):
            self.cluster.tick()
            self.cluster.round += 1
            scene = self.cluster.scene(self.policy.lookback_s, self.policy.feedback_rounds)
            verdict = self.policy.decide(scene, self.state)
            self.state = json.loads(json.dumps(verdict.state))
            self.cluster.apply(scene, verdict.decisions)
            decisions += verdict.decisions
        self.decisions += decisions
        return decisions

    def until(self, reason: str, most: int = 400) -> Decision:
        """Runs rounds until a decision has this reason."""
        for _ in range(most):
            for decision in self.rounds(1):
                if decision.reason == reason:
                    return decision
        raise AssertionError(f"no {reason} in {most} rounds: {[d.reason for d in self.decisions]}")

    @property
    def phase(self) -> str:
        return str(self.state["henge"]["phase"])


def reasons(decisions: Iterable[Decision]) -> list[str]:
    return [decision.reason for decision in decisions]
