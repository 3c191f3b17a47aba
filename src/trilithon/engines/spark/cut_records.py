"""Reads and writes the records of internal topics, which carry cut edges from part to part.

The value is the row as JSON, with microseconds, which Spark's default format drops. The key is the
record's id. Headers have the id, the origin and when the record left the operator before the cut.
All copies of a record, also those that a replay writes, are in one partition, whose reader leaves
doubles out; and so are all records of a key, if the edge has one.

Rows that are broadcast to be joined with have what they are joined by as key instead: the reader
keeps the latest of each and delivers them again at the start of a batch, when tasks may run
elsewhere.

Rows of an aggregate are no copies of each other: after a replay the row of a record may have
another value, and only the last one of its group is right. They all pass, and each is named by its
place in the topic from there on.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from trilithon.engines.spark.cuts import Cut, ids_clash
from trilithon.engines.spark.record_columns import ID, ORIGIN, call_probe, named
from trilithon.model.job import Grouping, Job, Source

# The Kafka header with a record's id, in the sinks and in the dead letters.
ID_HEADER: Final = "trilithon-source"
# In internal topics also: the record's origin and when it left the last operator, both µs as text.
ORIGIN_HEADER: Final = "trilithon-origin"
LEFT_HEADER: Final = "trilithon-left"
LEFT: Final = "$y"  # when it left the last operator
# The ids that the reader of a partition of an internal topic remembers, at least.
REMEMBERED_IDS: Final = 2**17
# The keys whose latest row an instance and the reader of a broadcast keep, at most.
BROADCAST_KEYS: Final = 2**16
# In place of a time: the row was delivered before, and nobody counts it again.
UNCOUNTED: Final = -(2**63)
# The key and the row of a broadcast that is joined with; null in other records.
TABLE_KEY: Final = "$l"
TABLE_ROW: Final = "$e"
JSON: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# What a record has beside its value and its id: two headers, the reader's name in its two ids.
OVERHEAD: Final = 256


def reading(cut: Cut) -> dict[str, str]:
    """The options of our Kafka source that reads an internal topic."""
    options = {"includeHeaders": "true"}
    if cut.table_key:
        return {**options, "trilithon.latest": str(BROADCAST_KEYS)}
    return options if cut.aggregated else {**options, "trilithon.remembered": str(REMEMBERED_IDS)}


def received(raw: DataFrame, value: str, cut: Cut, source: str) -> DataFrame:
    """The columns of a record that was read, in the stage that reads it; its value is still text.
    `source` names the cut for the probe.
    """
    id_ = F.col("key").cast("string")
    if cut.aggregated:
        id_ = F.concat(id_, F.lit("@"), F.concat_ws("-", "partition", "offset"))
    frame = raw.select(
        F.col("value").cast("string").alias(value),
        id_.alias(ID),
        _header(raw, 1).alias(ORIGIN),
        _header(raw, 2).alias(LEFT),
    )
    return frame.where(call_probe("take", F.lit(source), named(LEFT), named(ORIGIN)))


def received_rows(raw: DataFrame, source: str) -> DataFrame:
    """The rows of a broadcast, with the text of their keys, in the stage that reads them."""
    again = F.col("timestampType") < 0
    frame = raw.select(
        F.col("key").cast("string").alias(TABLE_KEY),
        F.col("value").cast("string").alias(TABLE_ROW),
        raw["headers"][0]["value"].cast("string").alias(ID),
        _header(raw, 1).alias(ORIGIN),
        F.when(again, F.lit(UNCOUNTED)).otherwise(_header(raw, 2)).alias(LEFT),
    )
    return frame.where(call_probe("take", F.lit(source), named(LEFT), named(ORIGIN)))


def table_key(values: Sequence[Column]) -> Column:
    """What rows are joined by, as text; null if one of the values is, which equals nothing."""
    some = F.lit(True)
    for value in values:
        some &= value.isNotNull()
    row = F.struct(*(value.alias(str(i)) for i, value in enumerate(values)))
    return F.when(some, F.to_json(row, dict(JSON)))


def _header(raw: DataFrame, position: int) -> Column:
    """A time in the headers: they keep the order in which they are written."""
    return raw["headers"][position]["value"].cast("string").cast("long")


def source_id(job: Job, source: Source, cut: Cut | None) -> Column:
    """Topic, partition and offset; the reader too, where they alone do not name one record."""
    place = F.concat_ws("-", "topic", "partition", "offset")
    if cut is not None and cut.one_of_several:
        return F.concat(place, F.lit(f">{cut.edge.target}"))
    if ids_clash(job, source):
        return F.concat(place, F.lit(f"@{source.name}"))
    return place


def sent(cut: Cut, topic: str, value: Column, left: Column) -> Column:
    """The record of an internal topic for Kafka's writer."""
    text = named(ID)
    if cut.one_of_several:
        text = F.concat(text, F.lit(f">{cut.edge.target}"))
    keys = cut.edge.key if cut.edge.grouping is Grouping.BY_KEY else ()
    hashed = F.xxhash64(*map(named, keys)) if keys else F.xxhash64(text)
    partition = F.pmod(hashed, F.lit(cut.partitions)).cast("int")
    id_ = F.encode(text, "UTF-8")
    times = {ORIGIN_HEADER: named(ORIGIN), LEFT_HEADER: left}
    more = {key: F.encode(time.cast("string"), "UTF-8") for key, time in times.items()}
    key = id_
    if cut.table_key:
        key = F.encode(table_key([*map(named, cut.table_key)]), "UTF-8")
    return target(topic, key, value, {ID_HEADER: id_, **more}, partition)


def target(
    topic: str,
    key: Column,
    value: Column,
    headers: Mapping[str, Column],
    partition: Column | None = None,
) -> Column:
    """A record for Kafka's writer; without a partition Kafka's own rule chooses one."""
    listed = (F.struct(F.lit(name).alias("key"), v.alias("value")) for name, v in headers.items())
    to = F.lit(None).cast("int") if partition is None else partition
    return F.struct(
        F.lit(topic).alias("topic"),
        key.alias("key"),
        value.alias("value"),
        F.array(*listed).alias("headers"),
        to.alias("partition"),
    )


def targets_of(targets: Column, alias: str, frame: DataFrame) -> DataFrame:
    """A row for each target, with the columns that Kafka's writer takes."""
    columns = ("topic", "key", "value", "headers", "partition")
    exploded = frame.select(F.explode(targets).alias(alias))
    return exploded.select(*(named(alias)[name].alias(name) for name in columns))


def sql_types(schema: Sequence[T.StructField]) -> list[tuple[str, str]]:
    """The columns of a schema with their types as SQL writes them."""
    return [(field.name, _sql_type(field.dataType)) for field in schema]


def _sql_type(kind: T.DataType) -> str:
    """Names of fields are in quotes: they may have spaces."""
    if isinstance(kind, T.ArrayType):
        return f"array<{_sql_type(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{_sql_type(kind.keyType)}, {_sql_type(kind.valueType)}>"
    if isinstance(kind, T.StructType):
        return f"struct<{', '.join(f'`{f.name}`: {_sql_type(f.dataType)}' for f in kind)}>"
    return kind.simpleString()
