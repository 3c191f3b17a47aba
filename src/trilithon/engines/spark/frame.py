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
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from trilithon.engines.spark import broadcasts, cut_records
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.cuts import Cut
from trilithon.engines.spark.expressions import checked_column, named_field, try_evaluate
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.local_tables import local_table
from trilithon.engines.spark.record_columns import DEAD, ID, ORIGIN, SENDER, STAMP, TASK
from trilithon.engines.spark.record_columns import call_probe as _probe
from trilithon.engines.spark.record_columns import named as _col
from trilithon.engines.spark.stateful import StatefulSteps
from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Edge, Field, Grouping, Join, Operator, Source
from trilithon.spec.sql_expressions import parse_expression

_MATCHED: Final = "$m"
_ROW: Final = "$r"
_TRIED: Final = "$x"
_VALUE: Final = "$v"
_WRITTEN: Final = "$w"
_CORRUPT: Final = "$c"
_POSITION: Final = "$n"
_KEYS: Final = "$h"
_CUT_VALUE: Final = "$u"
_TARGET: Final = "$z"
_CARRIED: Final = (ORIGIN, ID, DEAD)

# The Kafka source in the probe's jar: the connector's, with readers whose batch can be ended.
KAFKA_SOURCE: Final = "io.trilithon.source.KafkaSource"
# What a record has beside its value and its id: the batch's and the record's own bytes, the header.
RECORD_OVERHEAD: Final = 128


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


