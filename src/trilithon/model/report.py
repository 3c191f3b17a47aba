"""Owns what one probe sends: its part of a snapshot, by name, before anything is put together."""

from dataclasses import dataclass, field

from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.layout import EdgeKey, InstanceKey, NodeKey
from trilithon.model.sketches import Sketches


def _rows(keys: tuple[object, ...], table: object, name: str) -> None:
    if len(keys) != len(table):  # type: ignore[arg-type]
        raise ValueError(f"{len(keys)} keys but {len(table)} rows of {name}")  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Report:
    """The columns that one sender knows, each row under its key.

    A sender knows the instances that run in it and what it sent to those elsewhere; the rest of a
    row is missing. Counters of one row that come from several senders add up. `sequence` grows by 1
    from report to report: a gap is a lost report. `lost` are senders that will not report again. Times are the driver's, and `clock_error_s` says
    how far off they may be.
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

    def __post_init__(self) -> None:
        _rows(self.instance_keys, self.instances, "instances")
        _rows(self.edge_keys, self.edges, "edges")
        _rows(self.source_keys, self.sources, "sources")
        _rows(self.sink_keys, self.sinks, "sinks")
        _rows(self.sink_keys, self.latencies, "latencies")
        _rows(self.machine_keys, self.machines, "machines")
