"""Defines a snapshot: the measurements of all jobs at one time, and a view of a single job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from trilithon.errors import InvalidRecording, NotFound
from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.sketches import Sketches


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The tables of all instances, edges, sources, sinks and machines, at one time.

    Counters are cumulative. `since_s` is the time when they were 0, if known: with it a single
    snapshot has a window; otherwise a window takes two snapshots.
    """

    time_s: float
    layout: Layout
    instances: Instances
    edges: Edges
    sources: Sources
    sinks: Sinks
    latencies: Sketches
    machines: Machines
    jobs: Mapping[str, Job] = field(default_factory=dict)
    since_s: float | None = None

    def __post_init__(self) -> None:
        layout = self.layout
        if not np.isfinite(self.time_s):
            raise InvalidRecording("The time of a snapshot must be a finite number.")
        if self.since_s is not None and not self.since_s < self.time_s:
            raise InvalidRecording(
                f"`since_s` ({self.since_s:g} s) must be before `time_s` ({self.time_s:g} s).",
                "Correct one of them, or leave `since_s` out.",
            )
        for name, table, expected in (
            ("instances", self.instances, len(layout.instance_node)),
            ("edges", self.edges, len(layout.edge_source)),
            ("sources", self.sources, len(layout.source_nodes)),
            ("sinks", self.sinks, len(layout.sink_nodes)),
            ("latencies", self.latencies, len(layout.sink_nodes)),
            ("machines", self.machines, len(layout.machines)),
        ):
            if len(table) != expected:
                raise InvalidRecording(
                    f"The table {name} has {len(table)} rows, but the layout has {expected}."
                )
        machine = self.instances.machine
        known = machine[~np.isnan(machine)]
        if ((known < 0) | (known >= len(layout.machines)) | (known != np.round(known))).any():
            raise InvalidRecording("An instance runs on a machine that the snapshot does not have.")

    @classmethod
    def empty(
        cls, time_s: float, layout: Layout, jobs: Mapping[str, Job] | None = None
    ) -> "Snapshot":
        """A snapshot in which everything is missing."""
        return cls(
            time_s=time_s,
            layout=layout,
            instances=Instances.missing(len(layout.instance_node)),
            edges=Edges.missing(len(layout.edge_source)),
            sources=Sources.missing(len(layout.source_nodes)),
            sinks=Sinks.missing(len(layout.sink_nodes)),
            latencies=Sketches.missing(len(layout.sink_nodes)),
            machines=Machines.missing(len(layout.machines)),
            jobs=jobs or {},
        )

    def job(self, job: str) -> "JobSnapshot":
        if job not in self.layout.jobs:
            raise NotFound(
                f"The snapshot has no job {job!r}.", f"It has: {', '.join(self.layout.jobs)}."
            )
        return JobSnapshot(self, job)

    def equals(self, other: "Snapshot") -> bool:
        return (
            self.time_s == other.time_s
            and self.since_s == other.since_s
            and dict(self.jobs) == dict(other.jobs)
            and self.layout.same_shape(other.layout)
            and self.latencies.equals(other.latencies)
            and all(
                getattr(self, name).equals(getattr(other, name))
                for name in ("instances", "edges", "sources", "sinks", "machines")
            )
        )


@dataclass(frozen=True)
class JobSnapshot:
    """One job of a snapshot as plain numbers: for people and tests, not for hot paths."""

    snapshot: Snapshot
    id: str

    @cached_property
    def parallelism(self) -> dict[str, int]:
        layout = self.snapshot.layout
        return {
            layout.node_names[node]: int(layout.parallelism[node])
            for node in layout.job_nodes(self.id)
            if layout.parallelism[node]
        }

    def instance(self, operator: str, index: int) -> dict[str, float | None]:
        """Every column of one instance; None for missing numbers."""
        row = self.snapshot.layout.instance_row.get((self.id, operator, index))
        if row is None:
            raise NotFound(f"{self.id} has no instance {index} of {operator!r}.")
        columns = self.snapshot.instances
        return {name: present(columns.column(name)[row]) for name in columns.names()}

    def edge(self, source: str, target: str) -> dict[str, float | None]:
        row = self.snapshot.layout.edge_row.get((self.id, source, target))
        if row is None:
            raise NotFound(f"{self.id} has no edge {source}->{target}.")
        columns = self.snapshot.edges
        return {name: present(columns.column(name)[row]) for name in columns.names()}

    def lag(self, source: str) -> float | None:
        """Records that arrived and were not read yet; never negative, although the two counts may
        have been taken up to a second apart.
        """
        row = self.snapshot.layout.source_row.get((self.id, source))
        if row is None:
            raise NotFound(f"{self.id} has no source {source!r}.")
        sources = self.snapshot.sources
        return present(np.maximum(0.0, sources.arrived[row] - sources.taken[row]))


def present(value: float) -> float | None:
    """The number; None if it is missing."""
    return None if np.isnan(value) else float(value)


def plain(value: Any) -> float | None:
    """A measured number for JSON: None if it is missing or infinite."""
    number = float(value)
    return number if np.isfinite(number) else None
