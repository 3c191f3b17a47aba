"""Builds the steps of an operator that keeps state: aggregation by key, with or without a window,
and deduplication.

Spark divides state by a hash of the keys, and a task keeps its part for the life of a checkpoint.
So the keys and windows of a record are computed where it is sent, its task follows from them, and
that task waits for a credit like any other. Behind the shuffle Spark finds the rows divided as it
needs them and adds no shuffle of its own: the operator stays one stage.

In real-time mode an aggregate gives a row for each record: the values of its group after it. The
record's origin and id are the last ones of the group, so latencies and ids are the record's own. A
dead letter is in a group of its own, whose last dead letter it is for the moment of its passing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from trilithon.engines.spark.expressions import checked_column, named_field, try_evaluate
from trilithon.engines.spark.record_columns import DEAD, ID, ORIGIN, named
from trilithon.errors import InvalidJob, Problem
from trilithon.model.job import Operator, TimeWindow
from trilithon.spec.sql_expressions import parse_expression

_GROUP: Final = "$g"  # and a number: the values of `group_by`
_WINDOW: Final = "$y"
_ALIVE: Final = "$a"  # whether the row is no dead letter
_UNIQUE: Final = "$u"  # the id of a dead letter, for deduplication
_KEYS: Final = "$k"
_POSITION: Final = "$n"
# How Spark marks a column that has a watermark: `EventTimeWatermark.delayKey`.
_DELAY: Final = "spark.watermarkDelayMs"

# (frame, failed, reason) → the frame with the failed rows as dead letters
MarkFailed = Callable[[DataFrame, Column, str], DataFrame]


@dataclass(frozen=True)
class StatefulSteps:
    """The steps of one operator; `path` is its place in the job, for errors."""

    spark: SparkSession
    operator: Operator
    path: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which rows are divided and state is kept."""
        work = self.operator.work
        if work.deduplicate:
            return (*work.deduplicate, _UNIQUE)
        groups = (f"{_GROUP}{i}" for i in range(len(work.group_by)))
        return (*groups, *((_WINDOW,) if work.window else ()), _ALIVE)

    @property
    def task(self) -> Column:
        """The task that Spark's hash partitioning gives a row with these keys."""
        return F.pmod(F.hash(*map(named, self.keys)), F.lit(self.operator.tasks))

    @property
    def group_columns(self) -> tuple[str, ...]:
        return tuple(
            parse_expression(text).output or f"_{i}"
            for i, text in enumerate(self.operator.work.group_by)
        )

    @property
    def result_columns(self) -> tuple[str, ...]:
        """The columns of an aggregate's rows."""
        work = self.operator.work
        window = ("window",) if work.window else ()
        return (*window, *self.group_columns, *(name for name, _ in work.aggregate))

    # -- where records are sent

    def keyed(self, frame: DataFrame, columns: Sequence[str], failed: MarkFailed) -> DataFrame:
        """The rows with their keys, one for each window. Rows whose keys cannot be computed become
        dead letters; a dead letter's columns are null, so that nothing is computed of them.
        """
        work = self.operator.work
        frame = self._evaluate_keys(frame, columns, failed)
        if (time := self._time_column) is not None:
            self._check_time(frame, time)
            missing = _alive() & named(time).isNull()
            frame = failed(frame, missing, f"the event time {time!r} is null")
        frame = frame.withColumns({name: F.when(_alive(), named(name)) for name in columns})
        if work.watermark is not None:
            delay = f"{round(work.watermark.delay_s * 1000)} milliseconds"
            frame = frame.withWatermark(work.watermark.event_time, delay)
        if work.deduplicate:
            return frame.withColumn(_UNIQUE, F.when(~_alive(), named(ID)))
        groups = {f"{_GROUP}{i}": named(_KEYS)[f"k{i}"] for i in range(len(work.group_by))}
        frame = frame.withColumns({**groups, _ALIVE: _alive()})
        self._check_groups(frame)
        return frame if work.window is None else self._windowed(frame, work.window)

    @property
    def _time_column(self) -> str | None:
        work = self.operator.work
        if work.window is not None:
            return work.window.time_column
        return None if work.watermark is None else work.watermark.event_time

    def _evaluate_keys(
        self, frame: DataFrame, columns: Sequence[str], failed: MarkFailed
    ) -> DataFrame:
        texts = self.operator.work.group_by
        keys = [
            checked_column(self.spark, text, columns, f"{self.path}.group_by[{i}]")
            for i, text in enumerate(texts)
        ]
        row = F.struct(
            *(named_field(self.spark, key, texts[i]).alias(f"k{i}") for i, key in enumerate(keys)),
            F.lit(True).alias("some"),
        )
        frame = frame.withColumn(_KEYS, F.when(_alive(), try_evaluate(self.spark, row)))
        if not texts:
            return frame
        broken = _alive() & named(_KEYS).isNull()
        return failed(frame, broken, "group_by cannot be evaluated for this row")

    def _windowed(self, frame: DataFrame, window: TimeWindow) -> DataFrame:
        """The rows with their window, marked as Spark marks one, so that a watermark lets go of its
        state. Spark's own `window` would drop dead letters, which have no time.
        """
        duration, slide = (
            round(1e6 * seconds)
            for seconds in (window.duration_s, window.slide_s or window.duration_s)
        )
        at = F.unix_micros(named(window.time_column))
        last = at - F.pmod(at, F.lit(slide))
        if (count := -(-duration // slide)) > 1:
            starts = F.filter(
                F.array(*(last - F.lit(i * slide) for i in range(count))),
                lambda start: start + F.lit(duration) > at,
            )
            starts = F.when(_alive(), starts).otherwise(F.array(F.lit(None).cast("bigint")))
            columns = [named(name) for name in frame.columns]
            frame = frame.select(*columns, F.posexplode(starts).alias(_POSITION, _WINDOW))
            # Each row has an id of its own: the record's, and the position of the window.
            numbered = F.concat_ws("-", named(ID), named(_POSITION))
            frame = frame.withColumn(ID, F.when(_alive(), numbered).otherwise(named(ID)))
            last = named(_WINDOW)
        bounds = F.struct(
            F.timestamp_micros(last).alias("start"),
            F.timestamp_micros(last + F.lit(duration)).alias("end"),
        )
        watermark = self.operator.work.watermark
        delay_ms = 0 if watermark is None else round(watermark.delay_s * 1000)
        columns = [named(name) for name in frame.columns if name != _WINDOW]
        return frame.select(
            *columns, F.when(_alive(), bounds).alias(_WINDOW, metadata={_DELAY: delay_ms})
        )

    # -- where state is kept

    def grouped(self, frame: DataFrame, columns: Sequence[str], row: str) -> DataFrame:
        """The groups with their values after each record, as fields of a struct; the struct is null
        where a value cannot be computed. The other columns are the record's.
        """
        values = [
            named_field(
                self.spark,
                checked_column(
                    self.spark, text, columns, f"{self.path}.aggregate.{name}", aggregate=True
                ),
                name,
            ).alias(name)
            for name, text in self.operator.work.aggregate
        ]
        tried = try_evaluate(self.spark, F.struct(*values))
        carried = (F.last(named(name)).alias(name) for name in (ORIGIN, ID, DEAD))
        grouped = frame.groupBy(*map(named, self.keys)).agg(tried.alias(row), *carried)
        keys = zip(self.keys, self.group_columns, strict=False)
        return grouped.withColumnsRenamed(dict(keys))

    def results(self, row: str) -> list[Column]:
        """The columns of an aggregate's rows, of the frame that `grouped` gives."""
        window = [named(_WINDOW).alias("window")] if self.operator.work.window else []
        names = (name for name, _ in self.operator.work.aggregate)
        return [
            *window,
            *map(named, self.group_columns),
            *(named(row)[name].alias(name) for name in names),
        ]

    def first_of_each(self, frame: DataFrame) -> DataFrame:
        """The rows whose keys have not been seen. A replay may keep another copy of a row than the
        first run did: so its keys name it, not its record.
        """
        keys = [named(name) for name in self.operator.work.deduplicate]
        # A null changes no hash: where one is must be hashed, too.
        hashed = [*keys, *(key.isNull() for key in keys)]
        halves = (F.xxhash64(F.lit(seed), *hashed) for seed in (0, 1))
        name = F.concat(
            F.lit(f"{self.operator.name}="), *(F.lpad(F.hex(half), 16, "0") for half in halves)
        )
        first = frame.dropDuplicates(list(self.keys))
        return first.withColumn(ID, F.when(_alive(), name).otherwise(named(ID)))

    # -- what Spark would refuse, or divide differently

    def _check_time(self, frame: DataFrame, name: str) -> None:
        kind = frame.select(named(name)).schema[0].dataType
        if not isinstance(kind, T.TimestampType):
            part = "window.timeColumn" if self.operator.work.window else "watermark.eventTime"
            raise InvalidJob(
                [
                    Problem(
                        "SPARK_REFUSED",
                        f"{self.path}.{part}",
                        f"{name!r} is {kind.simpleString()}; event time is a TIMESTAMP.",
                        "Convert it in an operator before this one.",
                    )
                ]
            )

    def _check_groups(self, frame: DataFrame) -> None:
        groups = zip(self.keys, self.group_columns, strict=False)
        problems = [
            Problem(
                "SPARK_REFUSED",
                f"{self.path}.group_by[{i}]",
                f"{name!r} is {kind.simpleString()}: Spark divides state by exact values.",
                "Group by a whole number, a DECIMAL or text: round it, or cast it to a string.",
            )
            for i, (key, name) in enumerate(groups)
            if isinstance(kind := frame.select(named(key)).schema[0].dataType, T.FractionalType)
            and not isinstance(kind, T.DecimalType)
        ]
        if problems:
            raise InvalidJob(problems)


def _alive() -> Column:
    return named(DEAD).isNull()
