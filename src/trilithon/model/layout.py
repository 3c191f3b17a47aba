"""Owns the shape that measurements hang on: which rows there are and how they are connected.

A layout changes when a job comes, goes or is rescaled, and is shared by all snapshots in between.
Nodes stand job by job, sources first and every edge pointing forwards; instances stand node by
node. Measures rely on this order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trilithon.errors import InvalidRecording
from trilithon.model.columns import Ints
from trilithon.model.job import Edge, Grouping, Job, Kind

KINDS = (Kind.SOURCE, Kind.OPERATOR, Kind.SINK)
InstanceKey = tuple[str, str, int]
NodeKey = tuple[str, str]
EdgeKey = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class Layout:
    """Rows of nodes, edges, instances and machines, by number and by name."""

    jobs: tuple[str, ...]
    node_names: tuple[str, ...]
    node_job: Ints
    node_kind: Ints
    edge_source: Ints
    edge_target: Ints
    edge_grouping: tuple[Grouping, ...]
    instance_node: Ints
    instance_index: Ints
    machines: tuple[str, ...]

    @classmethod
    def build(
        cls,
        jobs: Iterable[Job],
        instances: Mapping[str, Mapping[str, int | Sequence[int]]] | None = None,
        machines: Iterable[str] = (),
    ) -> "Layout":
        """The layout of some jobs: by default with the parallelism that they start with.

        `instances` says per job and operator how many there are, or which.
        """
        builder = _Builder()
        for job in jobs:
            builder.add(job, (instances or {}).get(job.id))
        return builder.build(tuple(machines))

    @cached_property
    def source_nodes(self) -> Ints:
        return np.flatnonzero(self.node_kind == KINDS.index(Kind.SOURCE))

    @cached_property
    def sink_nodes(self) -> Ints:
        return np.flatnonzero(self.node_kind == KINDS.index(Kind.SINK))

    @cached_property
    def operator_nodes(self) -> Ints:
        return np.flatnonzero(self.node_kind == KINDS.index(Kind.OPERATOR))

    @cached_property
    def parallelism(self) -> Ints:
        """Instances per node."""
        return np.bincount(self.instance_node, minlength=len(self.node_names)).astype(np.int64)

    @cached_property
    def first_instance(self) -> Ints:
        """The row of the first instance of each node (of the next one that has any, if none)."""
        return np.searchsorted(self.instance_node, np.arange(len(self.node_names))).astype(np.int64)

    @cached_property
    def edges_by_depth(self) -> tuple[Ints, ...]:
        """The rows of the edges in groups: all edges into a node are in groups before those out.

        Whoever goes through the groups in order sees parents before children, for all jobs at once.
        """
        depth = np.zeros(len(self.node_names), dtype=np.int64)
        for edge in np.argsort(self.edge_source, kind="stable"):
            source, target = self.edge_source[edge], self.edge_target[edge]
            depth[target] = max(depth[target], depth[source] + 1)
        by_depth = depth[self.edge_source]
        order = np.argsort(by_depth, kind="stable")
        cuts = np.searchsorted(by_depth[order], np.arange(1, by_depth.max(initial=-1) + 1))
        return tuple(np.split(order, cuts)) if len(order) else ()

    @cached_property
    def node_row(self) -> dict[NodeKey, int]:
        return {
            (self.jobs[job], name): row
            for row, (job, name) in enumerate(zip(self.node_job, self.node_names, strict=True))
        }

    @cached_property
    def edge_row(self) -> dict[EdgeKey, int]:
        names = self.node_names
        return {
            (self.jobs[self.node_job[source]], names[source], names[target]): row
            for row, (source, target) in enumerate(
                zip(self.edge_source, self.edge_target, strict=True)
            )
        }

    @cached_property
    def instance_row(self) -> dict[InstanceKey, int]:
        return {
            (self.jobs[self.node_job[node]], self.node_names[node], int(index)): row
            for row, (node, index) in enumerate(
                zip(self.instance_node, self.instance_index, strict=True)
            )
        }

    @cached_property
    def source_row(self) -> dict[NodeKey, int]:
        return {self._key(node): row for row, node in enumerate(self.source_nodes)}

    @cached_property
    def sink_row(self) -> dict[NodeKey, int]:
        return {self._key(node): row for row, node in enumerate(self.sink_nodes)}

    @cached_property
    def machine_row(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.machines)}

    def _key(self, node: int) -> NodeKey:
        return self.jobs[self.node_job[node]], self.node_names[node]

    def job_nodes(self, job: str) -> range:
        """The rows of a job's nodes, which stand together."""
        row = self.jobs.index(job)
        start, stop = np.searchsorted(self.node_job, [row, row + 1])
        return range(int(start), int(stop))

    def same_shape(self, other: "Layout") -> bool:
        """Whether the two have the same rows with the same names."""
        return (
            self.jobs == other.jobs
            and self.node_names == other.node_names
            and self.machines == other.machines
            and self.edge_grouping == other.edge_grouping
            and all(
                np.array_equal(getattr(self, name), getattr(other, name))
                for name in (
                    "node_job", "node_kind", "edge_source", "edge_target",
                    "instance_node", "instance_index",
                )
            )
        )  # fmt: skip


