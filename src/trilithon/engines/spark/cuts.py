"""Cuts a job's graph into parts that Spark's real-time mode can run, linked by internal topics.

Pure. A real-time query is a line: it unites raw Kafka sources, runs one operator after the other,
each with one reader, and has one writer at its end. So an edge between two operators stays inside a
query only if it is the only edge out of the first and the only edge into the second. All other
edges between operators are cut: the part before the cut writes to an internal topic, the part
behind it reads that topic. These are the fewest cuts that leave lines.

A source that several operators read needs no internal topic: each part reads the source's own
topic. The first of these parts counts for the source; for the others the edge is a cut, too, so
that what they have not read yet is the queue of the operator that reads it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from trilithon.engines.spark.held_tasks import partitions_before, tasks_at_start
from trilithon.model.allocation import Allocation
from trilithon.model.job import Edge, Field, Grouping, Job, Operator, Sink, Source

# How the names of internal topics begin.
TOPIC_PREFIX: Final = "trilithon."
# No name of a job, an operator, a source or a sink has these characters.
_PART_MARK: Final = "~"
_CUT_MARK: Final = "."
Share = TypeVar("Share")


@dataclass(frozen=True, slots=True)
class Cut:
    """An edge that a topic carries from one part of a job to another."""

    edge: Edge
    # Of the topic: as many as the operator behind it has tasks, if their number never changes.
    partitions: int
    # The first node has other readers: copies of one record need ids of their own.
    one_of_several: bool
    # The source whose own topics carry the edge; None for an internal topic.
    source: Source | None = None
    # An aggregate is in the part before it: each row has the values of its group after a record,
    # and a replay may write other values for the same record.
    aggregated: bool = False
    # The operator behind it keeps the latest row of each value of these columns, in every instance.
    table_key: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name among the sinks of the part before it and the sources of the part behind it."""
        return cut_name(self.edge)

    @property
    def copied(self) -> bool:
        """Whether each instance of the operator behind it gets every record."""
        return self.edge.grouping is Grouping.BROADCAST

    @property
    def internal(self) -> bool:
        return self.source is None


@dataclass(frozen=True)
class Part:
    """A line of operators that one query runs: what it reads, what it does, what it writes."""

    sources: tuple[Source, ...]
    reads: tuple[Cut, ...]
    operators: tuple[Operator, ...]
    sinks: tuple[Sink, ...]
    writes: tuple[Cut, ...]

    @property
    def name(self) -> str:
        """Its first operator: no other part has it."""
        return self.operators[0].name

    @property
    def tasks(self) -> int:
        """A reader per partition of what it reads, and the tasks of its operators at the start."""
        return self.readers + sum(tasks_at_start(operator) for operator in self.operators)

    @property
    def most_tasks(self) -> int:
        """The tasks that it holds if all operators have all their instances."""
        return self.readers + sum(operator.tasks for operator in self.operators)

    @property
    def readers(self) -> int:
        own = sum(source.partitions or 1 for source in self.sources)
        return own + sum(cut.partitions for cut in self.reads)


@dataclass(frozen=True)
class PlanGraph:
    """The parts of a job, each before those that read from it."""

    job: Job
    parts: tuple[Part, ...]

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The edges that internal topics carry."""
        return tuple(cut for part in self.parts for cut in part.writes)

    @property
    def tasks(self) -> int:
        """The Spark tasks that the whole job holds at its start."""
        return sum(part.tasks for part in self.parts)

    def part_id(self, part: Part) -> str:
        """The name of the part's query. A job of one part has no other name than its own."""
        if len(self.parts) == 1:
            return self.job.id
        return f"{self.job.id}{_PART_MARK}{part.name}"


@dataclass(frozen=True)
class PartJob(Job):
    """A part as a job of its own: internal topics are sources and sinks like others."""

    whole: Job | None = None
    # By the name of the source or sink.
    reads: Mapping[str, Cut] = field(default_factory=dict)
    writes: Mapping[str, Cut] = field(default_factory=dict)


def cut_name(edge: Edge) -> str:
    return f"{edge.source}{_CUT_MARK}{edge.target}"


def is_cut(node: str) -> bool:
    """Whether a source or a sink of a part stands for a cut edge."""
    return _CUT_MARK in node


def job_of(part_id: str) -> str:
    """The job to which a part belongs."""
    return part_id.partition(_PART_MARK)[0]


def is_part(part_id: str) -> bool:
    """Whether it names one of several parts of a job."""
    return _PART_MARK in part_id


def cut_into_parts(job: Job) -> PlanGraph:
    """The parts of a valid job, with the fewest internal topics."""
    operators = {operator.name: operator for operator in job.operators}
    inner = {edge.name for edge in job.edges if _stays_inside(job, edge, operators)}
    first_reader = _first_readers(job, operators)
    lines: list[list[Operator]] = []
    line_of: dict[str, list[Operator]] = {}
    for name in job.order:
        if name not in operators:
            continue
        before = [edge.source for edge in job.parents[name] if edge.name in inner]
        line = line_of[before[0]] if before else []
        if not before:
            lines.append(line)
        line.append(operators[name])
        line_of[name] = line
    parts = (_part(job, line, line_of, operators, first_reader) for line in lines)
    return PlanGraph(job, _in_order(tuple(parts)))


