"""Compiles a part of a job to a chain of Spark stages, or says why this engine cannot run a job.

Pure: needs neither Spark nor Kafka. `cuts.py` cuts a job into parts, `frame.py` builds the query of
a chain, `start.py` runs it.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from trilithon.engines.spark.cuts import TOPIC_PREFIX, Cut, PartJob, cut_into_parts
from trilithon.engines.spark.held_tasks import tasks_at_start
from trilithon.engines.spark.state_limits import state_behind_state, unsupported_state
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
    "BROADCAST_EDGE": "a broadcast into state, or beside other inputs without a join with it",
    "MISSING_TOPIC": "a topic that Kafka does not have",
    "NO_OPERATOR": "a sink that reads a source directly",
    "OPTION_NOT_SUPPORTED": "an option that real-time mode does not support",
    "RESERVED_TOPIC": "a topic whose name begins like those between the parts of jobs",
    "SINK_OPTIONS_DIFFER": "sinks of one job with different options of the Kafka writer",
    "SPARK_REFUSED": "an operator that Spark's own analysis refuses",
    "STATEFUL_OPERATOR": "a use of state that Spark's real-time mode does not support",
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
    """One part of a job: a union of sources, a line of operators, sinks at its end."""

    job: Job
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    sinks: tuple[Sink, ...]
    readers: tuple[int, ...]
    # Kafka's partitions by topic when the chain was planned: those that it reads.
    partitions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The largest record that each topic takes, as far as known.
    record_limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # The tasks of operators that hold others than at the start of the job.
    tasks: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def whole(self) -> Job:
        """The job to which the part belongs: its file has the paths of problems."""
        whole = self.job.whole if isinstance(self.job, PartJob) else None
        return whole or self.job

    @property
    def reads(self) -> Mapping[str, Cut]:
        """The cuts among the sources, by name."""
        return self.job.reads if isinstance(self.job, PartJob) else {}

    @property
    def writes(self) -> Mapping[str, Cut]:
        """The cuts among the sinks, by name."""
        return self.job.writes if isinstance(self.job, PartJob) else {}

    @property
    def written_cuts(self) -> tuple[tuple[Cut, str], ...]:
        """The cuts among the sinks, with their topics."""
        return tuple((self.writes[s.name], s.topic) for s in self.sinks if s.name in self.writes)

    @property
    def own_sinks(self) -> tuple[Sink, ...]:
        """The sinks of the user."""
        return tuple(sink for sink in self.sinks if sink.name not in self.writes)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """From source to sink. The readers of all sources are one stage: a union."""
        reading = Stage("+".join(source.name for source in self.sources), sum(self.readers))
        return (reading, *(Stage(o.name, self.tasks_of(o)) for o in self.operators))

    @property
    def names(self) -> tuple[str, ...]:
        """The stages' names, in the order in which the probe numbers them."""
        return tuple(stage.name for stage in self.stages)

    @property
    def tasks_per_stage(self) -> tuple[int, ...]:
        return tuple(stage.tasks for stage in self.stages)

    def tasks_of(self, operator: Operator) -> int:
        """The tasks that an operator holds while this query runs."""
        return self.tasks.get(operator.name) or tasks_at_start(operator)

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
        return f"operators[{self.whole.operators.index(operator)}]"

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
    """The chain of a valid job of one part. Raises `InvalidJob` with every reason why it cannot run
    here.

    `partitions` are Kafka's, by source, and `topics` the same by topic; without them those in the
    job's file count, or 1.
    `record_limits` are the bytes of the largest record that each topic takes.
    """
    if not isinstance(job, PartJob):
        check_supported(job)
        if len(cut_into_parts(job).parts) != 1:
            raise ValueError(f"{job.id} has several parts: each has a chain of its own")
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


def check_supported(job: Job) -> None:
    """Raises `InvalidJob` with every reason why this engine cannot run a valid job."""
    if problems := tuple(unsupported(job)):
        raise InvalidJob(problems, job.id)


def unsupported(job: Job) -> Iterator[Problem]:
    """Every reason why this engine cannot run a valid job, each with an alternative."""
    yield from _edges(job)
    yield from _sources(job)
    for i, operator in enumerate(job.operators):
        yield from _operator(operator, f"operators[{i}]")
    yield from state_behind_state(job)
    yield from _tables(job)
    yield from _sinks(job)
    yield from _reserved(job)


def _operators(job: Job) -> set[str]:
    return {operator.name for operator in job.operators}


def _sources(job: Job) -> Iterator[Problem]:
    yield from _united(job)
    for i, source in enumerate(job.sources):
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


