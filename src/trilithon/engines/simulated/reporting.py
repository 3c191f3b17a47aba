"""Owns what a simulated cluster reports: what the probes of the Spark engine send, and no more.

A machine reports of the instances that run on it and of what was sent from it; the host knows which
rows there are and where the logs end. What a sender counts of an edge stands with the machine of
the edge's first sender, what a receiver counts with that of its first receiver: each number has one
place, and is missing when that machine does not report.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trilithon.engines.simulated.job_rows import JobRows
from trilithon.engines.simulated.world_tables import (
    LOWEST,
    OPERATOR,
    SINK,
    SOURCE,
    Floats,
    Ints,
    World,
)
from trilithon.model.allocation import Allocation
from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.report import Report, ReportBatch
from trilithon.model.sketches import Sketches

_ACTOR = (
    "taken",
    "emitted",
    "busy_s",
    "busy_sq_s2",
    "write_waits",
    "write_wait_s",
    "cpu_s",
    "gaps",
    "gap_s",
    "gap_sq_s2",
)
_WHOLE = frozenset({"sent", "taken", "emitted", "gaps", "written", "arrived", "read"})


@dataclass(frozen=True)
class ReportedJob:
    """A job that runs, for its reports."""

    job: Job
    allocation: Allocation
    rows: JobRows
    life: int


@dataclass(frozen=True)
class ReportingMachine:
    """A machine that reports: its row, its names, the number of its report, and its memory."""

    row: int
    name: str
    sender: str
    sequence: int
    memory_bytes: float
    memory_used_bytes: float


def _count(table: Any, name: str, rows: Ints) -> Floats:
    """A counter of some rows, in whole records: flows count in parts of them."""
    values: Floats = table[name][rows]
    return np.floor(values + 1e-6) if name in _WHOLE else values


_TABLES: Final = ("instance", "edge", "source", "sink")
# The key of a row, the row, its life, and the machines of its sender and its receiver.
_Entry = tuple[Any, int, int, int, int]


@dataclass(frozen=True)
class JobEntries:
    """The rows of one job by table, and what they were made of."""

    reported: ReportedJob
    # The machine of each of its actors.
    machines: Ints
    by_table: Mapping[str, Sequence[_Entry]]

    @classmethod
    def of(cls, world: World, reported: ReportedJob, before: "JobEntries | None") -> "JobEntries":
        """The rows of a job; those of before if nothing of it has changed."""
        numbers = reported.rows.nodes.values()
        start, end = min(numbers), max(numbers) + 1
        nodes = world.nodes[start:end]
        first, last = int(nodes["first"][0]), int(nodes["first"][-1] + nodes["tasks"][-1])
        machines = world.actors["machine"][first:last]
        if (
            before is not None
            and before.reported.rows is reported.rows
            and before.reported.allocation is reported.allocation
            and before.reported.life == reported.life
            and np.array_equal(before.machines, machines)
        ):
            return before
        by_table = _entries(world, reported, start, nodes)
        return cls(reported, machines.copy(), by_table)


def _entries(
    world: World, reported: ReportedJob, start: int, nodes: Any
) -> dict[str, list[_Entry]]:
    """The rows of a job, whose nodes are these, from row `start` on."""
    by_table: dict[str, list[_Entry]] = {name: [] for name in _TABLES}
    job, rows, life = reported.job, reported.rows, reported.life
    kinds, first = nodes["kind"].tolist(), nodes["first"].tolist()
    # Who sends over the first edge into each node.
    sender_of = [
        int(world.edges["source"][world.into[at]]) if count else -1
        for at, count in zip(nodes["in_first"].tolist(), nodes["in_count"].tolist(), strict=True)
    ]
    machine = world.actors["machine"]

    def first_of(node: int) -> int:
        """The machine of a node's first actor; of a sink, that of who writes to it."""
        if kinds[node - start] == SINK:
            node = sender_of[node - start]
        return int(machine[first[node - start]])

    for name in job.order:
        node = rows.nodes[name]
        kind = kinds[node - start]
        if kind == OPERATOR:
            sender = first_of(sender_of[node - start])
            count, actor = reported.allocation.parallelism[name], first[node - start]
            at_machines = machine[actor : actor + count].tolist()
            by_table["instance"] += [
                ((job.id, name, index), actor + index, life, sender, at)
                for index, at in enumerate(at_machines)
            ]
        else:
            at = first_of(node)
            table = "source" if kind == SOURCE else "sink"
            by_table[table].append(((job.id, name), node, life, at, at))
    for (source, target), edge in rows.edges.items():
        sends, takes = first_of(rows.nodes[source]), first_of(rows.nodes[target])
        by_table["edge"].append(((job.id, source, target), edge, life, sends, takes))
    return by_table


