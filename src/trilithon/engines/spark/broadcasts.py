"""Builds the edges that bring each record to all instances of an operator.

If that is all that an operator reads, each used instance gets a copy of a record and works on it.
Beside other inputs it is a table to join with: each task keeps the latest row of each key in
memory, and nothing comes out of it. Idle tasks get these rows, too, so that they know them when
they are used; only the copies for instances are counted and wait for credits.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from trilithon.engines.spark import cut_records
from trilithon.engines.spark.record_columns import (
    DEAD,
    ID,
    ORIGIN,
    STAMP,
    TASK,
    call_probe,
    named,
)
from trilithon.model.job import Field, Join, Operator


def copied(frame: DataFrame, columns: Sequence[str], edge: str, target: Operator) -> DataFrame:
    """A copy of each record for each instance, with an id of its own and its task. A dead letter
    goes on once.
    """
    start = F.lit(target.parallelism.initial)
    tasks = call_probe("copies", F.lit(edge), start, named(ID))
    alive = named(DEAD).isNull()
    tasks = F.when(alive, tasks).otherwise(F.slice(tasks, 1, 1))
    carried = (*columns, ORIGIN, ID, DEAD)
    frame = frame.select(*map(named, carried), F.explode(tasks).alias(TASK))
    copy = F.concat_ws("*", named(ID), named(TASK))
    return frame.withColumn(ID, F.when(alive, copy).otherwise(named(ID)))


def table_rows(
    rows: DataFrame, like: DataFrame, edge: str, target: Operator, tasks: int
) -> DataFrame:
    """The rows of a table that is broadcast, a copy for each task. They have the columns of the
    records that they are united with, all null.
    """
    start = F.lit(target.parallelism.initial)
    each = F.array(*map(F.lit, range(tasks)))
    copies = rows.select(*map(named, rows.columns), F.explode(each).alias(TASK))
    counted = named(cut_records.LEFT) != F.lit(cut_records.UNCOUNTED)
    stamp = call_probe("copy", F.lit(edge), start, named(TASK), counted)
    copies = copies.withColumn(STAMP, stamp).drop(cut_records.LEFT)
    missing = (field for field in like.schema if field.name not in copies.columns)
    return copies.withColumns({f.name: F.lit(None).cast(f.dataType) for f in missing})


def without_rows(frame: DataFrame) -> DataFrame:
    """Records that are no rows of a table, with the columns of one."""
    none = F.lit(None).cast("string")
    return frame.withColumns({cut_records.TABLE_KEY: none, cut_records.TABLE_ROW: none})


def remembered(frame: DataFrame, operator: Column) -> DataFrame:
    """The records that are no rows of a table; rows are kept in the memory of the instance."""
    row = (named(cut_records.TABLE_KEY), named(cut_records.TABLE_ROW))
    return frame.where(call_probe("remember", operator, *row))


def latest_row(operator: Column, join: Join, table: Sequence[Field]) -> Column:
    """The latest row of the table with the values that a record has in the columns of the join, as
    text; null without one.
    """
    types = {field.name.lower(): field.type for field in table}
    on = [named(name).try_cast(types[name.lower()]) for name in join.on]
    key = F.when(named(DEAD).isNull(), cut_records.table_key(on))
    return call_probe("lookup", operator, key)
