"""Builds the part of a query that reads: the records of a topic, or of another part of the job."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from trilithon.engines.spark import cut_records
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.cuts import Cut
from trilithon.engines.spark.dead_letters import DeadLetters
from trilithon.engines.spark.expressions import json_rows, try_evaluate
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.record_columns import DEAD, ID, ORIGIN
from trilithon.engines.spark.record_columns import call_probe as _probe
from trilithon.engines.spark.record_columns import named as _col
from trilithon.engines.spark.record_stream import ROW, VALUE, RecordStream, ddl, refused
from trilithon.errors import InvalidJob
from trilithon.model.job import Source

_CORRUPT: Final = "$c"
# The Kafka source in the probe's jar: the connector's, with readers whose batch can be ended.
KAFKA_SOURCE: Final = "io.trilithon.source.KafkaSource"


@dataclass(frozen=True)
class SourceReader:
    """Reads the sources of a chain, from Kafka unless `frame_of` makes the frame of a source from
    the options of Spark's Kafka source.
    """

    spark: SparkSession
    chain: Chain
    kafka: Kafka
    dead_letters: DeadLetters
    frame_of: Callable[[Mapping[str, str]], DataFrame] | None = None

    def is_table(self, source: Source) -> bool:
        """Whether its rows are broadcast to be joined with."""
        return source.name in self.chain.reads and bool(self.chain.reads[source.name].table_key)

    def read(self, source: Source) -> RecordStream:
        cut = self.chain.reads.get(source.name)
        if cut is not None and cut.internal:
            return self._cut_source(source, cut)
        index = self.chain.whole.sources.index((cut and cut.source) or source)
        return self._source(source, f"sources[{index}]", cut)

    def raw(self, source: Source, more: Mapping[str, str]) -> DataFrame:
        """The records as Kafka has them."""
        return self._frame({**_reading(source, self.chain), **more, **self.kafka.options})

    def _frame(self, options: Mapping[str, str]) -> DataFrame:
        if self.frame_of is not None:
            return self.frame_of(options)
        return self.spark.readStream.format(KAFKA_SOURCE).options(**options).load()

    def _source(self, source: Source, path: str, cut: Cut | None = None) -> RecordStream:
        parts = dict(source.metadata)
        headers = {"includeHeaders": "true"} if "headers" in parts.values() else {}
        raw = self.raw(source, headers)
        columns = ", ".join([ddl(source.schema), f"`{_CORRUPT}` STRING"])
        lenient = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        origin = F.unix_micros("timestamp")
        frame = raw.select(
            F.col("value").cast("string").alias(VALUE),
            origin.alias(ORIGIN),
            cut_records.source_id(self.chain.whole, source, cut).alias(ID),
            *(F.col(part).alias(column) for column, part in parts.items()),
        ).where(
            _probe(
                "take", F.lit(f"{self.dead_letters.job}/>{source.name}"), _col(ORIGIN), _col(ORIGIN)
            )
        )
        try:
            frame = self._parsed(frame, columns, lenient)
        except PySparkException as error:
            raise InvalidJob([refused(error, f"{path}.schema")], self.dead_letters.job) from error
        row = _col(ROW)
        broken = row.isNull() | row[_CORRUPT].isNotNull()
        # Parsed once more, only if it failed, by a mode that says which field it was.
        strict = json_rows(self.spark, _col(VALUE), ddl(source.schema), {"mode": "FAILFAST"})
        letter = self.dead_letters.letter(
            source.name,
            "the value is not JSON of the source's schema",
            _col(VALUE),
            try_evaluate(self.spark, strict).isNull(),
        )
        frame = frame.select(
            *(row[field.name].alias(field.name) for field in source.schema),
            *map(_col, parts),
            _col(ORIGIN),
            _col(ID),
            F.when(self.dead_letters.reject(source.name, broken), letter).alias(DEAD),
        )
        return RecordStream(frame, tuple(field.name for field in source.columns), DEAD)

    def _parsed(self, frame: DataFrame, schema: str, options: Mapping[str, str]) -> DataFrame:
        """The frame with the rows of its JSON texts. Spark raises if a type is none of JSON's."""
        frame.select(F.from_json(_col(VALUE), schema, dict(options)))
        return frame.withColumn(ROW, json_rows(self.spark, _col(VALUE), schema, options))

    def _cut_source(self, source: Source, cut: Cut) -> RecordStream:
        """The records of another part. What they are was checked when they were written."""
        raw = self.raw(source, cut_records.reading(cut))
        frame = cut_records.received(raw, VALUE, cut, f"{self.dead_letters.job}/>{source.name}")
        strict = {"mode": "FAILFAST", **cut_records.JSON}
        try:
            frame = self._parsed(frame, ddl(source.schema), strict)
        except PySparkException as error:
            # A type that JSON does not have, such as a map whose keys are no strings.
            path = self.chain.path(self.chain.operators[0])
            raise InvalidJob([refused(error, f"{path}.inputs")], self.dead_letters.job) from error
        frame = frame.select(
            *(_col(ROW)[field.name].alias(field.name) for field in source.schema),
            _col(ORIGIN),
            _col(ID),
            F.lit(None).cast("string").alias(DEAD),
        )
        return RecordStream(frame, tuple(field.name for field in source.schema), ID)


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
