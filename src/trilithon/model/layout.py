"""Defines the layout of a snapshot: the rows of its tables and how they are connected.

A layout changes when a job starts, ends or is rescaled, and all snapshots in between share it.
Nodes are ordered by job and topologically within it, sources first; instances are ordered by node.
Measures rely on this order.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from trilithon.errors import InvalidRecording
from trilithon.model.columns import Ints
from trilithon.model.job import Grouping, Job, NodeKind

NODE_KINDS = (NodeKind.SOURCE, NodeKind.OPERATOR, NodeKind.SINK)
InstanceKey = tuple[str, str, int]
NodeKey = tuple[str, str]
EdgeKey = tuple[str, str, str]


# Lets `np.concatenate` work, and keeps the type, when there are no jobs.
_EMPTY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class JobLayout:
    """The rows of one job, with its nodes counted from 0."""

    job: str
    names: tuple[str, ...]
    kinds: Ints
    edge_source: Ints
    edge_target: Ints
    groupings: tuple[Grouping, ...]
    instance_node: Ints
    instance_index: Ints

    @classmethod
    def of(
        cls, job: Job, instances: Mapping[str, int | Sequence[int]] | None = None
    ) -> "JobLayout":
        kinds = dict(job.nodes())
        if len(job.order) != len(kinds):
            raise InvalidRecording(
                f"The graph of the job {job.id!r} has a cycle.", "Remove one of the edges on it."
            )
        # For a valid job, Kahn's algorithm puts the sources first.
        row = {name: i for i, name in enumerate(job.order)}
        edges = sorted(job.edges, key=lambda edge: (row[edge.source], row[edge.target]))
        wanted = {o.name: o.parallelism.initial for o in job.operators} | dict(instances or {})
        if unknown := set(wanted) - set(row):
            raise InvalidRecording(f"The job {job.id} has no operator {min(unknown)!r}.")
        instance_rows: list[tuple[int, int]] = []
        for name in job.order:
            count_or_indices = wanted.get(name, 0)
            indices = (
                range(count_or_indices)
                if isinstance(count_or_indices, int | np.integer)
                else sorted(count_or_indices)
            )
            if len(set(indices)) != len(indices) or min(indices, default=0) < 0:
                raise InvalidRecording(
                    f"The operator {name!r} of {job.id} has a duplicate or negative index.",
                    f"Its indices are: {', '.join(map(str, indices))}.",
                )
            instance_rows += [(row[name], index) for index in indices]
        return cls(
            job=job.id,
            names=job.order,
            kinds=_ints(NODE_KINDS.index(kinds[name]) for name in job.order),
            edge_source=_ints(row[edge.source] for edge in edges),
            edge_target=_ints(row[edge.target] for edge in edges),
            groupings=tuple(edge.grouping for edge in edges),
            instance_node=_ints(node for node, _ in instance_rows),
            instance_index=_ints(index for _, index in instance_rows),
        )


@dataclass(frozen=True, eq=False)
class Layout:
    """The rows of nodes, edges, instances and machines, by number and by name."""

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
        """Build the layout of jobs, by default with their initial parallelism.

        `instances` gives, per job and operator, the number of instances or their indices.
        """
        wanted = instances or {}
        return cls.join([JobLayout.of(job, wanted.get(job.id)) for job in jobs], machines)

    @classmethod
    def join(cls, parts: Sequence["JobLayout"], machines: Iterable[str] = ()) -> "Layout":
        """Join the layouts of single jobs: of a thousand jobs, usually one has changed."""
        names = tuple(part.job for part in parts)
        if len(set(names)) < len(names):
            duplicate = next(name for name, count in Counter(names).items() if count > 1)
            raise InvalidRecording(f"The job {duplicate!r} occurs twice.", "List each job once.")
        sizes = [len(part.names) for part in parts]
        first = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

        def shifted(column: str) -> Ints:
            columns = [getattr(part, column) for part in parts]
            offset = np.repeat(first[:-1], [len(values) for values in columns])
            return np.concatenate([*columns, _EMPTY]) + offset

        return cls(
            jobs=names,
            node_names=tuple(chain.from_iterable(part.names for part in parts)),
            node_job=np.repeat(np.arange(len(parts), dtype=np.int64), sizes),
            node_kind=np.concatenate([*(part.kinds for part in parts), _EMPTY]),
            edge_source=shifted("edge_source"),
            edge_target=shifted("edge_target"),
            edge_grouping=tuple(chain.from_iterable(part.groupings for part in parts)),
            instance_node=shifted("instance_node"),
            instance_index=np.concatenate([*(part.instance_index for part in parts), _EMPTY]),
            machines=tuple(machines),
        )

    @cached_property
    def source_nodes(self) -> Ints:
        return np.flatnonzero(self.node_kind == NODE_KINDS.index(NodeKind.SOURCE))

    @cached_property
    def sink_nodes(self) -> Ints:
        return np.flatnonzero(self.node_kind == NODE_KINDS.index(NodeKind.SINK))

    @cached_property
    def operator_nodes(self) -> Ints:
        return np.flatnonzero(self.node_kind == NODE_KINDS.index(NodeKind.OPERATOR))

    @cached_property
    def parallelism(self) -> Ints:
        """Instances per node."""
        return np.bincount(self.instance_node, minlength=len(self.node_names)).astype(np.int64)

    @cached_property
    def first_instance(self) -> Ints:
        """The row of the first instance of each node; for a node without instances, that of the
        next node that has any.
        """
        return np.searchsorted(self.instance_node, np.arange(len(self.node_names))).astype(np.int64)

    @cached_property
    def edges_by_depth(self) -> tuple[Ints, ...]:
        """The rows of the edges, grouped by depth: all edges into a node come in earlier groups
        than the edges out of it. Iterating over the groups visits parents before children, for
        all jobs at once.
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
        return {key: row for row, key in enumerate(self._node_keys)}

    @cached_property
    def _node_keys(self) -> list[NodeKey]:
        # Single numpy numbers are slow; this list is rebuilt whenever a layout changes.
        jobs = self.jobs
        return [
            (jobs[job], name)
            for job, name in zip(self.node_job.tolist(), self.node_names, strict=True)
        ]

    @cached_property
    def edge_row(self) -> dict[EdgeKey, int]:
        keys, names = self._node_keys, self.node_names
        ends = zip(self.edge_source.tolist(), self.edge_target.tolist(), strict=True)
        return {(*keys[source], names[target]): row for row, (source, target) in enumerate(ends)}

    @cached_property
    def instance_row(self) -> dict[InstanceKey, int]:
        keys = self._node_keys
        each = zip(self.instance_node.tolist(), self.instance_index.tolist(), strict=True)
        return {(*keys[node], index): row for row, (node, index) in enumerate(each)}

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

    @cached_property
    def job_row(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.jobs)}

    def job_nodes(self, job: str) -> range:
        """The rows of a job's nodes, which are contiguous."""
        row = self.job_row[job]
        start, stop = np.searchsorted(self.node_job, [row, row + 1])
        return range(int(start), int(stop))

    def same_shape(self, other: "Layout") -> bool:
        """Whether both have the same rows with the same names."""
        return (
            self.jobs == other.jobs
            and self.node_names == other.node_names
            and self.machines == other.machines
            and self.edge_grouping == other.edge_grouping
            and np.array_equal(self.node_job, other.node_job)
            and np.array_equal(self.node_kind, other.node_kind)
            and np.array_equal(self.edge_source, other.edge_source)
            and np.array_equal(self.edge_target, other.edge_target)
            and np.array_equal(self.instance_node, other.instance_node)
            and np.array_equal(self.instance_index, other.instance_index)
        )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)
