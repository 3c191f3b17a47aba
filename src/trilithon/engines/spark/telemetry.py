"""Owns the probe's words: what an executor sends every second, as a report of the model.

A sender's part of an edge and what it sent to each receiver stand with the sender; what a receiver took
and how long records were under way stand with the receiver. The assembler adds the two up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.model.allocation import Allocation
from trilithon.model.columns import Columns, Edges, Instances, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches, bucket_of

VERSION = 1
# The probe counts a latency of 0 or less apart, since it has no logarithm: clocks that differ make one,
# and a record that was faster than the clock's tick.
_LOWEST_BUCKET: Final = int(bucket_of(0.0))


@dataclass
class _Rows:
    """Rows under their keys, filled number by number; what nobody set is missing."""

    table: type[Columns]
    rows: dict[Any, dict[str, float]] = field(default_factory=dict)

    def add(self, key: Any, **numbers: float) -> None:
        """Counts are added to what the row has."""
        row = self.rows.setdefault(key, {})
        for name, value in numbers.items():
            row[name] = row.get(name, 0.0) + value

    def put(self, key: Any, **numbers: float) -> None:
        self.rows.setdefault(key, {}).update(numbers)

    def columns(self) -> Any:
        nan = float("nan")
        return self.table(
            **{n: [row.get(n, nan) for row in self.rows.values()] for n in self.table.names()}
        )


def sender_of(application: str, executor: str) -> str:
    """Who sends: executors of a later application have the same numbers again."""
    return f"{application}/{executor}"


def report_of(sent: Mapping[str, Any], jobs: Mapping[str, Job], application: str = "") -> Report:
    """The report of one executor. Jobs that are not known any more are left out, and so is what was
    counted in an earlier life of a job than the latest in the report.
    """
    if sent.get("version") != VERSION:
        raise ValueError(f"a probe of version {sent.get('version')}, expected is {VERSION}")
    clock_error_s = float(sent["clock"]["error_us"]) / 1e6
    translator = _Translator(jobs, clock_error_s)
    latest: dict[str, int] = {}
    for instance in sent["instances"]:
        latest[instance["job"]] = max(instance["incarnation"], latest.get(instance["job"], 0))
    for instance in sent["instances"]:
        if instance["incarnation"] == latest[instance["job"]]:
            translator.instance(instance)
    translator.settle()
    host = f"{sent['host']}/{sent['executor']}"
    machine = sent["machine"]
    # What a machine cannot tell is below 0.
    told = {"load": machine["load"], "cores_busy": machine["cpu_machine"] * machine["cores"]}
    known = {name: [float(value)] for name, value in told.items() if value >= 0}
    machines = Machines.of(1, cores=[machine["cores"]], **known)
    return Report(
        sender=sender_of(application, str(sent["executor"])),
        sequence=int(sent["sequence"]),
        time_s=float(sent["time_us"]) / 1e6,
        clock_error_s=clock_error_s,
        instance_keys=tuple(translator.instances.rows),
        instances=translator.instances.columns(),
        edge_keys=tuple(translator.edges.rows),
        edges=translator.edges.columns(),
        source_keys=tuple(translator.sources.rows),
        sources=translator.sources.columns(),
        sink_keys=tuple(translator.sinks.rows),
        sinks=translator.sinks.columns(),
        latencies=Sketches.of(translator.histograms[key] for key in translator.sinks.rows),
        machine_keys=(host,),
        machines=machines,
    )


class _Translator:
    def __init__(self, jobs: Mapping[str, Job], clock_error_s: float) -> None:
        self.jobs = jobs
        self.clock_error_s = clock_error_s
        self.instances = _Rows(Instances)
        self.edges = _Rows(Edges)
        self.sources = _Rows(Sources)
        self.sinks = _Rows(Sinks)
        self.histograms: dict[tuple[str, str], dict[int, float]] = {}
        self.incarnations: dict[str, float] = {}

    def instance(self, sent: Mapping[str, Any]) -> None:
        if (job := self.jobs.get(sent["job"])) is None:
            return
        operator = sent["operator"]
        if operator not in job.children:
            return  # its file had such an operator before
        self.incarnations[job.id] = float(sent["incarnation"])
        if operator in {source.name for source in job.sources}:
            failed = float(sent.get("rejected", 0))
            self.sources.add((job.id, operator), taken=float(sent["taken"]), failed=failed)
            # A reader of a partition without records holds nothing, and is not held back.
            for target in sent["out"]:
                self.edges.add((job.id, operator, target), senders=float(sent["active"]))
        else:
            self._operator(job, operator, sent)
        for target, edge in sent["out"].items():
            self._outbound((job.id, operator, target), edge)
        if "e2e" in sent:
            self._delivered(job, operator, sent["e2e"])

    def _operator(self, job: Job, operator: str, sent: Mapping[str, Any]) -> None:
        service = sent["service"]
        key = (job.id, operator, int(sent["index"]))
        self.instances.add(
            key,
            taken=float(sent["taken"]),
            failed=float(sent.get("rejected", 0)),
            emitted=float(sum(edge["emitted"] for edge in sent["out"].values())),
            busy_s=service["sum_us"] / 1e6,
            busy_sq_s2=service["sumsq_us2"] / 1e12,
            cpu_s=sent["cpu_ns"] / 1e9,
        )
        if sent["active"]:
            self.instances.put(key, machine=0.0)
        for source, edge in sent["in"].items():
            channel, gaps = edge["channel"], edge["interarrival"]
            self.instances.add(
                key,
                gaps=float(gaps["count"]),
                gap_s=gaps["sum_us"] / 1e6,
                gap_sq_s2=gaps["sumsq_us2"] / 1e12,
            )
            self.edges.add(
                (job.id, source, operator),
                taken=float(channel["count"]),
                transfers=float(channel["count"]),
                channel_s=channel["sum_us"] / 1e6,
            )
            # A stamp is of the sender's clock and is read by the receiver's: both may be off.
            self.edges.put((job.id, source, operator), clock_error_s=self.clock_error_s)
            if "least_us" in edge:
                self._way((job.id, source, operator), edge)

    def _way(self, key: tuple[str, str, str], edge: Mapping[str, Any]) -> None:
        """How long a record travels that does not wait: the shortest that any instance saw. The shuffle
        sends records in company; what they gather beyond that is batching.
        """
        least_s = edge["least_us"] / 1e6
        before = self.edges.rows.get(key, {}).get("idle_transport_s", least_s)
        self.edges.put(key, idle_transport_s=min(before, least_s))
        self.edges.add(key, batching_s=edge["gathered_us"] / 1e6)

    def _outbound(self, key: tuple[str, str, str], edge: Mapping[str, Any]) -> None:
        job, _, target = key
        self.edges.add(key, emitted=float(edge["emitted"]), parked_s=edge["parked_ns"] / 1e9)
        self.edges.put(key, clock_error_s=self.clock_error_s)
        for index, count in edge["sent_to"].items():
            self.instances.add((job, target, int(index)), sent=float(count))

    def _delivered(self, job: Job, operator: str, found: Mapping[str, Any]) -> None:
        """The last operator writes to all its sinks: each of them gets every row."""
        for edge in job.children[operator]:
            key = (job.id, edge.target)
            count = float(found["count"])
            self.sinks.add(key, written=count, latencies=count, latency_s=found["sum_ms"] / 1e3)
            histogram = self.histograms.setdefault(key, {})
            buckets = [(int(bucket), number) for bucket, number in found["buckets"].items()]
            for bucket, number in (*buckets, (_LOWEST_BUCKET, found["zero"])):
                histogram[bucket] = histogram.get(bucket, 0.0) + number
            name = (job.id, operator, edge.target)
            self.edges.add(name, emitted=count, taken=count, parked_s=0.0)

    def settle(self) -> None:
        """What holds for whole rows: in which life it was counted."""
        for table in (self.instances, self.edges, self.sources, self.sinks):
            for key in table.rows:
                table.put(key, incarnation=self.incarnations[key[0]])


@dataclass(frozen=True, slots=True)
class Standing:
    """A job that runs: what the host knows of it without asking an executor."""

    job: Job
    allocation: Allocation
    incarnation: int
    # By source; one whose log does not answer is missing.
    arrived: Mapping[str, float]
    partitions: Mapping[str, int]


# What the probe counts. An instance that got no record yet has counted 0 of each, which no executor
# tells; the host does, since counts of several senders add up.
_COUNTED: Final = {
    Instances: ("sent", "taken", "emitted", "failed", "busy_s", "busy_sq_s2", "cpu_s", "gaps",
                "gap_s", "gap_sq_s2"),
    Edges: ("emitted", "taken", "parked_s", "transfers", "channel_s", "batching_s"),
    Sinks: ("written", "latencies", "latency_s"),
}  # fmt: skip


def host_report(
    sequence: int,
    time_s: float,
    standing: Iterable[Standing],
    lost: Sequence[str] = (),
    placed: Mapping[tuple[str, str], tuple[int, ...]] | None = None,
    application: str = "",
) -> Report:
    """What the host knows: which rows there are, where the logs of the sources end, who is gone."""
    instances, edges, sinks, sources = (
        _Rows(table) for table in (Instances, Edges, Sinks, Sources)
    )
    for one in standing:
        job, life = one.job, float(one.incarnation)
        for operator, count in one.allocation.parallelism.items():
            used = (placed or {}).get((job.id, operator), ())
            for index in used if len(used) == count else range(count):
                instances.put((job.id, operator, index), incarnation=life, **_zeros(Instances))
        for edge in job.edges:
            key = (job.id, edge.source, edge.target)
            edges.put(key, incarnation=life, **_zeros(Edges))
            # A task that is idle since its operator got fewer instances is not held back by anybody.
            if edge.source in one.allocation.parallelism:
                edges.put(key, senders=float(one.allocation.parallelism[edge.source]))
        for sink in job.sinks:
            sinks.put((job.id, sink.name), incarnation=life, **_zeros(Sinks))
        for source in job.sources:
            sources.put(
                (job.id, source.name),
                incarnation=life,
                taken=0.0,
                failed=0.0,
                partitions=float(one.partitions[source.name]),
            )
            if source.name in one.arrived:
                sources.put((job.id, source.name), arrived=one.arrived[source.name])
    return Report(
        sender=sender_of(application, "host"),
        sequence=sequence,
        time_s=time_s,
        instance_keys=tuple(instances.rows),
        instances=instances.columns(),
        edge_keys=tuple(edges.rows),
        edges=edges.columns(),
        sink_keys=tuple(sinks.rows),
        sinks=sinks.columns(),
        latencies=Sketches.of({} for _ in sinks.rows),
        source_keys=tuple(sources.rows),
        sources=sources.columns(),
        lost=tuple(lost),
        placed=placed or {},
    )


def _zeros(table: type[Columns]) -> dict[str, float]:
    return dict.fromkeys(_COUNTED[table], 0.0)
