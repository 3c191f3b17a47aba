"""A cluster under load that costs nothing: a fake engine whose queues
fill and whose latencies rise.

Every operator of a job takes what the slowest of them can take. Latency is the service
times, each over its free share (as of an M/M/1 queue), and the time that the backlog takes.
Time passes when it is told to.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from tests.fakes import FakeEngine
from trilithon.contract.engine import (
    Accepted,
    Action,
    Condition,
    Outcome,
    Reallocate,
    RestartJob,
    Status,
)
from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Bounds, Edge, Field, Job, Operator, Parallelism, Sink, Source, Work
from trilithon.model.layout import Layout
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches, bucket_of

START_S = 1_000_000.0


def chain(
    name: str = "chain",
    tenant: str = "ads",
    *,
    operators: int = 2,
    p95_ms: float | None = 100.0,
    most: int = 8,
    bounds: Bounds | None = None,
) -> Job:
    """A job of some operators in a row, with a latency threshold."""
    names = [f"o{i}" for i in range(operators)]
    nodes = ["in", *names, "out"]
    wanted = () if p95_ms is None else (Threshold(Metric.LATENCY, p95_ms, "p95"),)
    return Job(
        tenant=tenant,
        name=name,
        sources=(Source("in", (Field("v", "BIGINT"),), (("subscribe", f"{name}-in"),), 1),),
        operators=tuple(Operator(o, Work(where="v >= 0"), Parallelism(1, 1, most)) for o in names),
        edges=tuple(Edge(a, b) for a, b in itertools.pairwise(nodes)),
        sinks=(Sink("out", (("topic", f"{name}-out"),)),),
        intent=Intent(wanted),
        bounds=bounds or Bounds(),
    )


class FakeCluster(FakeEngine):
    """A fake engine whose jobs have load. `rates` are records per second and job."""

    def __init__(self, tasks: int = 1000, slots: int = 40, *, auto_s: float | None = None) -> None:
        super().__init__(tasks, slots)
        self.now_s = START_S
        self.auto_s = auto_s
        self.sender = "fake"
        self.rates: dict[str, float] = {}
        self.service_s: dict[tuple[str, str], float] = {}
        self.silent: set[str] = set()
        self.condition: dict[str, Condition] = {}
        self.fails: list[Status] = []
        self.cannot_restart = False
        self.done_per_s: dict[str, float] = defaultdict(float)
        self._backlog: dict[str, float] = defaultdict(float)
        self._counted: dict[tuple[str, ...], float] = defaultdict(float)
        self._latency: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))

    def apply(self, action: Action) -> Outcome:
        if self.cannot_restart and isinstance(action, RestartJob):
            return Outcome(Status.REFUSED, "NOT_AT_ALL", "It cannot.")
        if self.fails:
            status = self.fails.pop(0)
            if status is Status.UNKNOWN and isinstance(action, Reallocate):
                super().apply(action)  # it was done, and nobody was told
            return Outcome(status, "TOLD_TO", "It was told to.")
        return super().apply(action)

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        self._backlog.pop(job, None)
        return super().cancel(job, keep)

    def jobs(self) -> Mapping[str, Accepted]:
        return {
            name: Accepted(
                accepted.job,
                accepted.allocation,
                self.condition.get(name, Condition()),
                accepted.checkpoint,
            )
            for name, accepted in super().jobs().items()
        }

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for job in self.jobs_by_name.values():
            self._work(job, seconds)

    def _work(self, job: Job, seconds: float) -> None:
        counted, p = self._counted, self.allocations[job.id].parallelism
        rate = self.rates.get(job.id, 10.0)
        service = {o: self.service_s.get((job.id, o), 0.01) for o in p}
        arrived = rate * seconds
        able = min((count / service[o] * seconds for o, count in p.items()), default=arrived)
        before = self._backlog[job.id]
        done = min(before + arrived, able)
        self._backlog[job.id] = before + arrived - done
        self.done_per_s[job.id] = done / seconds
        share = {o: min(1.0, done * service[o] / (seconds * count)) for o, count in p.items()}
        latency_ms = 1000 * sum(service[o] / max(0.05, 1 - share[o]) for o in p)
        latency_ms += 1000 * self._backlog[job.id] / max(done / seconds, 1e-9)
        counted[job.id, "arrived"] += arrived
        counted[job.id, "taken"] += done
        counted[job.id, "latency_s"] += done * latency_ms / 1000
        self._latency[job.id][int(bucket_of([latency_ms])[0])] += done
        for o, count in p.items():
            for i in range(count):
                counted[job.id, o, str(i), "taken"] += done / count
                counted[job.id, o, str(i), "busy_s"] += done / count * service[o]

    def reports(self) -> Sequence[Report]:
        if self.auto_s is not None:
            self.advance(self.auto_s)
        self._sequence += 1
        jobs = [job for name, job in self.jobs_by_name.items() if name not in self.silent]
        layout = Layout.build(jobs, {j.id: self.allocations[j.id].parallelism for j in jobs})
        return [self._report(layout)] if jobs or not self.silent else []

    def _report(self, layout: Layout) -> Report:
        get = self._counted.__getitem__
        instances = list(layout.instance_row)
        taken = [get((j, o, str(i), "taken")) for j, o, i in instances]
        through = [get((edge[0], "taken")) for edge in layout.edge_row]
        sinks = list(layout.sink_row)
        written = [get((job, "taken")) for job, _ in sinks]
        return Report(
            self.sender,
            self._sequence,
            self.now_s,
            instance_keys=tuple(instances),
            instances=Instances.of(
                len(instances),
                incarnation=np.zeros(len(instances)),
                sent=taken,
                taken=taken,
                emitted=taken,
                busy_s=[get((j, o, str(i), "busy_s")) for j, o, i in instances],
            ),
            edge_keys=tuple(layout.edge_row),
            edges=Edges.of(
                len(through),
                incarnation=np.zeros(len(through)),
                emitted=through,
                taken=through,
                parked_s=np.zeros(len(through)),
                senders=np.ones(len(through)),
            ),
            source_keys=tuple(layout.source_row),
            sources=Sources.of(
                len(layout.source_row),
                incarnation=np.zeros(len(layout.source_row)),
                arrived=[get((job, "arrived")) for job, _ in layout.source_row],
                taken=[get((job, "taken")) for job, _ in layout.source_row],
            ),
            sink_keys=tuple(sinks),
            sinks=Sinks.of(
                len(sinks),
                incarnation=np.zeros(len(sinks)),
                written=written,
                latencies=written,
                latency_s=[get((job, "latency_s")) for job, _ in sinks],
            ),
            latencies=Sketches.of(dict(self._latency[job]) for job, _ in sinks),
            machine_keys=tuple(self.machines),
            machines=Machines.missing(len(self.machines)),
        )