@dataclass(frozen=True)
class _TableRows:
    """Rows of one table under their keys, with where each is counted and in which life."""

    keys: tuple[Any, ...]
    rows: Ints
    life: Floats
    sender: Ints
    receiver: Ints


@dataclass(frozen=True)
class _RowsByMachine:
    """The rows that each machine reports, machine after machine: all are counted in one step."""

    rows: Ints
    life: Floats
    # 1 where the machine counts what was sent, or what was taken; otherwise missing.
    sends: Floats
    takes: Floats
    keys: Mapping[int, tuple[Any, ...]]
    parts: Mapping[int, slice]

    @classmethod
    def of(cls, table: _TableRows, machines: Iterable[int]) -> "_RowsByMachine":
        mine: dict[int, list[int]] = {machine: [] for machine in machines}
        places = zip(table.sender.tolist(), table.receiver.tolist(), strict=True)
        for row, (sender, receiver) in enumerate(places):
            mine[sender].append(row)
            if receiver != sender:
                mine[receiver].append(row)
        every = np.array([row for rows in mine.values() for row in rows], np.int64)
        sizes = [len(rows) for rows in mine.values()]
        machine, ends = np.repeat(list(mine), sizes), np.cumsum(sizes).tolist()
        return cls(
            table.rows[every],
            table.life[every],
            np.where(table.sender[every] == machine, 1.0, np.nan),
            np.where(table.receiver[every] == machine, 1.0, np.nan),
            {of: tuple(map(table.keys.__getitem__, rows)) for of, rows in mine.items()},
            {of: slice(end - size, end) for of, size, end in zip(mine, sizes, ends, strict=True)},
        )


# The tables of a report, and which of the rows by machine they are cut out by; the table of
# machines has a row for each report.
_CUT: Final = {"instances": 0, "edges": 1, "sources": 2, "sinks": 3, "latencies": 3}


class _MachineReport(Report):
    """A report of a batch: its tables are cut out of those of the batch when they are used."""

    @classmethod
    def of(
        cls,
        batch: ReportBatch,
        parts: Sequence[_RowsByMachine],
        machine: ReportingMachine,
        place: int,
        time_s: float,
    ) -> "_MachineReport":
        instance, edge, source, sink = parts
        report = object.__new__(cls)
        report.__dict__.update(
            sender=machine.sender,
            sequence=machine.sequence,
            time_s=time_s,
            instance_keys=instance.keys[machine.row],
            edge_keys=edge.keys[machine.row],
            source_keys=source.keys[machine.row],
            sink_keys=sink.keys[machine.row],
            machine_keys=(machine.name,),
            batch=batch,
            place=place,
            _slices=tuple(part.parts[machine.row] for part in parts),
        )
        return report

    if not TYPE_CHECKING:  # or every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            batch, slices = self.__dict__.get("batch"), self.__dict__.get("_slices")
            if slices is None or (name != "machines" and name not in _CUT):
                raise AttributeError(f"A report has no {name!r}", name=name, obj=self)
            if name == "machines":
                table = batch.machines.part(slice(self.place, self.place + 1))
            else:
                rows, whole = slices[_CUT[name]], getattr(batch, name)
                table = _part(whole, rows) if name == "latencies" else whole.part(rows)
            self.__dict__[name] = table
            return table