def _stays_inside(job: Job, edge: Edge, operators: Mapping[str, Operator]) -> bool:
    both = edge.source in operators and edge.target in operators
    return both and len(job.children[edge.source]) == 1 and len(job.parents[edge.target]) == 1


def _first_readers(job: Job, operators: Mapping[str, Operator]) -> dict[str, str]:
    """Per source the operator whose part counts for it."""
    return {
        source.name: next(
            (edge.target for edge in job.children[source.name] if edge.target in operators), ""
        )
        for source in job.sources
    }


def _part(
    job: Job,
    line: list[Operator],
    line_of: Mapping[str, list[Operator]],
    operators: Mapping[str, Operator],
    first_reader: Mapping[str, str],
) -> Part:
    first, last = line[0], line[-1]
    sources = {source.name: source for source in job.sources}
    reads, own = [], []
    for edge in job.parents[first.name]:
        if edge.source not in sources:
            reads.append(_cut(job, edge, operators, line_of[edge.source]))
        elif first_reader[edge.source] == first.name:
            own.append(sources[edge.source])
        else:
            source = sources[edge.source]
            cut = _cut(job, edge, operators, ())
            reads.append(replace(cut, source=source, partitions=source.partitions or 1))
    sinks = {sink.name: sink for sink in job.sinks}
    out = job.children[last.name]
    return Part(
        tuple(own),
        tuple(reads),
        tuple(line),
        tuple(sinks[edge.target] for edge in out if edge.target in sinks),
        tuple(_cut(job, edge, operators, line) for edge in out if edge.target in operators),
    )


def _cut(
    job: Job, edge: Edge, operators: Mapping[str, Operator], before: Iterable[Operator]
) -> Cut:
    """The cut of an edge behind a line of operators."""
    readers = [other for other in job.children[edge.source] if other.target in operators]
    target = operators[edge.target]
    aggregated = any(operator.work.aggregate for operator in before)
    table_key: tuple[str, ...] = ()
    if target.work.join is not None and edge == job.broadcast_table(target.name):
        table_key = target.work.join.on
    # One partition keeps the order of rows, and each is read once for all instances.
    partitions = 1 if table_key else partitions_before(target)
    return Cut(edge, partitions, len(readers) > 1, aggregated=aggregated, table_key=table_key)


def _in_order(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Each part after all that it reads from."""
    last = {part.operators[-1].name: part for part in parts}
    ordered: list[Part] = []

    def add(part: Part) -> None:
        if part not in ordered:
            for cut in part.reads:
                if cut.internal:
                    add(last[cut.edge.source])
            ordered.append(part)

    for part in parts:
        add(part)
    return tuple(ordered)


def part_job(
    graph: PlanGraph,
    part: Part,
    topic_of: Callable[[Cut], str],
    columns: Mapping[str, tuple[Field, ...]],
) -> PartJob:
    """A part as a job, with the topics of its cuts and the columns that each carries."""
    job = graph.job
    sources = tuple(_source(cut, topic_of, columns) for cut in part.reads)
    sinks = tuple(Sink(cut.name, (("topic", topic_of(cut)),)) for cut in part.writes)
    first, last = part.operators[0].name, part.operators[-1].name
    read = {cut.edge.name: cut.name for cut in part.reads}
    inside = {operator.name for operator in part.operators}
    edges = [
        replace(edge, source=read.get(edge.name, edge.source))
        for operator in part.operators
        for edge in job.parents[operator.name]
    ]
    edges += [edge for edge in job.children[last] if edge.target not in inside]
    written = {cut.edge.target: cut.name for cut in part.writes}
    edges = [
        Edge(last, written[edge.target]) if edge.source == last and edge.target in written else edge
        for edge in edges
    ]
    return PartJob(
        job.tenant,
        f"{job.name}{_PART_MARK}{first}",
        (*part.sources, *sources),
        part.operators,
        tuple(edges),
        (*part.sinks, *sinks),
        intent=job.intent,
        bounds=job.bounds,
        tables=job.tables,
        batch_s=job.batch_s,
        dead_letter_topic=job.dead_letter_topic,
        whole=job,
        reads={cut.name: cut for cut in part.reads},
        writes={cut.name: cut for cut in part.writes},
    )


def _source(
    cut: Cut, topic_of: Callable[[Cut], str], columns: Mapping[str, tuple[Field, ...]]
) -> Source:
    if cut.source is not None:
        return replace(cut.source, name=cut.name)
    options = (("subscribe", topic_of(cut)), ("startingOffsets", "earliest"))
    return Source(cut.name, columns.get(cut.edge.source, ()), options, cut.partitions)


def part_allocation(allocation: Allocation, part: Job) -> Allocation:
    """The share of a part in the allocation of its job."""
    names = {operator.name for operator in part.operators}

    def of_part(facet: Mapping[str, Share]) -> dict[str, Share]:
        return {name: value for name, value in facet.items() if name in names}

    return replace(
        allocation,
        job=part.id,
        parallelism=of_part(allocation.parallelism),
        weights=of_part(allocation.weights),
        placement=of_part(allocation.placement),
        groups=of_part(allocation.groups),
        avoided=of_part(allocation.avoided),
    )


def ids_clash(job: Job, source: Source) -> bool:
    """Whether another source of the job reads one of its topics: a topic and an offset then do not
    name one record.
    """
    others: Iterable[Source] = (other for other in job.sources if other.name != source.name)
    return any(set(other.topics) & set(source.topics) for other in others)
