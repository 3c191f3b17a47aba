"""Builds the query of a chain: each source, operator and sink becomes a part of one DataFrame.

    readers of a source ─ route, emit ┐
                                      ├ union ─ shuffle ─ take, work ─ route, emit ─ … ─ sink
    readers of a source ─ route, emit ┘

A record carries a few internal columns beside the user's. A record that fails is not dropped where
it fails, since a query has one writer: it becomes a dead letter, passes the operators untouched and
is written to a topic of its own at the end. `$d` is null as long as a record has not failed.

An internal topic, which carries a cut edge from one part of a job to another, is a sink of the one
query and a source of the other. Its records have the id as key and the origin as a header.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from trilithon.engines.spark import broadcasts, cut_records
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.dead_letters import DeadLetters
from trilithon.engines.spark.expressions import (
    checked_column,
    json_rows,
    named_field,
    try_evaluate,
)
from trilithon.engines.spark.frame_sinks import SinkWriter
from trilithon.engines.spark.frame_sources import SourceReader
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.local_tables import local_table
from trilithon.engines.spark.record_columns import DEAD, ID, ORIGIN, SENDER, STAMP, TASK
from trilithon.engines.spark.record_columns import call_probe as _probe
from trilithon.engines.spark.record_columns import named as _col
from trilithon.engines.spark.record_stream import (
    CARRIED,
    ROW,
    RecordStream,
    carried,
    ddl,
    guarded,
)
from trilithon.engines.spark.stateful import StatefulSteps
from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Edge, Field, Grouping, Join, Operator, Source
from trilithon.spec.sql_expressions import parse_expression

_MATCHED: Final = "$m"
_TRIED: Final = "$x"
_POSITION: Final = "$n"


def build_frame(
    spark: SparkSession,
    chain: Chain,
    kafka: Kafka,
    job: str | None = None,
    read: Callable[[Mapping[str, str]], DataFrame] | None = None,
) -> DataFrame:
    """The chain's query, with the columns that Kafka's writer takes: topic, key, value, headers.

    The probes count it as `job`, which is the chain's own one, and it streams from Kafka, unless
    `read` makes the frame of a source from the options of Spark's Kafka source.

    Raises `InvalidJob`, with the path in the job, for what Spark's parser or analyzer refuses.
    """
    return _Builder(spark, chain, kafka, job, read).build()


def output_columns(spark: SparkSession, chain: Chain, kafka: Kafka) -> tuple[Field, ...]:
    """The columns of the chain's last operator, with the types that Spark gives them."""
    stream = _Builder(spark, chain, kafka).operators()
    schema = stream.frame.select(*map(_col, stream.columns)).schema
    return tuple(Field(name, kind) for name, kind in cut_records.sql_types(schema.fields))


