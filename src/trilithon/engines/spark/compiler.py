"""Compiles a job to a chain of Spark stages, or says why this engine cannot run it.

Pure: needs neither Spark nor Kafka. `frame.py` builds the query of a chain, `start.py` runs it.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Edge, Grouping, Job, Operator, Sink, Source, Table
from trilithon.model.validation import edge_paths

# The Kafka producer's default for max.request.size.
DEFAULT_REQUEST_BYTES: Final = 2**20
# How many characters of a value a dead letter has, and what it has beside them.
_MOST_CHARS: Final = 2**16
_LEAST_CHARS: Final = 100
_LETTER_BYTES: Final = 8192
# The probe's routing tables name at most this many tasks.
MAX_TASKS: Final = 256

# Problem codes of jobs that this engine cannot run, beside those of the model and of job files.
CODES: Final[dict[str, str]] = {
    "BROADCAST_EDGE": "an edge that sends each record to all instances, which Spark cannot do",
    "CUT_NEEDED": "streams that fan out or merge in a job: split it into jobs linked by topics",
    "MISSING_TOPIC": "a topic that Kafka does not have",
    "NO_OPERATOR": "a sink that reads a source directly",
    "OPTION_NOT_SUPPORTED": "an option that real-time mode does not support",
    "SINK_OPTIONS_DIFFER": "sinks of one job with different options of the Kafka writer",
    "SPARK_REFUSED": "an operator that Spark's own analysis refuses",
    "STATEFUL_OPERATOR": "an operator that keeps state, which this engine does not support yet",
    "TABLE_FILE": "a table in a file; this engine needs its rows in the job",
    "TABLE_ROWS": "rows of a table that do not fit its schema",
    "TOPIC_WRITTEN_TWICE": "two sinks that write to the same topic",
    "TOO_MANY_TASKS": "an operator with more tasks than a routing table can name",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """The tasks of one Spark stage: all readers of the sources, or one operator."""

    name: str
    tasks: int


@dataclass(frozen=True)
class Chain:
    """A linear job: a union of sources, a line of operators, sinks at its end."""

    job: Job
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    sinks: tuple[Sink, ...]
    readers: tuple[int, ...]
    # Kafka's partitions by topic when the chain was planned: those that it reads.
    partitions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The largest record that each topic takes, as far as known.
    record_limits: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """From source to sink. The readers of all sources are one stage: a union."""
        reading = Stage("+".join(source.name for source in self.sources), sum(self.readers))
        return (reading, *(Stage(o.name, o.parallelism.max) for o in self.operators))

    @property
    def names(self) -> tuple[str, ...]:
        """The stages' names, in the order in which the probe numbers them."""
        return tuple(stage.name for stage in self.stages)

    @property
    def tasks_per_stage(self) -> tuple[int, ...]:
        return tuple(stage.tasks for stage in self.stages)

    @property
    def first_reader(self) -> dict[str, int]:
        """The index of each source's first task in the readers' stage."""
        first: dict[str, int] = {}
        index = 0
        for source, readers in zip(self.sources, self.readers, strict=True):
            first[source.name] = index
            index += readers
        return first

    def edges_into(self, operator: Operator) -> tuple[Edge, ...]:
        return self.job.parents[operator.name]

    def table(self, name: str) -> Table:
        return next(table for table in self.job.tables if table.name == name)

    def path(self, operator: Operator) -> str:
        return f"operators[{self.job.operators.index(operator)}]"

    @property
    def writer_options(self) -> dict[str, str]:
        """The sinks' options for Spark's Kafka writer; the topic is a column instead."""
        return {name: value for name, value in self.sinks[0].options if name != "topic"}

    @property
    def largest_record(self) -> int:
        """The bytes of the largest record that all sinks take, uncompressed."""
        topics = (self._record_limit(sink.topic) for sink in self.sinks)
        return min(self._request_limit, *topics)

    @property
    def dead_letter_chars(self) -> int:
        """How much of a value a dead letter may have. JSON writes a character with up to six
        bytes.
        """
        topic = self.job.dead_letter_topic
        limit = self._request_limit if topic is None else self._record_limit(topic)
        return max(_LEAST_CHARS, min(_MOST_CHARS, (limit - _LETTER_BYTES) // 6))

    @property
    def _request_limit(self) -> int:
        return int(self.writer_options.get("kafka.max.request.size", DEFAULT_REQUEST_BYTES))

    def _record_limit(self, topic: str) -> int:
        return min(self._request_limit, self.record_limits.get(topic, DEFAULT_REQUEST_BYTES))


def plan_chain(
    job: Job,
    partitions: Mapping[str, int] | None = None,
    topics: Mapping[str, int] | None = None,
    record_limits: Mapping[str, int] | None = None,
) -> Chain:
    """The chain of a valid job. Raises `InvalidJob` with every reason why it cannot run here.

    `partitions` are Kafka's, by source, and `topics` the same by topic; without them those in the
    job's file count, or 1.
    `record_limits` are the bytes of the largest record that each topic takes.
    """
    if problems := tuple(unsupported(job)):
        raise InvalidJob(problems, job.id)
    actual = partitions or {}
    return Chain(
        job=job,
        sources=job.sources,
        operators=tuple(job.operator(name) for name in job.order if name in _operators(job)),
        sinks=job.sinks,
        readers=tuple(actual.get(s.name, s.partitions or 1) for s in job.sources),
        partitions=topics or {},
        record_limits=record_limits or {},
    )


def unsupported(job: Job) -> Iterator[Problem]:
    """Every reason why this engine cannot run a valid job, each with an alternative."""
    yield from _edges(job)
    yield from _sources(job)
    for i, operator in enumerate(job.operators):
        yield from _operator(operator, f"operators[{i}]")
    yield from _tables(job)
    yield from _sinks(job)


def _operators(job: Job) -> set[str]:
    return {operator.name for operator in job.operators}


def _sources(job: Job) -> Iterator[Problem]:
    types = {field.name.lower(): field for field in job.sources[0].columns}
    for i, source in enumerate(job.sources):
        for field in source.columns:
            first = types.get(field.name.lower(), field)
            if first.type != field.type:
                yield Problem(
                    "COLUMNS_DIFFER",
                    f"sources[{i}].schema",
                    f"The column {field.name!r} is {field.type} here and {first.type} in "
                    f"{job.sources[0].name!r}: a union needs the same type in all sources.",
                    "Give it the same type in both.",
                )
        if "minPartitions" in dict(source.options):
            yield Problem(
                "OPTION_NOT_SUPPORTED",
                f"sources[{i}].options.minPartitions",
                "Real-time mode has one reader for each partition of a topic.",
                "Leave the option out, and give the topic more partitions if reading is the limit.",
            )
        if dict(source.options).get("failOnDataLoss", "true").lower() == "false":
            yield Problem(
                "OPTION_NOT_SUPPORTED",
                f"sources[{i}].options.failOnDataLoss",
                "In real-time mode Spark does not skip records that Kafka no longer has: the job "
                "would stop at them all the same.",
                "Leave the option out. If records expire before the job reads them, give the topic "
                "a longer retention, or delete the job and submit it again.",
            )


def _edges(job: Job) -> Iterator[Problem]:
    """In a chain the first operator reads sources only, each other operator reads the one before
    it, and all sinks read the last.
    """
    operators, sources = _operators(job), {source.name for source in job.sources}
    sinks = {sink.name for sink in job.sinks}
    readers: dict[str, list[str]] = {}
    for edge, path in zip(job.edges, edge_paths(job), strict=True):
        readers.setdefault(edge.source, []).append(edge.target)
        if edge.grouping is Grouping.BROADCAST:
            yield Problem(
                "BROADCAST_EDGE",
                path,
                f"{edge.target!r} gets every record of {edge.source!r} in all its instances: "
                "a Spark shuffle sends a record to one task.",
                "Use shuffle or by_key; join with a table for data that all instances need.",
            )
        if edge.source in sources and edge.target in sinks:
            yield Problem(
                "NO_OPERATOR",
                path,
                f"The sink {edge.target!r} reads the source {edge.source!r} without an operator "
                "between them.",
                "Put an operator between them: one with `select: ['*']` copies.",
            )
    for i, operator in enumerate(job.operators):
        into = [edge.source for edge in job.parents[operator.name]]
        if len(into) > 1 and not set(into) <= sources:
            yield _cut(
                f"operators[{i}].inputs",
                f"{', '.join(into)} merge in {operator.name!r}: Spark merges only sources.",
                f"Let each write to a topic, and let {operator.name!r} read these topics "
                "in a separate job.",
            )
    for name, targets in readers.items():
        if len(targets) > 1 and not (name in operators and set(targets) <= sinks):
            place = (
                [s.name for s in job.sources]
                if name in sources
                else [o.name for o in job.operators]
            )
            yield _cut(
                f"{'sources' if name in sources else 'operators'}[{place.index(name)}]",
                f"{name!r} is read by {', '.join(targets)}: a query has one line of operators.",
                f"Split the job: let {name!r} write to a topic, and let each of the others read it "
                "in a separate job.",
            )
    yield from _one_line(job, sources)


def _one_line(job: Job, sources: set[str]) -> Iterator[Problem]:
    """Reports several separate lines of operators; fan-outs and merges are reported elsewhere."""
    first = [
        operator.name
        for operator in job.operators
        if any(edge.source in sources for edge in job.parents[operator.name])
    ]
    if len(first) > 1:
        yield _cut(
            "operators",
            f"{', '.join(first)} each begin a line of operators: a query has one.",
            "Write one job per line.",
        )


def _cut(path: str, message: str, hint: str) -> Problem:
    return Problem("CUT_NEEDED", path, message, hint)


def _operator(operator: Operator, path: str) -> Iterator[Problem]:
    if operator.work.stateful:
        part = "aggregate" if operator.work.aggregate else "deduplicate"
        yield Problem(
            "STATEFUL_OPERATOR",
            f"{path}.{part}",
            f"{operator.name!r} keeps state; this engine runs stateless operators only.",
            "Write the rows to a topic and count them in Spark's own Structured Streaming.",
        )
    if operator.parallelism.max > MAX_TASKS:
        yield Problem(
            "TOO_MANY_TASKS",
            f"{path}.parallelism",
            f"{operator.name!r} has {operator.parallelism.max} tasks; the limit is {MAX_TASKS}.",
            "Lower `max`, for example to 8: idle tasks make the pause between batches longer.",
        )


def _tables(job: Job) -> Iterator[Problem]:
    for i, table in enumerate(job.tables):
        if table.rows is None:
            yield Problem(
                "TABLE_FILE",
                f"tables[{i}].path",
                f"The table {table.name!r} is in a file, which this engine does not read yet.",
                "Give its `rows` in the job.",
            )


def _sinks(job: Job) -> Iterator[Problem]:
    def writer(sink: Sink) -> dict[str, str]:
        return {name: value for name, value in sink.options if name != "topic"}

    writers: dict[str, Sink] = {}
    for i, sink in enumerate(job.sinks):
        if (first := writers.setdefault(sink.topic, sink)) is not sink:
            yield Problem(
                "TOPIC_WRITTEN_TWICE",
                f"sinks[{i}].options.topic",
                f"{sink.name!r} and {first.name!r} both write to the topic {sink.topic!r}: every "
                "record would be in it twice.",
                f"Leave {sink.name!r} out, or give it a topic of its own.",
            )
        if writer(sink) != writer(job.sinks[0]):
            yield Problem(
                "SINK_OPTIONS_DIFFER",
                f"sinks[{i}].options",
                f"{sink.name!r} and {job.sinks[0].name!r} share one Kafka writer but have "
                "different options.",
                "Give all sinks the same options besides the topic.",
            )
