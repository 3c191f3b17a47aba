"""Translates the probe's JSON, which an executor sends every second, into reports of the model.

The sending instance counts the records that an edge carries and those sent to each receiver; the
receiving instance counts the records taken and times the channel. The assembler adds them up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from trilithon.engines.spark.cuts import PartJob, is_cut
from trilithon.engines.spark.part_reports import WholeJobs
from trilithon.model.columns import Columns, Edges, Instances, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches, bucket_of

VERSION = 1
# The probe counts latencies of 0 or a few milliseconds less apart, since they have no logarithm:
# they come from clock skew, or from records that were faster than the clock's tick.
_LOWEST_BUCKET: Final = int(bucket_of(0.0))


@dataclass
class _Rows:
    """Rows of a table by key, filled one number at a time; a number never set is missing."""

    table: type[Columns]
    rows: dict[Any, dict[str, float]] = field(default_factory=dict)

    def add(self, key: Any, **numbers: float) -> dict[str, float]:
        """Adds counts to those in the row; returns the row."""
        if (row := self.rows.get(key)) is None:
            self.rows[key] = numbers
            return numbers
        for name, value in numbers.items():
            row[name] = row.get(name, 0.0) + value
        return row

    def columns(self) -> Any:
        known = {name for row in self.rows.values() for name in row}
        nan, rows = float("nan"), self.rows.values()
        columns = {name: [row.get(name, nan) for row in rows] for name in known}
        table = self.table.trusted(len(rows), **columns)
        return self.table.of(len(rows), **columns) if np.isinf(table.block).any() else table


def sender_of(application: str, executor: str) -> str:
    """The name of an executor, unique over applications: each numbers its executors from 0."""
    return f"{application}/{executor}"


def report_of(
    sent: Mapping[str, Any],
    jobs: Mapping[str, Job],
    application: str = "",
    whole: WholeJobs | None = None,
) -> Report:
    """The report of one executor, without jobs that are no longer known and without the counters of
    earlier incarnations of a job. `whole` joins the parts of a job.
    """
    if sent.get("version") != VERSION:
        raise ValueError(f"a report of probe version {sent.get('version')}, expected is {VERSION}")
    clock_error_s = float(sent["clock"]["error_us"]) / 1e6
    translator = _Translator(jobs, clock_error_s)
    latest: dict[str, int] = {}
    for instance in sent["instances"]:
        latest[instance["job"]] = max(instance["incarnation"], latest.get(instance["job"], 0))
    for instance in sent["instances"]:
        if instance["incarnation"] == latest[instance["job"]]:
            translator.instance(instance)
    translator.set_incarnations()
    sender = sender_of(application, str(sent["executor"]))
    (whole or WholeJobs()).join(
        sender,
        translator.instances.rows,
        translator.edges.rows,
        translator.sources.rows,
        translator.sinks.rows,
        translator.histograms,
    )
    host = f"{sent['host']}/{sent['executor']}"
    machine = sent["machine"]
    # The JVM gives a negative number for what the machine does not measure.
    loads = {"load": machine["load"], "cores_busy": machine["cpu_machine"] * machine["cores"]}
    loads["clock_steps"] = sent.get("clock_steps", -1)
    # The memory of a machine is the heap of its executor: the rest belongs to others.
    loads["memory_bytes"] = machine.get("heap_bytes", -1)
    loads["memory_used_bytes"] = machine.get("heap_used_bytes", -1)
    known = {name: [float(value)] for name, value in loads.items() if value >= 0}
    machines = Machines.of(1, cores=[machine["cores"]], **known)
    return Report(
        sender=sender,
        sequence=int(sent["sequence"]),
        # The driver's time never steps; the times of reports are those of its wall clock.
        time_s=float(sent.get("wall_us", sent["time_us"])) / 1e6,
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
        # The shortest time to the reader of an internal topic.
        self.first_legs: dict[tuple[str, str, str], float] = {}

    def instance(self, sent: Mapping[str, Any]) -> None:
        name, operator = sent["job"], sent["operator"]
        if (job := self.jobs.get(name)) is None:
            return
        if operator not in job.children:
            return  # an operator of an earlier version of the job
        self.incarnations[name] = float(sent["incarnation"])
        if isinstance(job, PartJob) and (cut := job.reads.get(operator)) and cut.internal:
            self._first_leg((name, operator, cut.edge.target), sent["in"].get("", {}))
        if operator in job.source_names:
            failed = float(sent.get("rejected", 0))
            self.sources.add((name, operator), taken=float(sent["taken"]), failed=failed)
            # The reader of a partition without records is not a sender.
            for target in sent["out"]:
                self.edges.add((name, operator, target), senders=float(sent["active"]))
        else:
            self._operator(name, operator, sent)
        for target, edge in sent["out"].items():
            self._outbound((name, operator, target), edge)
        if "e2e" in sent:
            self._sinks(job, operator, sent["e2e"])

    def _operator(self, job: str, operator: str, sent: Mapping[str, Any]) -> None:
        service, writes = sent["service"], sent["writes"]
        key = (job, operator, int(sent["index"]))
        row = self.instances.add(
            key,
            taken=float(sent["taken"]),
            failed=float(sent.get("rejected", 0)),
            emitted=float(sum([edge["emitted"] for edge in sent["out"].values()])),
            busy_s=service["sum_us"] / 1e6,
            busy_sq_s2=service["sumsq_us2"] / 1e12,
            write_waits=float(writes["count"]),
            write_wait_s=writes["sum_us"] / 1e6,
            cpu_s=sent["cpu_ns"] / 1e9,
        )
        if sent["active"]:
            row["machine"] = 0.0
        for source, edge in sent["in"].items():
            channel, gaps = edge["channel"], edge["interarrival"]
            self.instances.add(
                key,
                gaps=float(gaps["count"]),
                gap_s=gaps["sum_us"] / 1e6,
                gap_sq_s2=gaps["sumsq_us2"] / 1e12,
            )
            into = self.edges.add(
                (job, source, operator),
                taken=float(channel["count"]),
                transfers=float(channel["count"]),
                channel_s=channel["sum_us"] / 1e6,
            )
            # The stamp is by the sender's clock, the arrival by the receiver's: both may be off.
            into["clock_error_s"] = self.clock_error_s
            if "least_us" in edge:
                _transport(into, edge)

    def _first_leg(self, key: tuple[str, str, str], edge: Mapping[str, Any]) -> None:
        """A cut edge has two legs: to the reader of the internal topic, and from there over the
        shuffle, which the receiving operator measures.
        """
        self.edges.add(
            key,
            channel_s=edge.get("channel", {}).get("sum_us", 0.0) / 1e6,
            batching_s=edge.get("gathered_us", 0.0) / 1e6,
        )
        if "least_us" in edge:
            least_s = edge["least_us"] / 1e6
            self.first_legs[key] = min(least_s, self.first_legs.get(key, least_s))

    def _outbound(self, key: tuple[str, str, str], edge: Mapping[str, Any]) -> None:
        job, _, target = key
        row = self.edges.add(key, emitted=float(edge["emitted"]), parked_s=edge["parked_ns"] / 1e9)
        row["clock_error_s"] = self.clock_error_s
        for index, count in edge["sent_to"].items():
            self.instances.add((job, target, int(index)), sent=float(count))
        for index, parked_ns in edge["parked_at"].items():
            self.instances.add((job, target, int(index)), parked_s=parked_ns / 1e9)

    def _sinks(self, job: Job, operator: str, delivered: Mapping[str, Any]) -> None:
        """Adds the rows of an operator's sinks, each of which gets every record."""
        for edge in job.children[operator]:
            if is_cut(edge.target):
                continue  # what goes on to another part is counted when it leaves
            key = (job.id, edge.target)
            measured, ahead = float(delivered["count"]), float(delivered.get("ahead", 0))
            count = measured + ahead
            latency_s = delivered["sum_ms"] / 1e3
            self.sinks.add(key, written=count, latencies=measured, latency_s=latency_s, ahead=ahead)
            histogram = self.histograms.setdefault(key, {})
            buckets = [(int(bucket), number) for bucket, number in delivered["buckets"].items()]
            for bucket, number in (*buckets, (_LOWEST_BUCKET, delivered["zero"])):
                histogram[bucket] = histogram.get(bucket, 0.0) + number
            name = (job.id, operator, edge.target)
            self.edges.add(name, emitted=count, taken=count, parked_s=0.0)

    def set_incarnations(self) -> None:
        """Adds to each row the incarnation in which it was counted."""
        for key, least_s in self.first_legs.items():
            self.edges.add(key, idle_transport_s=least_s)
        for table in (self.instances, self.edges, self.sources, self.sinks):
            for key, row in table.rows.items():
                row["incarnation"] = self.incarnations[key[0]]


def _transport(row: dict[str, float], edge: Mapping[str, Any]) -> None:
    """Transport is the shortest channel time that any instance saw. What a record for an idle
    instance took beyond that is batching: the shuffle sends records in batches.
    """
    least_s = edge["least_us"] / 1e6
    row["idle_transport_s"] = min(row.get("idle_transport_s", least_s), least_s)
    row["batching_s"] = row.get("batching_s", 0.0) + edge["gathered_us"] / 1e6
