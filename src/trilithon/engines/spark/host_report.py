"""The host's own report: the rows that exist, the arrivals at each source, lost executors.

No executor reports an instance that has had no record yet, so the host reports zeros for it; the
assembler adds the counts of all senders. The rows of all jobs change only with a job, its
allocation or the places of its instances, and are made anew only then.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.engines.spark.cuts import is_cut, job_of
from trilithon.engines.spark.part_reports import WholeJobs
from trilithon.engines.spark.telemetry import sender_of
from trilithon.model.allocation import Allocation
from trilithon.model.columns import Columns, Edges, Instances, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches

NAN: Final = float("nan")
Placed = Mapping[tuple[str, str], tuple[int, ...]]
# The probe's counters.
_COUNTED: Final = {
    Instances: (
        "sent taken emitted failed busy_s busy_sq_s2 write_waits write_wait_s"
        " cpu_s gaps gap_s gap_sq_s2 parked_s"
    ).split(),
    Edges: "emitted taken parked_s transfers channel_s batching_s".split(),
    Sinks: "written latencies latency_s ahead".split(),
    Sources: "taken failed".split(),
}


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A running job: what the host knows of it without the executors."""

    job: Job
    allocation: Allocation
    incarnation: int
    # Records that arrived at each source; a source whose topic cannot be read is missing.
    arrived: Mapping[str, float]
    partitions: Mapping[str, int]
    # Records that wait for an operator in the topics of cut edges.
    waiting: Mapping[str, float] = field(default_factory=dict)

    def has_rows_of(self, other: "RunningJob") -> bool:
        return (
            self.job is other.job
            and self.allocation is other.allocation
            and self.incarnation == other.incarnation
            and self.partitions == other.partitions
        )


@dataclass
class _Table:
    """Rows whose counters are 0: column by column, since a host has thousands of them."""

    table: type[Columns]
    keys: list[Any] = field(default_factory=list)
    incarnations: list[float] = field(default_factory=list)

    def add(self, key: Any, incarnation: float) -> None:
        self.keys.append(key)
        self.incarnations.append(incarnation)

    def columns(self, **known: Sequence[float]) -> Any:
        zeros: dict[str, Any] = dict.fromkeys(_COUNTED[self.table], 0.0)
        rows = {**zeros, "incarnation": self.incarnations, **known}
        return self.table.trusted(len(self.keys), **rows)


class _JobRows:
    """The rows of some running jobs."""

    def __init__(
        self, running_jobs: Sequence[RunningJob], placed: Placed, whole: WholeJobs
    ) -> None:
        self.running_jobs, self.placed = running_jobs, dict(placed)
        self.parts = (dict(whole.incarnations), dict(whole.own_topics))
        self.instances, self.edges = _Table(Instances), _Table(Edges)
        self.sinks, self.sources = _Table(Sinks), _Table(Sources)
        self.senders: list[float] = []
        self.partitions: list[float] = []
        # The place of the first instance of each operator.
        self.firsts: dict[tuple[str, str], int] = {}
        self._written: set[tuple[str, str]] = set()
        for running in running_jobs:
            self._add(running, whole)
        self.instance_keys, self.edge_keys = tuple(self.instances.keys), tuple(self.edges.keys)
        self.sink_keys, self.source_keys = tuple(self.sinks.keys), tuple(self.sources.keys)
        self.nothing_waits = self.instances.columns()
        self.edge_columns = self.edges.columns(senders=self.senders)
        self.sink_columns = self.sinks.columns()
        self.latencies = Sketches.of({} for _ in self.sink_keys)
        self.placed_whole = {(job_of(part), name): at for (part, name), at in placed.items()}

    def are_of(self, running_jobs: Sequence[RunningJob], placed: Placed, whole: WholeJobs) -> bool:
        return (
            len(running_jobs) == len(self.running_jobs)
            and all(map(RunningJob.has_rows_of, running_jobs, self.running_jobs))
            and placed == self.placed
            and self.parts == (whole.incarnations, whole.own_topics)
        )

    def _add(self, running: RunningJob, whole: WholeJobs) -> None:
        job, incarnation = running.job, float(running.incarnation)
        name, parallelism = job_of(job.id), running.allocation.parallelism
        for operator, count in parallelism.items():
            used = self.placed.get((job.id, operator), ())
            self.firsts[job.id, operator] = len(self.instances.keys)
            for index in used if len(used) == count else range(count):
                self.instances.add((name, operator, index), incarnation)
        # Rows that several parts count have the incarnation of the whole job.
        shared = whole.incarnations.get(name, incarnation)
        for edge in job.edges:
            if (key := whole.host_edge(job.id, edge)) is not None:
                cut = key != (name, edge.source, edge.target)
                self.edges.add(key, shared if cut else incarnation)
                # Senders are the instances, not the tasks: an idle task is not held back.
                self.senders.append(parallelism.get(edge.source, NAN))
        for sink in job.sinks:
            if not is_cut(sink.name) and (name, sink.name) not in self._written:
                self._written.add((name, sink.name))
                self.sinks.add((name, sink.name), shared)
        for source in job.sources:
            if not is_cut(source.name):
                self.sources.add((name, source.name), incarnation)
                self.partitions.append(running.partitions[source.name])

    def instance_columns(self, running_jobs: Sequence[RunningJob]) -> Any:
        """What waits before an operator waits for its instances: each will get its share."""
        if not any(running.waiting for running in running_jobs):
            return self.nothing_waits
        sent = [0.0] * len(self.instance_keys)
        for running in running_jobs:
            for operator, count in running.allocation.parallelism.items():
                if waiting := running.waiting.get(operator):
                    first = self.firsts[running.job.id, operator]
                    sent[first : first + count] = [float(math.floor(waiting / count))] * count
        return self.instances.columns(sent=sent)

    def source_columns(self, running_jobs: Sequence[RunningJob]) -> Any:
        arrived = [
            running.arrived.get(source.name, NAN)
            for running in running_jobs
            for source in running.job.sources
            if not is_cut(source.name)
        ]
        return self.sources.columns(partitions=self.partitions, arrived=arrived)


@dataclass
class HostReports:
    """Makes the host's reports; keeps the rows of the last one."""

    application: str = ""
    _rows: _JobRows | None = None

    def report(
        self,
        sequence: int,
        time_s: float,
        running_jobs: Sequence[RunningJob],
        lost: Sequence[str] = (),
        placed: Placed | None = None,
        whole: WholeJobs | None = None,
    ) -> Report:
        joined, placed = whole or WholeJobs(), placed or {}
        rows = self._rows
        if rows is None or not rows.are_of(running_jobs, placed, joined):
            rows = self._rows = _JobRows(running_jobs, placed, joined)
        return Report(
            sender=sender_of(self.application, "host"),
            sequence=sequence,
            time_s=time_s,
            instance_keys=rows.instance_keys,
            instances=rows.instance_columns(running_jobs),
            edge_keys=rows.edge_keys,
            edges=rows.edge_columns,
            sink_keys=rows.sink_keys,
            sinks=rows.sink_columns,
            latencies=rows.latencies,
            source_keys=rows.source_keys,
            sources=rows.source_columns(running_jobs),
            lost=tuple(lost),
            placed=rows.placed_whole,
        )