class _Builder:
    def __init__(
        self,
        spark: SparkSession,
        chain: Chain,
        kafka: Kafka,
        job: str | None = None,
        read: Callable[[Mapping[str, str]], DataFrame] | None = None,
    ) -> None:
        self.spark = spark
        self.chain = chain
        self.job = job or chain.job.id
        self.dead_letters = DeadLetters(spark, chain, self.job)
        self.sources = SourceReader(spark, chain, kafka, self.dead_letters, read)

    def build(self) -> DataFrame:
        sinks = SinkWriter(self.spark, self.chain, self.dead_letters)
        return sinks.write(self.operators())

    def operators(self) -> RecordStream:
        """Everything before the sinks."""
        first = self.chain.operators[0]
        edges = {edge.source: edge for edge in self.chain.edges_into(first)}
        sources = dict(enumerate(self.chain.sources))
        tables = {i: sources.pop(i) for i in [*sources] if self.sources.is_table(sources[i])}
        branches = []
        for i, source in sources.items():
            sent = self._leave(self.sources.read(source), edges[source.name], first)
            several = len(edges) > 1
            branches.append(sent.frame.withColumn(SENDER, F.lit(i)) if several else sent.frame)
        frame = branches[0]
        for branch in branches[1:]:
            frame = frame.unionByName(branch)
        columns = tuple(field.name for field in next(iter(sources.values())).columns)
        stream = self._with_tables(RecordStream(frame, columns), tables, edges, first)
        stream = self._receive(stream, first)
        stream = self._work(stream, first)
        for operator in self.chain.operators[1:]:
            (edge,) = self.chain.edges_into(operator)
            stream = self._receive(self._leave(stream, edge, operator), operator)
            stream = self._work(stream, operator)
        return stream

    def _with_tables(
        self,
        stream: RecordStream,
        tables: Mapping[int, Source],
        edges: Mapping[str, Edge],
        target: Operator,
    ) -> RecordStream:
        """The records of other inputs, and with them the rows that are broadcast to be joined
        with.
        """
        frame = broadcasts.without_rows(stream.frame) if tables else stream.frame
        for i, source in tables.items():
            raw = self.sources.raw(source, cut_records.reading(self.chain.reads[source.name]))
            rows = cut_records.received_rows(raw, f"{self.job}/>{source.name}")
            rows = rows.withColumn(SENDER, F.lit(i))
            edge = f"{self.job}/{edges[source.name].source}>{target.name}"
            copies = broadcasts.table_rows(rows, frame, edge, target, self.chain.tasks_of(target))
            frame = frame.unionByName(copies)
        return RecordStream(frame, stream.columns)

    # -- edges

    def _leave(self, stream: RecordStream, edge: Edge, target: Operator) -> RecordStream:
        return guarded(
            self.job, f"{self.chain.path(target)}.inputs", self._send, stream, edge, target
        )

    def _send(self, stream: RecordStream, edge: Edge, target: Operator) -> RecordStream:
        name = F.lit(f"{self.job}/{edge.source}>{edge.target}")
        start = F.lit(target.parallelism.initial)
        keys: tuple[str, ...] = ()
        if target.work.stateful:
            steps = self._stateful(target)
            failed = functools.partial(self.dead_letters.mark_failed, edge.source, stream.columns)
            stream = RecordStream(steps.keyed(stream.frame, stream.columns, failed), stream.columns)
            keys = steps.keys
            task = _probe("route_to", name, steps.task)
        elif edge.grouping is Grouping.BROADCAST:
            edge_name = f"{self.job}/{edge.source}>{edge.target}"
            copies = broadcasts.copied(stream.frame, stream.columns, edge_name, target)
            stream = RecordStream(copies, stream.columns)
            task = _probe("route_to", name, _col(TASK))
        elif edge.grouping is Grouping.BY_KEY:
            key = F.xxhash64(*(_col(name) for name in edge.key))
            task = _probe("route_by_key", name, start, key)
        else:
            task = _probe("route", name, start, _col(stream.evaluated))
        frame = stream.frame.withColumn(TASK, task)
        frame = frame.withColumn(STAMP, _probe("emit", name, _col(TASK)))
        if target is not self.chain.operators[0]:
            frame = self._shown(frame, name, stream.columns)
        added = (key for key in keys if key not in stream.columns)
        return RecordStream(carried(frame, stream.columns, STAMP, TASK, *added), stream.columns)

    def _stateful(self, operator: Operator) -> StatefulSteps:
        return StatefulSteps(self.spark, operator, self.chain.path(operator))

    def _receive(self, stream: RecordStream, operator: Operator) -> RecordStream:
        edges = self.chain.edges_into(operator)
        names = [F.lit(f"{self.job}/{edge.source}>{edge.target}") for edge in edges]
        name = names[-1]
        by_source = {edge.source: names[i] for i, edge in enumerate(edges)}
        if len(edges) > 1:
            order = [by_source[source.name] for source in self.chain.sources]
            name = order[-1]
            for i, other in enumerate(order[:-1]):
                name = F.when(_col(SENDER) == i, other).otherwise(name)
        if operator.work.stateful:
            keys = self._stateful(operator).keys
            shuffled = stream.frame.repartition(operator.tasks, *map(_col, keys))
        else:
            keys = ()
            tasks = self.chain.tasks_of(operator)
            shuffled = stream.frame.repartitionById(tasks, _col(TASK))
        taken = shuffled.where(_probe("take", name, _col(STAMP), _col(ORIGIN)))
        if self._broadcast(operator) is not None:
            taken = broadcasts.remembered(taken, self._name(operator))
        added = (key for key in keys if key not in stream.columns)
        return RecordStream(carried(taken, stream.columns, *added), stream.columns)

    def _shown(self, frame: DataFrame, edge: Column, columns: Sequence[str]) -> DataFrame:
        """The records of an edge inside the query, shown to whoever looks at it. Other edges are
        topics. A record is written as text only while somebody does, and before the shuffle, which
        carries no column that the receiver does not need.
        """
        row = try_evaluate(
            self.spark, F.to_json(F.struct(*map(_col, columns)), {**cut_records.JSON})
        )
        wanted = _col(DEAD).isNull() & _probe("watched", edge)
        shown = _probe("show", edge, row, _col(TASK))
        try:
            return frame.where(F.when(wanted, shown).otherwise(F.lit(True)))
        except AnalysisException:
            return frame  # a type that JSON does not have

    # -- operators

    def _work(self, stream: RecordStream, operator: Operator) -> RecordStream:
        work, path = operator.work, self.chain.path(operator)
        if work.join is not None:
            stream = guarded(self.job, f"{path}.join", self._join, stream, operator, work.join)
        if work.where is not None:
            stream = guarded(self.job, f"{path}.where", self._where, stream, operator, work.where)
        for alias, text in work.explode:
            place = f"{path}.explode.{alias}"
            stream = guarded(self.job, place, self._explode, stream, operator, alias, text, place)
        if work.select:
            stream = guarded(self.job, f"{path}.select", self._select, stream, operator)
        if work.stateful:
            part = "aggregate" if work.aggregate else "deduplicate"
            stream = guarded(self.job, f"{path}.{part}", self._keep_state, stream, operator)
        return stream

    def _keep_state(self, stream: RecordStream, operator: Operator) -> RecordStream:
        """Updates the state with each row. An aggregate gives the new values of the row's group, as
        of the record that changed them; what is a dead letter already passes in a group of its own.
        """
        steps = self._stateful(operator)
        if not operator.work.aggregate:
            kept = steps.first_of_each(stream.frame)
            return RecordStream(carried(kept, stream.columns), stream.columns)
        frame = steps.grouped(stream.frame, stream.columns, ROW)
        frame = self.dead_letters.mark_unevaluated(
            frame, steps.group_columns, operator.name, "aggregate", ROW
        )
        frame = frame.select(*steps.results(ROW), *map(_col, (*CARRIED, ROW)))
        return RecordStream(frame, steps.result_columns, ROW)

    def _broadcast(self, operator: Operator) -> Source | None:
        """The cut with whose latest rows an operator joins its records."""
        if operator is not self.chain.operators[0]:
            return None
        return next(filter(self.sources.is_table, self.chain.sources), None)

    def _join_broadcast(
        self, stream: RecordStream, operator: Operator, join: Join, table: Source
    ) -> RecordStream:
        """The records with the latest row that was broadcast for their key."""
        matched = broadcasts.latest_row(self._name(operator), join, table.schema)
        frame = stream.frame.withColumn(_MATCHED, matched)
        strict = {"mode": "FAILFAST", **cut_records.JSON}
        rows = json_rows(self.spark, _col(_MATCHED), ddl(table.schema), strict)
        frame = frame.withColumn(ROW, rows)
        keep = _col(DEAD).isNotNull() | F.lit(join.how == "left") | _col(_MATCHED).isNotNull()
        frame = frame.where(self._mark(operator, keep))
        have = {name.lower() for name in stream.columns}
        more = [field.name for field in table.schema if field.name.lower() not in have]
        frame = frame.select(
            *map(_col, (*stream.columns, *CARRIED)), *(_col(ROW)[n].alias(n) for n in more)
        )
        return RecordStream(frame, (*stream.columns, *more))

    def _join(self, stream: RecordStream, operator: Operator, join: Join) -> RecordStream:
        if (broadcast := self._broadcast(operator)) is not None:
            return self._join_broadcast(stream, operator, join, broadcast)
        index = self.chain.job.tables.index(self.chain.table(join.table))
        table = local_table(self.spark, self.chain.job.tables[index], f"tables[{index}]", self.job)
        have = {name.lower() for name in stream.columns}
        more = [name for name in table.columns if name.lower() not in have]
        right = table.select(
            *(_col(name).alias(f"$k{i}") for i, name in enumerate(join.on)),
            *(_col(name) for name in more),
            F.lit(True).alias(_MATCHED),
        )
        condition = _col(DEAD).isNull()
        for i, name in enumerate(join.on):
            left, kind = _col(name), right.schema[i].dataType
            if stream.frame.select(left).schema[0].dataType != kind:
                left = left.try_cast(kind)
            condition &= left == _col(f"$k{i}")
        frame = stream.frame.join(F.broadcast(right), condition, "left")
        keep = _col(DEAD).isNotNull() | F.lit(join.how == "left") | _col(_MATCHED).isNotNull()
        frame = frame.where(self._mark(operator, keep))
        columns = (*stream.columns, *more)
        return RecordStream(carried(frame, columns), columns)

    def _where(self, stream: RecordStream, operator: Operator, text: str) -> RecordStream:
        path = f"{self.chain.path(operator)}.where"
        condition = checked_column(self.spark, text, stream.columns, path)
        frame = self._try(stream, operator, "where", condition)
        _need(frame, T.BooleanType, "A condition must be a BOOLEAN", path)
        holds = F.coalesce(_col(_TRIED)["v"], F.lit(False))
        frame = frame.where(self._mark(operator, _col(DEAD).isNotNull() | holds))
        return RecordStream(carried(frame, stream.columns), stream.columns)

    def _explode(
        self, stream: RecordStream, operator: Operator, alias: str, text: str, path: str
    ) -> RecordStream:
        array = checked_column(self.spark, text, stream.columns, path)
        frame = self._try(stream, operator, f"explode of {alias}", array)
        _need(frame, T.ArrayType, "Only an ARRAY can be exploded", path)
        tried, dead = _col(_TRIED)["v"], _col(DEAD).isNotNull()
        some = F.coalesce(F.size(tried) > 0, F.lit(False))
        frame = frame.where(self._mark(operator, dead | some))
        elements = F.when(dead, F.array(F.lit(None))).otherwise(tried)
        kept = [name for name in stream.columns if name.lower() != alias.lower()]
        frame = frame.select(
            *map(_col, (*kept, *CARRIED)), F.posexplode(elements).alias(_POSITION, alias)
        )
        # Each row has an id of its own: the record's, and the position in the array.
        numbered = F.concat_ws("-", _col(ID), _col(_POSITION))
        frame = frame.withColumn(ID, F.when(_col(DEAD).isNull(), numbered).otherwise(_col(ID)))
        have = {name.lower() for name in stream.columns}
        columns = stream.columns if alias.lower() in have else (*stream.columns, alias)
        return RecordStream(carried(frame, columns), columns)

    def _select(self, stream: RecordStream, operator: Operator) -> RecordStream:
        path = self.chain.path(operator)
        chosen: dict[str, Column] = {}
        problems: list[Problem] = []
        for i, text in enumerate(operator.work.select):
            read = parse_expression(text)
            if read.star:
                chosen |= {name: _col(name) for name in stream.columns}
                continue
            try:
                column = checked_column(self.spark, text, stream.columns, f"{path}.select[{i}]")
            except InvalidJob as error:
                problems += error.problems
                continue
            chosen[read.output or f"_{i}"] = column
        if problems:
            raise InvalidJob(problems)
        row = F.struct(
            *(named_field(self.spark, column, name).alias(name) for name, column in chosen.items())
        )
        alive = F.when(_col(DEAD).isNull(), try_evaluate(self.spark, row))
        frame = stream.frame.withColumn(ROW, alive)
        frame = self.dead_letters.mark_unevaluated(
            frame, stream.columns, operator.name, "select", ROW
        )
        frame = frame.select(
            *(_col(ROW)[name].alias(name) for name in chosen), *map(_col, (*CARRIED, ROW))
        )
        return RecordStream(frame, tuple(chosen), ROW)

    def _try(self, stream: RecordStream, operator: Operator, part: str, value: Column) -> DataFrame:
        """The frame with the value as field `v` of a struct; the struct is null if it failed."""
        tried = try_evaluate(self.spark, F.struct(value.alias("v")))
        frame = stream.frame.withColumn(_TRIED, F.when(_col(DEAD).isNull(), tried))
        return self.dead_letters.mark_unevaluated(
            frame, stream.columns, operator.name, part, _TRIED
        )

    # -- probes

    def _name(self, operator: Operator) -> Column:
        return F.lit(f"{self.job}/{operator.name}")

    def _mark(self, operator: Operator, condition: Column) -> Column:
        return _probe("mark", self._name(operator), condition)


def _need(frame: DataFrame, wanted: type[T.DataType], what: str, path: str) -> None:
    kind = frame.select(_col(_TRIED)["v"]).schema[0].dataType
    if not isinstance(kind, wanted):
        raise InvalidJob(
            [Problem("SPARK_REFUSED", path, f"{what}; this is {kind.simpleString()}.", "")]
        )