class Reporter:
    """Makes reports. Which rows there are is worked out once per change, not once per report."""

    def __init__(
        self,
        world: World,
        jobs: Mapping[str, ReportedJob],
        senders: Sequence[str],
        *,
        reports_memory: bool,
        before: "Reporter | None" = None,
    ) -> None:
        """`senders` are the names under which the machines report. What the reporter `before` this
        one knew of jobs that have not changed is taken over.
        """
        self.reports_memory = reports_memory
        known = {} if before is None else before.entries
        self.entries: dict[str, JobEntries] = {
            name: JobEntries.of(world, reported, known.get(name)) for name, reported in jobs.items()
        }
        self.tables = _tables(self.entries.values())
        self.partitions = np.array(
            [
                float(source.partitions or 1)
                for reported in jobs.values()
                for name in reported.job.order
                for source in reported.job.sources
                if source.name == name
            ]
        )
        # In the order of their names, in which reports are merged.
        self.order = sorted(range(len(senders)), key=lambda row: senders[row])
        machines = self.order
        self.by_machine = {
            name: _RowsByMachine.of(table, machines) for name, table in self.tables.items()
        }
        # Every row with a 0 to add to.
        instance, edge, sink = (self.tables[k] for k in ("instance", "edge", "sink"))
        self.no_instances = Instances.trusted(
            len(instance.keys),
            incarnation=instance.life,
            sent=0.0,
            parked_s=0.0,
            failed=0.0,
            **dict.fromkeys(_ACTOR, 0.0),
        )
        self.no_edges = Edges.trusted(
            len(edge.keys),
            incarnation=edge.life,
            emitted=0.0,
            taken=0.0,
            parked_s=0.0,
            transfers=0.0,
            channel_s=0.0,
            batching_s=0.0,
        )
        self.no_sinks = Sinks.trusted(
            len(sink.keys), incarnation=sink.life, written=0.0, latencies=0.0, latency_s=0.0
        )
        self.no_latencies = Sketches.of({} for _ in sink.keys)

    def machines(
        self, world: World, reporting: Sequence[ReportingMachine], time_s: float
    ) -> list[Report]:
        """The reports of these machines."""
        parts = [self.by_machine[k] for k in ("instance", "edge", "source", "sink")]
        instance, edge, source, sink = parts
        rank = {row: place for place, row in enumerate(self.order)}
        ranked = sorted(reporting, key=lambda machine: rank[machine.row])
        batch = ReportBatch(
            len(self.order),
            _instances(world, instance),
            _edges(world, edge),
            _read(world, source),
            _written(world, sink),
            _sketches(world, sink.rows),
            self._load(world, ranked),
        )
        places = {machine.row: place for place, machine in enumerate(ranked)}
        return [
            _MachineReport.of(batch, parts, machine, places[machine.row], time_s)
            for machine in reporting
        ]

    def _load(self, world: World, reporting: Sequence[ReportingMachine]) -> Machines:
        rows = world.machines[[machine.row for machine in reporting]]
        memory = {
            "memory_bytes": [machine.memory_bytes for machine in reporting],
            "memory_used_bytes": [machine.memory_used_bytes for machine in reporting],
        }
        return Machines.trusted(
            len(reporting),
            cores=rows["cores"],
            load=rows["load"],
            cores_busy=np.minimum(rows["load"], rows["cores"]),
            **(memory if self.reports_memory else {}),
        )

    def host(self, world: World, sequence: int, time_s: float, lost: tuple[str, ...]) -> Report:
        """Every row with a 0 to add to, where the logs of the sources end, and who is gone."""
        source = self.tables["source"]
        return Report(
            sender="host",
            sequence=sequence,
            time_s=time_s,
            instance_keys=self.tables["instance"].keys,
            instances=self.no_instances,
            edge_keys=self.tables["edge"].keys,
            edges=self.no_edges,
            source_keys=source.keys,
            sources=Sources.trusted(
                len(source.keys),
                incarnation=source.life,
                taken=0.0,
                failed=0.0,
                arrived=_count(world.nodes, "arrived", source.rows),
                partitions=self.partitions,
            ),
            sink_keys=self.tables["sink"].keys,
            sinks=self.no_sinks,
            latencies=self.no_latencies,
            lost=lost,
        )


