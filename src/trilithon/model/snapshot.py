"""Owns everything known at one moment, over all jobs, and a friendly view of one job of it."""

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
    """Columns over all instances, edges, sources, sinks and machines, at one time.

    Counters are cumulative. `since_s` is when they were 0, where that is known: with it a single
    snapshot has a window of its own, without it only a series has one.
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
            raise InvalidRecording("A snapshot needs a time.")
        if self.since_s is not None and not self.since_s < self.time_s:
            raise InvalidRecording(
                f"The counters run since {self.since_s:g} s, but it is only {self.time_s:g} s.",
                "`since_s` lies before `time_s`.",
            )
        for name, found, expected in (
            ("instances", self.instances, len(layout.instance_node)),
            ("edges", self.edges, len(layout.edge_source)),
            ("sources", self.sources, len(layout.source_nodes)),
            ("sinks", self.sinks, len(layout.sink_nodes)),
            ("latencies", self.latencies, len(layout.sink_nodes)),
            ("machines", self.machines, len(layout.machines)),
        ):
            if len(found) != expected:
                raise InvalidRecording(
                    f"{len(found)} rows of {name}, but the layout has {expected}."
                )
        machine = self.instances.machine
        known = machine[~np.isnan(machine)]
        if ((known < 0) | (known >= len(layout.machines)) | (known != np.round(known))).any():
            raise InvalidRecording("An instance is on a machine that the snapshot does not have.")

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

    def job(self, job: str) -> "JobView":
        if job not in self.layout.jobs:
            raise NotFound(
                f"The snapshot has no job {job!r}.", f"It has: {', '.join(self.layout.jobs)}."
            )
        return JobView(self, job)

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
class JobView:
    """One job of a snapshot, in plain numbers: for people and tests, not for hot paths."""

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
        """Every column of one instance; what is missing is None."""
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
        """Records that arrived and were not read yet; not below 0, though the two counts may be of
        moments a second apart.
        """
        row = self.snapshot.layout.source_row.get((self.id, source))
        if row is None:
            raise NotFound(f"{self.id} has no source {source!r}.")
        sources = self.snapshot.sources
        return present(np.maximum(0.0, sources.arrived[row] - sources.taken[row]))


def present(value: float) -> float | None:
    """A number, or None where it is missing."""
    return None if np.isnan(value) else float(value)


def plain(value: Any) -> float | None:
    """A measured number as data: None where it is missing or has no end."""
    found = float(value)
    return found if np.isfinite(found) else None