def _united(job: Job) -> Iterator[Problem]:
    """Sources that one operator reads are united: a column needs the same type in all of them."""
    sources = {source.name: source for source in job.sources}
    reported: set[tuple[str, str]] = set()
    for operator in job.operators:
        read = [sources[e.source] for e in job.parents[operator.name] if e.source in sources]
        types = {field.name.lower(): field for field in read[0].columns} if read else {}
        for source, field in [(s, f) for s in read for f in s.columns]:
            first = types.get(field.name.lower(), field)
            if first.type != field.type and (source.name, field.name) not in reported:
                reported.add((source.name, field.name))
                yield Problem(
                    "COLUMNS_DIFFER",
                    f"sources[{job.sources.index(source)}].schema",
                    f"The column {field.name!r} is {field.type} here and {first.type} in "
                    f"{read[0].name!r}: a union needs the same type in all sources.",
                    "Give it the same type in both.",
                )


def _edges(job: Job) -> Iterator[Problem]:
    sources, sinks = {source.name for source in job.sources}, {sink.name for sink in job.sinks}
    for edge, path in zip(job.edges, edge_paths(job), strict=True):
        if edge.grouping is Grouping.BROADCAST and edge.target not in sinks:
            yield from _broadcast(job, edge, path, sources)
        if edge.source in sources and edge.target in sinks:
            yield Problem(
                "NO_OPERATOR",
                path,
                f"The sink {edge.target!r} reads the source {edge.source!r} without an operator "
                "between them.",
                "Put an operator between them: one with `select: ['*']` copies.",
            )


def _broadcast(job: Job, edge: Edge, path: str, sources: Collection[str]) -> Iterator[Problem]:
    """What is broadcast is all that an operator reads, or what it joins its other records with."""
    operator, alone = job.operator(edge.target), len(job.parents[edge.target]) == 1
    joined = edge == job.broadcast_table(edge.target)
    if operator.work.stateful:
        message = f"{edge.target!r} keeps state: each record belongs to one instance."
        hint = "Use by_key."
    elif alone and joined:
        message = f"{edge.target!r} has no other input to join with {edge.source!r}."
        hint = "Give it one, or leave out the join."
    elif not alone and not joined:
        message = f"{edge.target!r} gets {edge.source!r} in all instances, beside other records."
        hint = f"Join them: `join: {{table: {edge.source}, on: [...]}}`."
    elif joined and edge.source in sources:
        message = f"{edge.source!r} is a source: its topic has no keys by which to join."
        hint = "Put an operator between them: one with `select: ['*']` copies."
    else:
        return
    yield Problem("BROADCAST_EDGE", path, message, hint)


def _operator(operator: Operator, path: str) -> Iterator[Problem]:
    yield from unsupported_state(operator, path)
    if operator.tasks > MAX_TASKS:
        yield Problem(
            "TOO_MANY_TASKS",
            f"{path}.parallelism",
            f"{operator.name!r} may have {operator.tasks} tasks; the limit is {MAX_TASKS}.",
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


def _reserved(job: Job) -> Iterator[Problem]:
    """Internal topics hold the records of other jobs, perhaps of another tenant."""
    named = [
        *(
            (t, f"sources[{i}].options.subscribe")
            for i, s in enumerate(job.sources)
            for t in s.topics
        ),
        *((sink.topic, f"sinks[{i}].options.topic") for i, sink in enumerate(job.sinks)),
        (job.dead_letter_topic or "", "dead_letter_topic"),
    ]
    for topic, path in named:
        if topic.startswith(TOPIC_PREFIX):
            yield Problem(
                "RESERVED_TOPIC",
                path,
                f"Topics that begin with {TOPIC_PREFIX!r} link the parts of jobs.",
                "Use another topic.",
            )


def _sinks(job: Job) -> Iterator[Problem]:
    def writer(sink: Sink) -> dict[str, str]:
        return {name: value for name, value in sink.options if name != "topic"}

    writers: dict[str, Sink] = {}
    # The sinks of one operator have one writer; a part ends with one operator.
    first_of: dict[str, Sink] = {}
    for i, sink in enumerate(job.sinks):
        if (first := writers.setdefault(sink.topic, sink)) is not sink:
            yield Problem(
                "TOPIC_WRITTEN_TWICE",
                f"sinks[{i}].options.topic",
                f"{sink.name!r} and {first.name!r} both write to the topic {sink.topic!r}: every "
                "record would be in it twice.",
                f"Leave {sink.name!r} out, or give it a topic of its own.",
            )
        shared = [first_of.setdefault(edge.source, sink) for edge in job.parents[sink.name]]
        if differing := [other for other in shared if writer(other) != writer(sink)]:
            yield Problem(
                "SINK_OPTIONS_DIFFER",
                f"sinks[{i}].options",
                f"{sink.name!r} and {differing[0].name!r} share one Kafka writer but have "
                "different options.",
                "Give all sinks of an operator the same options besides the topic.",
            )
