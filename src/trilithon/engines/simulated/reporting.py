"""Owns what a simulated cluster reports: what the probes of the Spark engine send, and no more.

A machine reports of the instances that run on it and of what was sent from it; the host knows which
rows there are and where the logs end. What a sender counts of an edge stands with the machine of
the edge's first sender, what a receiver counts with that of its first receiver: each number has one
place, and is missing when that machine does not report.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from trilithon.model.report import Report
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


def _count(table: Any, name: str, rows: Ints) -> Floats:
    """A counter of some rows, in whole records: flows count in parts of them."""
    values: Floats = table[name][rows]
    return np.floor(values + 1e-6) if name in _WHOLE else values.copy()


@dataclass(frozen=True)
class _TableRows:
    """Rows of one table under their keys, with where each is counted and in which life."""

    keys: tuple[Any, ...]
    rows: Ints
    life: Floats
    sender: Ints
    receiver: Ints

    def at(self, machine: int) -> "tuple[tuple[Any, ...], _TableRows]":
        """The rows that one machine reports."""
        mine = np.flatnonzero((self.sender == machine) | (self.receiver == machine))
        keys = tuple(self.keys[i] for i in mine)
        return keys, _TableRows(
            keys, self.rows[mine], self.life[mine], self.sender[mine], self.receiver[mine]
        )


class Reporter:
    """Makes reports. Which rows there are is worked out once per change, not once per report."""

    def __init__(
        self, world: World, jobs: Mapping[str, ReportedJob], *, reports_memory: bool
    ) -> None:
        self.reports_memory = reports_memory
        self.tables = _tables(world, jobs)
        self.partitions = np.array(
            [
                float(source.partitions or 1)
                for reported in jobs.values()
                for name in reported.job.order
                for source in reported.job.sources
                if source.name == name
            ]
        )
        used = {*self.tables["instance"].receiver.tolist()}
        machines = used | set(range(len(world.machines)))
        self.by_machine = {
            m: {name: table.at(m)[1] for name, table in self.tables.items()} for m in machines
        }

    def machine(
        self,
        world: World,
        machine: int,
        name: str,
        sender: str,
        sequence: int,
        time_s: float,
        memory: tuple[float, float],
    ) -> Report:
        mine = self.by_machine[machine]
        instance, edge, source, sink = (mine[k] for k in ("instance", "edge", "source", "sink"))
        nan = np.nan
        runs = np.where(instance.receiver == machine, 1.0, nan)
        sent = np.where(instance.sender == machine, 1.0, nan)
        counted = {key: _count(world.actors, key, instance.rows) * runs for key in _ACTOR}
        row = world.machines[machine]
        known = {"memory_bytes": [memory[0]], "memory_used_bytes": [memory[1]]}
        return Report(
            sender=sender,
            sequence=sequence,
            time_s=time_s,
            instance_keys=instance.keys,
            instances=Instances.trusted(
                len(instance.keys),
                incarnation=instance.life,
                sent=_count(world.actors, "sent", instance.rows) * sent,
                parked_s=world.actors["parked_s"][instance.rows] * sent,
                failed=0.0 * runs,
                **counted,
            ),
            edge_keys=edge.keys,
            edges=self._edges(world, machine, edge),
            source_keys=source.keys,
            sources=_read(world, source),
            sink_keys=sink.keys,
            sinks=_written(world, sink),
            latencies=_sketches(world, sink.rows),
            machine_keys=(name,),
            machines=Machines.of(
                1,
                cores=[row["cores"]],
                load=[row["load"]],
                cores_busy=[min(row["load"], row["cores"])],
                **(known if self.reports_memory else {}),
            ),
        )

    def _edges(self, world: World, machine: int, edge: _TableRows) -> Edges:
        nan = np.nan
        sends = np.where(edge.sender == machine, 1.0, nan)
        takes = np.where(edge.receiver == machine, 1.0, nan)
        rows, edges, nodes = edge.rows, world.edges, world.nodes
        source = edges["source"][rows]
        reader = nodes["kind"][source] == SOURCE
        senders = np.where(reader, nodes["senders"][source], nodes["active"][source])
        taken = _count(edges, "taken", rows)
        # Nothing waits between an operator and a sink: there is no channel to measure.
        channel = np.where(nodes["kind"][edges["target"][rows]] == SINK, nan, takes)
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
            idle_transport_s=np.where(taken > 0, edges["transit_s"][rows], nan) * channel,
        )

    def host(self, world: World, sequence: int, time_s: float, lost: tuple[str, ...]) -> Report:
        """Every row with a 0 to add to, where the logs of the sources end, and who is gone."""
        instance, edge, source, sink = (
            self.tables[k] for k in ("instance", "edge", "source", "sink")
        )
        none, zero = np.zeros(len(instance.keys)), np.zeros(len(edge.keys))
        nothing = np.zeros(len(sink.keys))
        return Report(
            sender="host",
            sequence=sequence,
            time_s=time_s,
            instance_keys=instance.keys,
            instances=Instances.trusted(
                len(none),
                incarnation=instance.life,
                sent=none,
                parked_s=none,
                failed=none,
                **dict.fromkeys(_ACTOR, none),
            ),
            edge_keys=edge.keys,
            edges=Edges.trusted(
                len(zero),
                incarnation=edge.life,
                emitted=zero,
                taken=zero,
                parked_s=zero,
                transfers=zero,
                channel_s=zero,
                batching_s=zero,
            ),
            source_keys=source.keys,
            sources=Sources.trusted(
                len(source.keys),
                incarnation=source.life,
                taken=np.zeros(len(source.keys)),
                failed=np.zeros(len(source.keys)),
                arrived=_count(world.nodes, "arrived", source.rows),
                partitions=self.partitions,
            ),
            sink_keys=sink.keys,
            sinks=Sinks.trusted(
                len(nothing),
                incarnation=sink.life,
                written=nothing,
                latencies=nothing,
                latency_s=nothing,
            ),
            latencies=Sketches.of({} for _ in sink.keys),
            lost=lost,
        )


# Most machines report no source and no sink.
_NO_SOURCES, _NO_SINKS = Sources.missing(0), Sinks.missing(0)


def _read(world: World, source: _TableRows) -> Sources:
    if not source.keys:
        return _NO_SOURCES
    return Sources.trusted(
        len(source.keys),
        incarnation=source.life,
        taken=_count(world.nodes, "read", source.rows),
        failed=np.zeros(len(source.keys)),
    )


def _written(world: World, sink: _TableRows) -> Sinks:
    if not sink.keys:
        return _NO_SINKS
    written = _count(world.nodes, "written", sink.rows)
    return Sinks.trusted(
        len(sink.keys),
        incarnation=sink.life,
        written=written,
        latencies=written,
        latency_s=_count(world.nodes, "latency_s", sink.rows),
    )


def _tables(world: World, jobs: Mapping[str, ReportedJob]) -> dict[str, _TableRows]:
    """The rows of all jobs, table by table."""
    entries_by_table: dict[str, list[tuple[Any, int, int, int, int]]] = {
        name: [] for name in ("instance", "edge", "source", "sink")
    }
    nodes, machine = world.nodes, world.actors["machine"]

    def first_of(node: int) -> int:
        """The machine of a node's first actor; of a sink, that of who writes to it."""
        if nodes["kind"][node] == SINK:
            node = int(world.edges["source"][world.into[nodes["in_first"][node]]])
        return int(machine[nodes["first"][node]])

    for reported in jobs.values():
        job, rows, life = reported.job, reported.rows, reported.life
        for name in job.order:
            node = rows.nodes[name]
            kind = nodes["kind"][node]
            if kind == OPERATOR:
                sender = first_of(int(world.edges["source"][world.into[nodes["in_first"][node]]]))
                for index in range(reported.allocation.parallelism[name]):
                    actor = int(nodes["first"][node]) + index
                    key = (job.id, name, index)
                    entries_by_table["instance"].append(
                        (key, actor, life, sender, int(machine[actor]))
                    )
            else:
                table = "source" if kind == SOURCE else "sink"
                at = first_of(node)
                entries_by_table[table].append(((job.id, name), node, life, at, at))
        for (source, target), edge in rows.edges.items():
            sends, takes = first_of(rows.nodes[source]), first_of(rows.nodes[target])
            entries_by_table["edge"].append(((job.id, source, target), edge, life, sends, takes))
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


def _sketches(world: World, sinks: Ints) -> Sketches:
    counts = world.histogram[sinks]
    row, bucket = np.nonzero(counts)
    offsets = np.searchsorted(row, np.arange(len(sinks) + 1)).astype(np.int64)
    return Sketches(
        offsets, (bucket + LOWEST).astype(np.int64), counts[row, bucket], np.ones(len(sinks), bool)
    )
