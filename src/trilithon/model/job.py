"""Defines a job: a graph of sources, operators and sinks, with its intent and its bounds.

A job is plain data, independent of any engine. Expressions are text here; `trilithon.spec` checks
them when it reads a job.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from trilithon.model.intent import EdgeName, Intent
from trilithon.model.profile import Profile

DEFAULT_TASKS = 8
DEFAULT_BATCH_S = 300.0
# What a Kafka record has beside its value, with the types that Spark's Kafka source gives them.
METADATA_TYPES = {
    "key": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}


class Grouping(StrEnum):
    """How the records of an edge are distributed over the receiving instances."""

    SHUFFLE = "shuffle"
    BY_KEY = "by_key"
    BROADCAST = "broadcast"


class HeldTasks(StrEnum):
    """How many tasks an operator without state holds on an engine where instances are tasks."""

    ALL = "all"  # those of its largest parallelism, from the start
    FOLLOW = "follow"  # they follow the instances in use; more need a restart


class NodeKind(StrEnum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Field:
    """A column with its Spark type, as in `user STRING`."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True, slots=True)
class Source:
    """A Kafka topic whose values are JSON with a given schema."""

    name: str
    schema: tuple[Field, ...]
    options: tuple[tuple[str, str], ...]
    partitions: int | None = None
    # Columns beside those of the schema, each with the part of the Kafka record that it holds.
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> tuple[Field, ...]:
        """The columns of the schema, then those of the metadata."""
        more = (Field(column, METADATA_TYPES[part]) for column, part in self.metadata)
        return (*self.schema, *more)

    @property
    def committed_only(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return dict(self.options).get("kafka.isolation.level") == "read_committed"

    @property
    def topics(self) -> tuple[str, ...]:
        subscribed = dict(self.options).get("subscribe", "")
        return tuple(topic.strip() for topic in subscribed.split(",") if topic.strip())


@dataclass(frozen=True, slots=True)
class Sink:
    """A Kafka topic to which rows are written as JSON."""

    name: str
    options: tuple[tuple[str, str], ...]
    weight: float = 1.0
    # An expression over the row; without it the records have no key.
    key: str | None = None

    @property
    def topic(self) -> str:
        return dict(self.options).get("topic", "")


@dataclass(frozen=True, slots=True)
class Table:
    """A small table to join with, read once: rows in the job file, or the path of a file."""

    name: str
    schema: tuple[Field, ...]
    rows: tuple[tuple[object, ...], ...] | None = None
    path: str | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """With a table of the job, or with the latest row of each key of a broadcast input."""

    table: str
    on: tuple[str, ...]
    how: str = "inner"


@dataclass(frozen=True, slots=True)
class Watermark:
    event_time: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class TimeWindow:
    time_column: str
    duration_s: float
    slide_s: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What an operator does to its rows. The parts apply in the order of these fields."""

    watermark: Watermark | None = None
    join: Join | None = None
    where: str | None = None
    explode: tuple[tuple[str, str], ...] = ()
    select: tuple[str, ...] = ()
    deduplicate: tuple[str, ...] = ()
    group_by: tuple[str, ...] = ()
    window: TimeWindow | None = None
    aggregate: tuple[tuple[str, str], ...] = ()

    @property
    def stateful(self) -> bool:
        return bool(self.aggregate or self.deduplicate)


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How many instances an operator starts with, and the bounds for rescaling it. Without `tasks`
    the engine chooses how many tasks the operator holds.
    """

    initial: int = 1
    min: int = 1
    max: int = DEFAULT_TASKS
    tasks: HeldTasks | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    work: Work = field(default_factory=Work)
    parallelism: Parallelism = field(default_factory=Parallelism)
    profile: Profile | None = None

    @property
    def tasks(self) -> int:
        """The most tasks that it holds while it runs: those of its largest parallelism. State
        cannot move then: an operator that keeps it has as many tasks as it starts with.
        """
        return self.parallelism.initial if self.work.stateful else self.parallelism.max


@dataclass(frozen=True, slots=True)
class Edge:
    """The stream from one node to the next."""

    source: str
    target: str
    grouping: Grouping = Grouping.SHUFFLE
    key: tuple[str, ...] = ()

    @property
    def name(self) -> EdgeName:
        return EdgeName(self.source, self.target)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on how a policy may change the job."""

    max_instances: int | None = None
    preserve_order: bool = False
    fixed: tuple[str, ...] = ()


def tenant_of(job: str) -> str:
    """The tenant in the id of a job (`Job.id`)."""
    return job.partition("/")[0]


@dataclass(frozen=True)
class Job:
    """A complete streaming job of a tenant."""

    tenant: str
    name: str
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    sinks: tuple[Sink, ...]
    intent: Intent = field(default_factory=Intent)
    bounds: Bounds = field(default_factory=Bounds)
    tables: tuple[Table, ...] = ()
    batch_s: float = DEFAULT_BATCH_S
    dead_letter_topic: str | None = None

    @property
    def id(self) -> str:
        """Unique over all tenants: `tenant/name`."""
        return f"{self.tenant}/{self.name}"

    def can_spread(self, operator: str) -> bool:
        """Whether records of one key may go to several instances of an operator: it keeps no state,
        and the job no order.
        """
        return not (self.operator(operator).work.stateful or self.bounds.preserve_order)

    def broadcast_table(self, operator: str) -> Edge | None:
        """The edge with whose latest rows an operator joins its other records; None if it joins
        with a table of the file, or not at all.
        """
        join = self.operator(operator).work.join
        return next(
            (
                edge
                for edge in self.parents[operator]
                if edge.grouping is Grouping.BROADCAST and join and join.table == edge.source
            ),
            None,
        )

    def nodes(self) -> Iterator[tuple[str, NodeKind]]:
        """Every node by name, in the order of the file."""
        yield from ((source.name, NodeKind.SOURCE) for source in self.sources)
        yield from ((operator.name, NodeKind.OPERATOR) for operator in self.operators)
        yield from ((sink.name, NodeKind.SINK) for sink in self.sinks)

    @cached_property
    def source_names(self) -> frozenset[str]:
        return frozenset(source.name for source in self.sources)

    @cached_property
    def parents(self) -> dict[str, tuple[Edge, ...]]:
        """The edges into each node, in the order of the file."""
        into: dict[str, list[Edge]] = {name: [] for name, _ in self.nodes()}
        for edge in self.edges:
            into.setdefault(edge.target, []).append(edge)
        return {name: tuple(edges) for name, edges in into.items()}

    @cached_property
    def children(self) -> dict[str, tuple[Edge, ...]]:
        """The edges out of each node, in the order of the file."""
        out: dict[str, list[Edge]] = {name: [] for name, _ in self.nodes()}
        for edge in self.edges:
            out.setdefault(edge.source, []).append(edge)
        return {name: tuple(edges) for name, edges in out.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The nodes in topological order, sources first. Nodes on a cycle are left out."""
        nodes = dict(self.nodes())
        pending = {name: sum(edge.source in nodes for edge in self.parents[name]) for name in nodes}
        ready = deque(name for name, parents in pending.items() if parents == 0)
        order: list[str] = []
        while ready:
            name = ready.popleft()
            order.append(name)
            for edge in self.children[name]:
                if edge.target not in pending:
                    continue
                pending[edge.target] -= 1
                if pending[edge.target] == 0:
                    ready.append(edge.target)
        return tuple(order)

    def operator(self, name: str) -> Operator:
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def topics(self) -> tuple[tuple[str, ...], ...]:
        """The topics of each source, in the order of the sources: those whose offsets a checkpoint
        holds.
        """
        return tuple(source.topics for source in self.sources)

    @property
    def instances(self) -> int:
        """The slots that the job needs at its start."""
        return sum(operator.parallelism.initial for operator in self.operators)

    @property
    def tasks(self) -> int:
        """The most tasks that the job holds while it runs: those of each operator, and a reader per
        source partition (1 where the number is not given).
        """
        readers = sum(source.partitions or 1 for source in self.sources)
        return readers + sum(operator.tasks for operator in self.operators)
