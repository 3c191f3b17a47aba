"""Builds the query of a chain: each source, operator and sink becomes a part of one DataFrame.

    readers of a source ─ route, emit ┐
                                      ├ union ─ shuffle ─ take, work ─ route, emit ─ … ─ sink
    readers of a source ─ route, emit ┘

A record carries a few internal columns beside the user's. A record that fails is not dropped where
it fails, since a query has one writer: it becomes a dead letter, passes the operators untouched and
is written to a topic of its own at the end. `$d` is null as long as a record has not failed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.expressions import checked_column, named_field, try_evaluate
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.session import CATALOG
from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Edge, Field, Grouping, Join, Operator, Source, Table
from trilithon.spec.sql_expressions import parse_expression

# Internal columns begin with a character that no column of a job can have.
ORIGIN: Final = "$o"  # when the record was written to its source, µs: Kafka's timestamp
ID: Final = "$i"  # topic-partition-offset, for detecting duplicates; -position after an explode
DEAD: Final = "$d"  # the dead letter that the record is, as JSON; null if it is none
STAMP: Final = "$t"  # when it was sent over the edge, and by which executor
TASK: Final = "$p"  # the receiving task
SENDER: Final = "$s"  # which of several sources it came from
_MATCHED: Final = "$m"
_ROW: Final = "$r"
_TRIED: Final = "$x"
_VALUE: Final = "$v"
_WRITTEN: Final = "$w"
_CORRUPT: Final = "$c"
_POSITION: Final = "$n"
_KEYS: Final = "$h"
_TARGET: Final = "$z"
_CARRIED: Final = (ORIGIN, ID, DEAD)

# The Kafka source in the probe's jar: the connector's, with readers whose batch can be ended.
KAFKA_SOURCE: Final = "io.trilithon.source.KafkaSource"
# What a record has beside its value and its id: the batch's and the record's own bytes, the header.
RECORD_OVERHEAD: Final = 128
# The Kafka header with a record's id, in the sinks and in the dead letters.
ID_HEADER: Final = "trilithon-source"


def build_frame(spark: SparkSession, chain: Chain, kafka: Kafka) -> DataFrame:
    """The chain's query, with the columns that Kafka's writer takes: topic, key, value, headers.

    Raises `InvalidJob`, with the path in the job, for what Spark's parser or analyzer refuses.
    """
    return _Builder(spark, chain, kafka).build()


@dataclass(frozen=True)
class _Stream:
    """A DataFrame and which of its columns are the user's."""

    frame: DataFrame
    columns: tuple[str, ...]
    # A column that must be evaluated before the record leaves the operator.
    evaluated: str = ORIGIN