def _instances(world: World, instance: _RowsByMachine) -> Instances:
    return Instances.trusted(
        len(instance.rows),
        incarnation=instance.life,
        sent=_count(world.actors, "sent", instance.rows) * instance.sends,
        parked_s=world.actors["parked_s"][instance.rows] * instance.sends,
        failed=0.0 * instance.takes,
        **{key: _count(world.actors, key, instance.rows) * instance.takes for key in _ACTOR},
    )


def _edges(world: World, edge: _RowsByMachine) -> Edges:
    sends, takes = edge.sends, edge.takes
    rows, edges, nodes = edge.rows, world.edges, world.nodes
    source = edges["source"][rows]
    reader = nodes["kind"][source] == SOURCE
    senders = np.where(reader, nodes["senders"][source], nodes["active"][source])
    taken = _count(edges, "taken", rows)
    # Nothing waits between an operator and a sink: there is no channel to measure.
    channel = np.where(nodes["kind"][edges["target"][rows]] == SINK, np.nan, takes)
    return Edges.trusted(
        len(rows),
        incarnation=edge.life,
        senders=senders * sends,
        emitted=_count(edges, "emitted", rows) * sends,
        parked_s=edges["parked_s"][rows] * sends,
        taken=taken * takes,
        transfers=taken * channel,
        channel_s=edges["channel_s"][rows] * channel,
        batching_s=edges["batching_s"][rows] * channel,
        # Nothing measures the transport of a pulled edge.
        idle_transport_s=np.where(taken > 0, edges["transit_s"][rows], np.nan) * channel,
    )


def _read(world: World, source: _RowsByMachine) -> Sources:
    return Sources.trusted(
        len(source.rows),
        incarnation=source.life,
        taken=_count(world.nodes, "read", source.rows),
        failed=0.0,
    )


def _written(world: World, sink: _RowsByMachine) -> Sinks:
    written = _count(world.nodes, "written", sink.rows)
    return Sinks.trusted(
        len(sink.rows),
        incarnation=sink.life,
        written=written,
        latencies=written,
        latency_s=_count(world.nodes, "latency_s", sink.rows),
    )


def _tables(jobs: Iterable[JobEntries]) -> dict[str, _TableRows]:
    """The rows of all jobs, table by table."""
    entries_by_table = {
        name: [entry for entries in jobs for entry in entries.by_table[name]] for name in _TABLES
    }
    return {
        name: _TableRows(
            tuple(entry[0] for entry in entries),
            np.array([entry[1] for entry in entries], dtype=np.int64),
            np.array([entry[2] for entry in entries], dtype=float),
            np.array([entry[3] for entry in entries], dtype=np.int64),
            np.array([entry[4] for entry in entries], dtype=np.int64),
        )
        for name, entries in entries_by_table.items()
    }


# Most machines report no sink.
_NO_SKETCHES: Final = Sketches.missing(0)


def _sketches(world: World, sinks: Ints) -> Sketches:
    counts = world.histogram[sinks]
    row, bucket = np.nonzero(counts)
    offsets = np.searchsorted(row, np.arange(len(sinks) + 1)).astype(np.int64)
    return Sketches(
        offsets, (bucket + LOWEST).astype(np.int64), counts[row, bucket], np.ones(len(sinks), bool)
    )


def _part(sketches: Sketches, rows: slice) -> Sketches:
    """Some rows that stand side by side."""
    if rows.start == rows.stop:
        return _NO_SKETCHES
    offsets = sketches.offsets[rows.start : rows.stop + 1]
    entries = slice(offsets[0], offsets[-1])
    return Sketches(
        offsets - offsets[0],
        sketches.buckets[entries],
        sketches.counts[entries],
        sketches.known[rows],
    )