@dataclass(frozen=True)
class _Stream:
    """A DataFrame and which of its columns are the user's."""

    frame: DataFrame
    columns: tuple[str, ...]
    # A column that must be evaluated before the record leaves the operator.
    evaluated: str = ORIGIN


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
        self.kafka = kafka
        self.job = job or chain.job.id
        self.read = read or self._stream

    def build(self) -> DataFrame:
        return self._sinks(self.operators())

    def operators(self) -> _Stream:
        """Everything before the sinks."""
        first = self.chain.operators[0]
        edges = {edge.source: edge for edge in self.chain.edges_into(first)}
        sources = dict(enumerate(self.chain.sources))
        tables = {i: sources.pop(i) for i in [*sources] if self._is_table(sources[i])}
        branches = []
        for i, source in sources.items():
            sent = self._leave(self._read(source), edges[source.name], first)
            several = len(edges) > 1
            branches.append(sent.frame.withColumn(SENDER, F.lit(i)) if several else sent.frame)
        frame = branches[0]
        for branch in branches[1:]:
            frame = frame.unionByName(branch)
        columns = tuple(field.name for field in next(iter(sources.values())).columns)
        stream = self._with_tables(_Stream(frame, columns), tables, edges, first)
        stream = self._receive(stream, first)
        stream = self._work(stream, first)
        for operator in self.chain.operators[1:]:
            (edge,) = self.chain.edges_into(operator)
            stream = self._receive(self._leave(stream, edge, operator), operator)
            stream = self._work(stream, operator)
        return stream

    # -- sources

    def _is_table(self, source: Source) -> bool:
        """Whether its rows are broadcast to be joined with."""
        return source.name in self.chain.reads and bool(self.chain.reads[source.name].table_key)

    def _read(self, source: Source) -> _Stream:
        cut = self.chain.reads.get(source.name)
        if cut is not None and cut.internal:
            return self._cut_source(source, cut)
        index = self.chain.whole.sources.index((cut and cut.source) or source)
        return self._source(source, f"sources[{index}]", cut)

    def _raw(self, source: Source, more: Mapping[str, str]) -> DataFrame:
        """The records as Kafka has them."""
        return self.read({**_reading(source, self.chain), **more, **self.kafka.options})

    def _stream(self, options: Mapping[str, str]) -> DataFrame:
        return self.spark.readStream.format(KAFKA_SOURCE).options(**options).load()

    def _source(self, source: Source, path: str, cut: Cut | None = None) -> _Stream:
        parts = dict(source.metadata)
        headers = {"includeHeaders": "true"} if "headers" in parts.values() else {}
        raw = self._raw(source, headers)
        parsed = F.from_json(
            _col(_VALUE),
            ", ".join([_ddl(source.schema), f"`{_CORRUPT}` STRING"]),
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
        )
        origin = F.unix_micros("timestamp")
        frame = raw.select(
            F.col("value").cast("string").alias(_VALUE),
            origin.alias(ORIGIN),
            cut_records.source_id(self.chain.whole, source, cut).alias(ID),
            *(F.col(part).alias(column) for column, part in parts.items()),
        ).where(_probe("take", F.lit(f"{self.job}/>{source.name}"), _col(ORIGIN), _col(ORIGIN)))
        try:
            frame = frame.withColumn(_ROW, parsed)
        except PySparkException as error:
            raise InvalidJob([_refused(error, f"{path}.schema")], self.job) from error
        row = _col(_ROW)
        broken = row.isNull() | row[_CORRUPT].isNotNull()
        # Parsed once more, only if it failed, by a mode that says which field it was.
        strict = F.from_json(_col(_VALUE), _ddl(source.schema), {"mode": "FAILFAST"})
        letter = self._dead_letter(
            source.name,
            "the value is not JSON of the source's schema",
            _col(_VALUE),
            try_evaluate(self.spark, strict).isNull(),
        )
        frame = frame.select(
            *(row[field.name].alias(field.name) for field in source.schema),
            *map(_col, parts),
            _col(ORIGIN),
            _col(ID),
            F.when(self._reject(source.name, broken), letter).alias(DEAD),
        )
        return _Stream(frame, tuple(field.name for field in source.columns), DEAD)

    def _cut_source(self, source: Source, cut: Cut) -> _Stream:
        """The records of another part. What they are was checked when they were written."""
        raw = self._raw(source, cut_records.reading(cut))
        frame = cut_records.received(raw, _VALUE, cut, f"{self.job}/>{source.name}")
        strict = {"mode": "FAILFAST", **cut_records.JSON}
        try:
            parsed = F.from_json(_col(_VALUE), _ddl(source.schema), strict)
            frame = frame.withColumn(_ROW, parsed)
        except PySparkException as error:
            # A type that JSON does not have, such as a map whose keys are no strings.
            path = self.chain.path(self.chain.operators[0])
            raise InvalidJob([_refused(error, f"{path}.inputs")], self.job) from error
        frame = frame.select(
            *(_col(_ROW)[field.name].alias(field.name) for field in source.schema),
            _col(ORIGIN),
            _col(ID),
            F.lit(None).cast("string").alias(DEAD),
        )
        return _Stream(frame, tuple(field.name for field in source.schema), ID)

    def _with_tables(
        self,
        stream: _Stream,
        tables: Mapping[int, Source],
        edges: Mapping[str, Edge],
        target: Operator,
    ) -> _Stream:
        """The records of other inputs, and with them the rows that are broadcast to be joined
        with.
        """
        frame = broadcasts.without_rows(stream.frame) if tables else stream.frame
        for i, source in tables.items():
            raw = self._raw(source, cut_records.reading(self.chain.reads[source.name]))
            rows = cut_records.received_rows(raw, f"{self.job}/>{source.name}")
            rows = rows.withColumn(SENDER, F.lit(i))
            edge = f"{self.job}/{edges[source.name].source}>{target.name}"
            frame = frame.unionByName(broadcasts.table_rows(rows, frame, edge, target))
        return _Stream(frame, stream.columns)

    # -- edges

    def _leave(self, stream: _Stream, edge: Edge, target: Operator) -> _Stream:
        return self._guarded(f"{self.chain.path(target)}.inputs", self._send, stream, edge, target)

    def _send(self, stream: _Stream, edge: Edge, target: Operator) -> _Stream:
        name = F.lit(f"{self.job}/{edge.source}>{edge.target}")
        start = F.lit(target.parallelism.initial)
        keys: tuple[str, ...] = ()
        if target.work.stateful:
            steps = self._stateful(target)
            failed = functools.partial(self._failed, edge.source, stream.columns)
            stream = _Stream(steps.keyed(stream.frame, stream.columns, failed), stream.columns)
            keys = steps.keys
            task = _probe("route_to", name, steps.task)
        elif edge.grouping is Grouping.BROADCAST:
            edge_name = f"{self.job}/{edge.source}>{edge.target}"
            copies = broadcasts.copied(stream.frame, stream.columns, edge_name, target)
            stream = _Stream(copies, stream.columns)
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
        return _Stream(_keep(frame, stream.columns, STAMP, TASK, *added), stream.columns)

    def _stateful(self, operator: Operator) -> StatefulSteps:
        return StatefulSteps(self.spark, operator, self.chain.path(operator))

    def _receive(self, stream: _Stream, operator: Operator) -> _Stream:
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
            shuffled = stream.frame.repartitionById(operator.tasks, _col(TASK))
        taken = shuffled.where(_probe("take", name, _col(STAMP), _col(ORIGIN)))
        if self._broadcast(operator) is not None:
            taken = broadcasts.remembered(taken, self._name(operator))
        added = (key for key in keys if key not in stream.columns)
        return _Stream(_keep(taken, stream.columns, *added), stream.columns)

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

    def _work(self, stream: _Stream, operator: Operator) -> _Stream:
        work, path = operator.work, self.chain.path(operator)
        if work.join is not None:
            stream = self._guarded(f"{path}.join", self._join, stream, operator, work.join)
        if work.where is not None:
            stream = self._guarded(f"{path}.where", self._where, stream, operator, work.where)
        for alias, text in work.explode:
            place = f"{path}.explode.{alias}"
            stream = self._guarded(place, self._explode, stream, operator, alias, text, place)
        if work.select:
            stream = self._guarded(f"{path}.select", self._select, stream, operator)
        if work.stateful:
            part = "aggregate" if work.aggregate else "deduplicate"
            stream = self._guarded(f"{path}.{part}", self._keep_state, stream, operator)
        return stream

    def _keep_state(self, stream: _Stream, operator: Operator) -> _Stream:
        """Updates the state with each row. An aggregate gives the new values of the row's group, as
        of the record that changed them; what is a dead letter already passes in a group of its own.
        """
        steps = self._stateful(operator)
        if not operator.work.aggregate:
            kept = steps.first_of_each(stream.frame)
            return _Stream(_keep(kept, stream.columns), stream.columns)
        frame = steps.grouped(stream.frame, stream.columns, _ROW)
        frame = self._mark_dead(frame, steps.group_columns, operator, "aggregate", _ROW)
        frame = frame.select(*steps.results(_ROW), *map(_col, (*_CARRIED, _ROW)))
        return _Stream(frame, steps.result_columns, _ROW)

    def _guarded(self, path: str, step: Any, stream: _Stream, *arguments: Any) -> _Stream:
        """Runs a step whose frame Spark analyses at once; a refusal gets the path in the job."""
        try:
            result: _Stream = step(stream, *arguments)
        except InvalidJob as error:
            raise InvalidJob(error.problems, self.job) from error.__cause__
        except AnalysisException as error:
            raise InvalidJob([_refused(error, path)], self.job) from error
        return result

    def _broadcast(self, operator: Operator) -> Source | None:
        """The cut with whose latest rows an operator joins its records."""
        if operator is not self.chain.operators[0]:
            return None
        return next(filter(self._is_table, self.chain.sources), None)

    def _join_broadcast(
        self, stream: _Stream, operator: Operator, join: Join, table: Source
    ) -> _Stream:
        """The records with the latest row that was broadcast for their key."""
        matched = broadcasts.latest_row(self._name(operator), join, table.schema)
        frame = stream.frame.withColumn(_MATCHED, matched)
        strict = {"mode": "FAILFAST", **cut_records.JSON}
        frame = frame.withColumn(_ROW, F.from_json(_col(_MATCHED), _ddl(table.schema), strict))
        keep = _col(DEAD).isNotNull() | F.lit(join.how == "left") | _col(_MATCHED).isNotNull()
        frame = frame.where(self._mark(operator, keep))
        have = {name.lower() for name in stream.columns}
        more = [field.name for field in table.schema if field.name.lower() not in have]
        frame = frame.select(
            *map(_col, (*stream.columns, *_CARRIED)), *(_col(_ROW)[n].alias(n) for n in more)
        )
        return _Stream(frame, (*stream.columns, *more))

    def _join(self, stream: _Stream, operator: Operator, join: Join) -> _Stream:
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
        return _Stream(_keep(frame, columns), columns)

    def _where(self, stream: _Stream, operator: Operator, text: str) -> _Stream:
        path = f"{self.chain.path(operator)}.where"
        condition = checked_column(self.spark, text, stream.columns, path)
        frame = self._try(stream, operator, "where", condition)
        _need(frame, T.BooleanType, "A condition must be a BOOLEAN", path)
        holds = F.coalesce(_col(_TRIED)["v"], F.lit(False))
        frame = frame.where(self._mark(operator, _col(DEAD).isNotNull() | holds))
        return _Stream(_keep(frame, stream.columns), stream.columns)

    def _explode(
        self, stream: _Stream, operator: Operator, alias: str, text: str, path: str
    ) -> _Stream:
        array = checked_column(self.spark, text, stream.columns, path)
        frame = self._try(stream, operator, f"explode of {alias}", array)
        _need(frame, T.ArrayType, "Only an ARRAY can be exploded", path)
        tried, dead = _col(_TRIED)["v"], _col(DEAD).isNotNull()
        some = F.coalesce(F.size(tried) > 0, F.lit(False))
        frame = frame.where(self._mark(operator, dead | some))
        elements = F.when(dead, F.array(F.lit(None))).otherwise(tried)
        kept = [name for name in stream.columns if name.lower() != alias.lower()]
        frame = frame.select(
            *map(_col, (*kept, *_CARRIED)), F.posexplode(elements).alias(_POSITION, alias)
        )
        # Each row has an id of its own: the record's, and the position in the array.
        numbered = F.concat_ws("-", _col(ID), _col(_POSITION))
        frame = frame.withColumn(ID, F.when(_col(DEAD).isNull(), numbered).otherwise(_col(ID)))
        have = {name.lower() for name in stream.columns}
        columns = stream.columns if alias.lower() in have else (*stream.columns, alias)
        return _Stream(_keep(frame, columns), columns)

    def _select(self, stream: _Stream, operator: Operator) -> _Stream:
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
        frame = stream.frame.withColumn(_ROW, alive)
        frame = self._mark_dead(frame, stream.columns, operator, "select", _ROW)
        frame = frame.select(
            *(_col(_ROW)[name].alias(name) for name in chosen), *map(_col, (*_CARRIED, _ROW))
        )
        return _Stream(frame, tuple(chosen), _ROW)

    def _try(self, stream: _Stream, operator: Operator, part: str, value: Column) -> DataFrame:
        """The frame with the value as field `v` of a struct; the struct is null if it failed."""
        tried = try_evaluate(self.spark, F.struct(value.alias("v")))
        frame = stream.frame.withColumn(_TRIED, F.when(_col(DEAD).isNull(), tried))
        return self._mark_dead(frame, stream.columns, operator, part, _TRIED)

    def _mark_dead(
        self, frame: DataFrame, columns: Sequence[str], operator: Operator, part: str, tried: str
    ) -> DataFrame:
        failed = _col(DEAD).isNull() & _col(tried).isNull()
        reason = f"{part} cannot be evaluated for this row"
        return self._failed(operator.name, columns, frame, failed, reason)

    def _failed(
        self, node: str, columns: Sequence[str], frame: DataFrame, failed: Column, reason: str
    ) -> DataFrame:
        """The rows that failed in a node become dead letters."""
        row = try_evaluate(self.spark, F.to_json(F.struct(*(_col(name) for name in columns))))
        letter = self._dead_letter(node, reason, row)
        marked = F.when(self._reject(node, failed), letter).otherwise(_col(DEAD))
        return frame.withColumn(DEAD, marked)

    # -- sinks

    def _sinks(self, stream: _Stream) -> DataFrame:
        chain, last = self.chain, self.chain.operators[-1]
        stream = self._guarded("sinks", self._keys, stream, last)
        alive = _col(DEAD).isNull()
        row = F.struct(*(_col(name) for name in stream.columns))
        frame = stream.frame
        for column, options, needed in (
            (_VALUE, {}, chain.own_sinks),
            (_CUT_VALUE, cut_records.JSON, chain.writes),
        ):
            value = F.lit(None).cast("string")
            if needed:
                value = F.when(alive, try_evaluate(self.spark, F.to_json(row, dict(options))))
            frame = frame.withColumn(column, value)
            if needed:
                frame = self._mark_dead(frame, stream.columns, last, "writing as JSON", column)
        frame = self._mark_too_large(frame, last)
        if chain.writes:
            left = F.array(*(self._left(last, cut) for cut in chain.writes.values()))
            frame = frame.withColumn(cut_records.LEFT, F.when(alive, left))
        sunk = F.lit(f"{self.job}/{last.name}")
        delivered = _probe("sink", sunk, _col(ORIGIN), _col(_VALUE))
        if not chain.own_sinks:
            delivered = F.lit(True)
        id_ = F.encode(_col(ID), "UTF-8")
        header = {cut_records.ID_HEADER: id_}
        targets = F.array(
            *(
                cut_records.target(sink.topic, _col(_KEYS)[f"k{i}"], _col(_VALUE), header)
                for i, sink in enumerate(chain.own_sinks)
            ),
            *(
                cut_records.sent(cut, topic, _col(_CUT_VALUE), _col(cut_records.LEFT)[i])
                for i, (cut, topic) in enumerate(chain.written_cuts)
            ),
        )
        dead_letters = chain.job.dead_letter_topic
        # A column, not a condition: Spark would push that below the value and evaluate it twice.
        frame = frame.withColumn(
            _WRITTEN, F.when(alive, delivered).otherwise(F.lit(dead_letters is not None))
        ).where(_col(_WRITTEN))
        if dead_letters is not None:
            # A replay writes it again: readers, and a compacted topic, keep one per key.
            letter = cut_records.target(dead_letters, id_, _col(DEAD), header)
            targets = F.when(alive, targets).otherwise(F.array(letter))
        return cut_records.targets_of(targets, _TARGET, frame)

    def _left(self, last: Operator, cut: Cut) -> Column:
        """When a record leaves for another part, behind the gate that holds it back."""
        edge = F.lit(f"{self.job}/{last.name}>{cut.name}")
        return _probe("leave", edge, _col(_CUT_VALUE))

    def _keys(self, stream: _Stream, last: Operator) -> _Stream:
        """Adds a struct with the key of each sink's record, as bytes; null where it has none."""
        keys = []
        for i, sink in enumerate(self.chain.own_sinks):
            key = F.lit(None).cast("binary")
            if sink.key is not None:
                path = f"sinks[{self.chain.whole.sinks.index(sink)}].key"
                key = _bytes(
                    stream.frame, checked_column(self.spark, sink.key, stream.columns, path)
                )
            keys.append(key.alias(f"k{i}"))
        if not keys:
            return stream
        tried = F.when(_col(DEAD).isNull(), try_evaluate(self.spark, F.struct(*keys)))
        frame = stream.frame.withColumn(_KEYS, tried)
        if any(sink.key is not None for sink in self.chain.own_sinks):
            frame = self._mark_dead(frame, stream.columns, last, "key", _KEYS)
        return _Stream(frame, stream.columns, stream.evaluated)

    def _mark_too_large(self, frame: DataFrame, last: Operator) -> DataFrame:
        """Kafka would refuse a record that is too large, and the query would fail with it again and
        again.
        """
        limit = self.chain.largest_record
        value = F.coalesce(_col(_CUT_VALUE), _col(_VALUE))
        size = F.octet_length(value) + F.octet_length(_col(ID)) + RECORD_OVERHEAD
        if self.chain.writes:
            size += F.octet_length(_col(ID)) + cut_records.OVERHEAD
        if any(cut.table_key for cut in self.chain.writes.values()):
            size += F.octet_length(value)  # its key has no more than its value
        keys = [F.octet_length(_col(_KEYS)[f"k{i}"]) for i in range(len(self.chain.own_sinks))]
        if keys:
            size += F.greatest(F.lit(0), *(F.coalesce(key, F.lit(0)) for key in keys))
        too_large = _col(DEAD).isNull() & (size > limit)
        letter = self._dead_letter(
            last.name, f"the record is larger than the sinks take: {limit} bytes", value
        )
        marked = F.when(self._reject(last.name, too_large), letter).otherwise(_col(DEAD))
        return frame.withColumn(DEAD, marked)

    # -- probes

    def _name(self, operator: Operator) -> Column:
        return F.lit(f"{self.job}/{operator.name}")

    def _mark(self, operator: Operator, condition: Column) -> Column:
        return _probe("mark", self._name(operator), condition)

    def _reject(self, node: str, condition: Column) -> Column:
        return _probe("reject", F.lit(f"{self.job}/{node}"), condition)

    def _dead_letter(
        self, node: str, reason: str, value: Column, evaluated: Column | None = None
    ) -> Column:
        """The record as a dead letter, with the error that was caught last. `evaluated` is a
        column that must be evaluated before.
        """
        chars, any_ = F.lit(self.chain.dead_letter_chars), F.lit(True)
        texts = (F.lit(reason), F.lit(node), _col(ID), value)
        return _probe("dead_letter", *texts, chars, any_ if evaluated is None else evaluated)


