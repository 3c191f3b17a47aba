"""Defines a report: the measurements that one probe sends, its part of a snapshot."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field

from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.layout import EdgeKey, InstanceKey, NodeKey
from trilithon.model.sketches import Sketches


def _check_rows(keys: Sized, table: Sized, name: str) -> None:
    if len(keys) != len(table):
        raise ValueError(f"{len(keys)} keys but {len(table)} rows of {name}")


@dataclass(frozen=True, eq=False)
class ReportBatch:
    """The tables of several reports that were made together, report after report in the order of
    their senders. Who merges all of them takes these; the tables of the reports are parts of them.
    """

    reports: int
    instances: Instances
    edges: Edges
    sources: Sources
    sinks: Sinks
    latencies: Sketches
    machines: Machines


@dataclass(frozen=True, eq=False)
class Report:
    """The columns that one sender (an executor) knows, each row under its key.

    A sender knows the instances that run in it and the records that it sent to others; the rest of
    a row is missing. Counters that several senders report for one row add up. `sequence` grows by 1
    from report to report: a gap is a lost report. `lost` are senders that will not report again.
    `placed`, if given, maps operators whose instances are not numbered from 0 without gaps to the
    indices of their instances. Times are those of the driver, with an error of at most
    `clock_error_s`.
    """

    sender: str
    sequence: int
    time_s: float
    clock_error_s: float | None = None
    instance_keys: tuple[InstanceKey, ...] = ()
    instances: Instances = field(default_factory=lambda: Instances.missing(0))
    edge_keys: tuple[EdgeKey, ...] = ()
    edges: Edges = field(default_factory=lambda: Edges.missing(0))
    source_keys: tuple[NodeKey, ...] = ()
    sources: Sources = field(default_factory=lambda: Sources.missing(0))
    sink_keys: tuple[NodeKey, ...] = ()
    sinks: Sinks = field(default_factory=lambda: Sinks.missing(0))
    latencies: Sketches = field(default_factory=lambda: Sketches.missing(0))
    machine_keys: tuple[str, ...] = ()
    machines: Machines = field(default_factory=lambda: Machines.missing(0))
    lost: tuple[str, ...] = ()
    placed: Mapping[NodeKey, tuple[int, ...]] | None = None
    # The batch that it is of, and its place there.
    batch: ReportBatch | None = None
    place: int = 0

    def __post_init__(self) -> None:
        _check_rows(self.instance_keys, self.instances, "instances")
        _check_rows(self.edge_keys, self.edges, "edges")
        _check_rows(self.source_keys, self.sources, "sources")
        _check_rows(self.sink_keys, self.sinks, "sinks")
        _check_rows(self.sink_keys, self.latencies, "latencies")
        _check_rows(self.machine_keys, self.machines, "machines")