class _Builder:
    def __init__(self, spark: SparkSession, chain: Chain, kafka: Kafka) -> None:
        self.spark = spark
        self.chain = chain
        self.kafka = kafka
        self.job = chain.job.id

    def build(self) -> DataFrame:
        first = self.chain.operators[0]
        edges = {edge.source: edge for edge in self.chain.edges_into(first)}
        branches = []
        for i, source in enumerate(self.chain.sources):
            read = self._source(source, f"sources[{i}]")
            sent = self._leave(read, edges[source.name], first)
            several = len(edges) > 1
            branches.append(sent.frame.withColumn(SENDER, F.lit(i)) if several else sent.frame)
        frame = branches[0]
        for branch in branches[1:]:
            frame = frame.unionByName(branch)
        stream = _Stream(frame, tuple(field.name for field in self.chain.sources[0].columns))
        stream = self._receive(stream, first)
        stream = self._work(stream, first)
        for operator in self.chain.operators[1:]:
            (edge,) = self.chain.edges_into(operator)
            stream = self._receive(self._leave(stream, edge, operator), operator)
            stream = self._work(stream, operator)
        return self._sinks(stream)

    # -- sources

    def _source(self, source: Source, path: str) -> _Stream:
        parts = dict(source.metadata)
        headers = {"includeHeaders": "true"} if "headers" in parts.values() else {}
        options = {**_reading(source, self.chain), **headers, **self.kafka.options}
        raw = self.spark.readStream.format(KAFKA_SOURCE).options(**options).load()
        parsed = F.from_json(
            _col(_VALUE),
            ", ".join([_ddl(source.schema), f"`{_CORRUPT}` STRING"]),
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
        )
        origin = F.unix_micros("timestamp")
        frame = raw.select(
            F.col("value").cast("string").alias(_VALUE),
            origin.alias(ORIGIN),
            F.concat_ws("-", "topic", "partition", "offset").alias(ID),
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

    # -- edges

    def _leave(self, stream: _Stream, edge: Edge, target: Operator) -> _Stream:
        return self._guarded(f"{self.chain.path(target)}.inputs", self._send, stream, edge, target)

    def _send(self, stream: _Stream, edge: Edge, target: Operator) -> _Stream:
        name = F.lit(f"{self.job}/{edge.source}>{edge.target}")
        start = F.lit(target.parallelism.initial)
        if edge.grouping is Grouping.BY_KEY:
            key = F.xxhash64(*(_col(name) for name in edge.key))
            task = _probe("route_by_key", name, start, key)
        else:
            task = _probe("route", name, start, _col(stream.evaluated))
        frame = stream.frame.withColumn(TASK, task)
        frame = frame.withColumn(STAMP, _probe("emit", name, _col(TASK)))
        return _Stream(_keep(frame, stream.columns, STAMP, TASK), stream.columns)

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
        shuffled = stream.frame.repartitionById(operator.parallelism.max, _col(TASK))
        taken = shuffled.where(_probe("take", name, _col(STAMP), _col(ORIGIN)))
        return _Stream(_keep(taken, stream.columns), stream.columns)

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
        return stream

    def _guarded(self, path: str, step: Any, stream: _Stream, *arguments: Any) -> _Stream:
        """Runs a step whose frame Spark analyses at once; a refusal gets the path in the job."""
        try:
            result: _Stream = step(stream, *arguments)
        except InvalidJob as error:
            raise InvalidJob(error.problems, self.job) from error.__cause__
        except AnalysisException as error:
            raise InvalidJob([_refused(error, path)], self.job) from error
        return result

    def _join(self, stream: _Stream, operator: Operator, join: Join) -> _Stream:
        index = self.chain.job.tables.index(self.chain.table(join.table))
        table = self._table(self.chain.job.tables[index], f"tables[{index}]")
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
        row = try_evaluate(self.spark, F.to_json(F.struct(*(_col(name) for name in columns))))
        letter = self._dead_letter(operator.name, f"{part} cannot be evaluated for this row", row)
        marked = F.when(self._reject(operator.name, failed), letter).otherwise(_col(DEAD))
        return frame.withColumn(DEAD, marked)

    def _table(self, table: Table, path: str) -> DataFrame:
        """The rows as a local relation, made by the JVM: from Python they would start tasks on
        every core.
        """
        names = [field.name for field in table.schema]
        rows = [dict(zip(names, row, strict=True)) for row in table.rows or ()]
        text = json.dumps(rows, default=str)
        kind = f"array<struct<{', '.join(f'`{f.name}`: {f.type}' for f in table.schema)}>>"
        try:
            values = self.spark.range(1).select(
                F.inline(F.from_json(F.lit(text), kind, {"mode": "FAILFAST"}))
            )
            parsed: Any = values._jdf.collectAsList()  # noqa: SLF001
        except Exception as error:  # from the JVM it comes as an error of py4j
            raise InvalidJob([_bad_rows(table, path)], self.job) from error
        if parsed.size() != len(rows):
            raise InvalidJob([_bad_rows(table, path)], self.job)
        jvm_session: Any = self.spark._jsparkSession  # noqa: SLF001
        schema: Any = values._jdf.schema()  # noqa: SLF001
        return ClassicFrame(jvm_session.createDataFrame(parsed, schema), self.spark)

    # -- sinks

    def _sinks(self, stream: _Stream) -> DataFrame:
        last = self.chain.operators[-1]
        stream = self._guarded("sinks", self._keys, stream, last)
        alive = _col(DEAD).isNull()
        value = try_evaluate(
            self.spark, F.to_json(F.struct(*(_col(name) for name in stream.columns)))
        )
        frame = stream.frame.withColumn(_VALUE, F.when(alive, value))
        frame = self._mark_dead(frame, stream.columns, last, "writing as JSON", _VALUE)
        frame = self._mark_too_large(frame, last)
        sunk = F.lit(f"{self.job}/{last.name}")
        delivered = _probe("sink", sunk, _col(ORIGIN), _col(_VALUE))
        targets = F.array(
            *(
                F.struct(F.lit(sink.topic).alias("topic"), _col(_KEYS)[f"k{i}"].alias("key"))
                for i, sink in enumerate(self.chain.sinks)
            )
        )
        dead_letters = self.chain.job.dead_letter_topic
        # A column, not a condition: Spark would push that below the value and evaluate it twice.
        frame = frame.withColumn(
            _WRITTEN, F.when(alive, delivered).otherwise(F.lit(dead_letters is not None))
        ).where(_col(_WRITTEN))
        id_ = F.encode(_col(ID), "UTF-8")
        if dead_letters is not None:
            # A replay writes it again: readers, and a compacted topic, keep one per key.
            letter = F.struct(F.lit(dead_letters).alias("topic"), id_.alias("key"))
            targets = F.when(alive, targets).otherwise(F.array(letter))
        header = F.struct(F.lit(ID_HEADER).alias("key"), id_.alias("value"))
        return frame.select(
            F.explode(targets).alias(_TARGET),
            F.coalesce(_col(DEAD), _col(_VALUE)).alias("value"),
            F.array(header).alias("headers"),
        ).select(
            *(_col(_TARGET)[name].alias(name) for name in ("topic", "key")), "value", "headers"
        )

    def _keys(self, stream: _Stream, last: Operator) -> _Stream:
        """Adds a struct with the key of each sink's record, as bytes; null where it has none."""
        keys = []
        for i, sink in enumerate(self.chain.sinks):
            key = F.lit(None).cast("binary")
            if sink.key is not None:
                path = f"sinks[{self.chain.job.sinks.index(sink)}].key"
                key = _bytes(
                    stream.frame, checked_column(self.spark, sink.key, stream.columns, path)
                )
            keys.append(key.alias(f"k{i}"))
        tried = F.when(_col(DEAD).isNull(), try_evaluate(self.spark, F.struct(*keys)))
        frame = stream.frame.withColumn(_KEYS, tried)
        if any(sink.key is not None for sink in self.chain.sinks):
            frame = self._mark_dead(frame, stream.columns, last, "key", _KEYS)
        return _Stream(frame, stream.columns, stream.evaluated)

    def _mark_too_large(self, frame: DataFrame, last: Operator) -> DataFrame:
        """Kafka would refuse a record that is too large, and the query would fail with it again and
        again.
        """
        limit = self.chain.largest_record
        size = F.octet_length(_col(_VALUE)) + F.octet_length(_col(ID)) + RECORD_OVERHEAD
        keys = [F.octet_length(_col(_KEYS)[f"k{i}"]) for i in range(len(self.chain.sinks))]
        size += F.greatest(F.lit(0), *(F.coalesce(key, F.lit(0)) for key in keys))
        too_large = _col(DEAD).isNull() & (size > limit)
        letter = self._dead_letter(
            last.name, f"the record is larger than the sinks take: {limit} bytes", _col(_VALUE)
        )
        marked = F.when(self._reject(last.name, too_large), letter).otherwise(_col(DEAD))
        return frame.withColumn(DEAD, marked)

    # -- probes

    def _mark(self, operator: Operator, condition: Column) -> Column:
        return _probe("mark", F.lit(f"{self.job}/{operator.name}"), condition)

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


def _probe(function: str, *arguments: Column) -> Column:
    return F.call_function(f"{CATALOG}.{function}", *arguments)


def _col(name: str) -> Column:
    return F.col(f"`{name}`")


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


def _bad_rows(table: Table, path: str) -> Problem:
    return Problem(
        "TABLE_ROWS",
        f"{path}.rows",
        f"The rows of the table {table.name!r} do not fit its schema.",
        f"Each row needs: {', '.join(str(field) for field in table.schema)}.",
    )