def _keep(frame: DataFrame, columns: Sequence[str], *more: str) -> DataFrame:
    """The user's columns and the internal ones that go on to the next operator."""
    return frame.select(*map(_col, (*columns, *_CARRIED, *more)))


def _reading(source: Source, chain: Chain) -> dict[str, str]:
    """The options of a source. It reads the partitions that the chain was planned with: those that
    a topic gets later need tasks of their own, which the ledger must admit first.
    """
    options = dict(source.options)
    if all(topic in chain.partitions for topic in source.topics):
        del options["subscribe"]
        pinned = {topic: list(range(chain.partitions[topic])) for topic in source.topics}
        options["assign"] = json.dumps(pinned)
    return options


def _ddl(fields: Sequence[Field]) -> str:
    return ", ".join(f"`{field.name}` {field.type}" for field in fields)


def _bytes(frame: DataFrame, value: Column) -> Column:
    """A value as the bytes of a Kafka key: text in UTF-8, a struct, array or map as JSON."""
    kind = frame.select(value).schema[0].dataType
    if isinstance(kind, T.BinaryType):
        return value
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        value = F.to_json(value)
    return F.encode(value.cast("string"), "UTF-8")


def _need(frame: DataFrame, wanted: type[T.DataType], what: str, path: str) -> None:
    kind = frame.select(_col(_TRIED)["v"]).schema[0].dataType
    if not isinstance(kind, wanted):
        raise InvalidJob(
            [Problem("SPARK_REFUSED", path, f"{what}; this is {kind.simpleString()}.", "")]
        )


def _refused(error: PySparkException, path: str) -> Problem:
    message = str(error).splitlines()[0]
    return Problem(
        "SPARK_REFUSED", path, f"Spark refuses this: {message}", "Correct the expression."
    )