class _Builder:
    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.known: set[str] = set()
        self.names: list[str] = []
        self.node_job: list[int] = []
        self.kinds: list[int] = []
        self.edges: list[tuple[int, int, Grouping]] = []
        self.instances: list[tuple[int, int]] = []

    def add(self, job: Job, instances: Mapping[str, int | Sequence[int]] | None) -> None:
        if job.id in self.known:
            raise InvalidRecording(f"The job {job.id!r} is there twice.", "Name each job once.")
        kinds = dict(job.nodes())
        if len(job.order) != len(kinds):
            raise InvalidRecording(f"The job {job.id!r} has a cycle.", "Validate it first.")
        # Sources first: a Kahn order from the sources already is that, for jobs that are valid.
        row: dict[str, int] = {}
        for name in job.order:
            row[name] = len(self.names)
            self.names.append(name)
            self.node_job.append(len(self.jobs))
            self.kinds.append(KINDS.index(kinds[name]))
        self.edges += [(row[e.source], row[e.target], e.grouping) for e in _sorted(job, row)]
        wanted = {o.name: o.parallelism.initial for o in job.operators} | dict(instances or {})
        if strange := set(wanted) - set(row):
            raise InvalidRecording(f"{job.id} has no operator {min(strange)!r}.")
        for name in job.order:
            which = wanted.get(name, 0)
            indices = range(which) if isinstance(which, int | np.integer) else sorted(which)
            if len(set(indices)) != len(indices) or min(indices, default=0) < 0:
                raise InvalidRecording(f"{job.id}: {name!r} has an instance twice, or below 0.")
            self.instances += [(row[name], index) for index in indices]
        self.jobs.append(job.id)
        self.known.add(job.id)

    def build(self, machines: tuple[str, ...]) -> Layout:
        edges = np.array([(s, t) for s, t, _ in self.edges], dtype=np.int64).reshape(-1, 2)
        instances = np.array(self.instances, dtype=np.int64).reshape(-1, 2)
        return Layout(
            jobs=tuple(self.jobs),
            node_names=tuple(self.names),
            node_job=np.array(self.node_job, dtype=np.int64),
            node_kind=np.array(self.kinds, dtype=np.int64),
            edge_source=edges[:, 0].copy(),
            edge_target=edges[:, 1].copy(),
            edge_grouping=tuple(grouping for _, _, grouping in self.edges),
            instance_node=instances[:, 0].copy(),
            instance_index=instances[:, 1].copy(),
            machines=machines,
        )


def _sorted(job: Job, row: Mapping[str, int]) -> list[Edge]:
    return sorted(job.edges, key=lambda edge: (row[edge.source], row[edge.target]))
