"""Builds the part of a query that writes: to sinks, to other parts of the job, to dead letters."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from trilithon.engines.spark import cut_records
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.cuts import Cut
from trilithon.engines.spark.dead_letters import DeadLetters
from trilithon.engines.spark.expressions import checked_column, try_evaluate
from trilithon.engines.spark.record_columns import DEAD, ID, ORIGIN
from trilithon.engines.spark.record_columns import call_probe as _probe
from trilithon.engines.spark.record_columns import named as _col
from trilithon.engines.spark.record_stream import VALUE, RecordStream, guarded
from trilithon.model.job import Operator

_WRITTEN: Final = "$w"
_KEYS: Final = "$h"
_CUT_VALUE: Final = "$u"
_TARGET: Final = "$z"
# What a record has beside its value and its id: the batch's and the record's own bytes, the header.
RECORD_OVERHEAD: Final = 128


@dataclass(frozen=True)
class SinkWriter:
    """Writes what the last operator of a chain gives."""

    spark: SparkSession
    chain: Chain
    dead_letters: DeadLetters

    def write(self, stream: RecordStream) -> DataFrame:
        chain, last = self.chain, self.chain.operators[-1]
        stream = guarded(self.dead_letters.job, "sinks", self._keys, stream, last)
        alive = _col(DEAD).isNull()
        row = F.struct(*(_col(name) for name in stream.columns))
        frame = stream.frame
        for column, options, needed in (
            (VALUE, {}, chain.own_sinks),
            (_CUT_VALUE, cut_records.JSON, chain.writes),
        ):
            value = F.lit(None).cast("string")
            if needed:
                value = F.when(alive, try_evaluate(self.spark, F.to_json(row, dict(options))))
            frame = frame.withColumn(column, value)
            if needed:
                frame = self.dead_letters.mark_unevaluated(
                    frame, stream.columns, last.name, "writing as JSON", column
                )
        frame = self._mark_too_large(frame, last)
        if chain.writes:
            left = F.array(*(self._left(last, cut) for cut in chain.writes.values()))
            frame = frame.withColumn(cut_records.LEFT, F.when(alive, left))
        sunk = F.lit(f"{self.dead_letters.job}/{last.name}")
        delivered = _probe("sink", sunk, _col(ORIGIN), _col(VALUE))
        if not chain.own_sinks:
            delivered = F.lit(True)
        id_ = F.encode(_col(ID), "UTF-8")
        header = {cut_records.ID_HEADER: id_}
        targets = F.array(
            *(
                cut_records.target(sink.topic, _col(_KEYS)[f"k{i}"], _col(VALUE), header)
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
        edge = F.lit(f"{self.dead_letters.job}/{last.name}>{cut.name}")
        return _probe("leave", edge, _col(_CUT_VALUE))

    def _keys(self, stream: RecordStream, last: Operator) -> RecordStream:
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
            frame = self.dead_letters.mark_unevaluated(
                frame, stream.columns, last.name, "key", _KEYS
            )
        return RecordStream(frame, stream.columns, stream.evaluated)

    def _mark_too_large(self, frame: DataFrame, last: Operator) -> DataFrame:
        """Kafka would refuse a record that is too large, and the query would fail with it again and
        again.
        """
        limit = self.chain.largest_record
        value = F.coalesce(_col(_CUT_VALUE), _col(VALUE))
        size = F.octet_length(value) + F.octet_length(_col(ID)) + RECORD_OVERHEAD
        if self.chain.writes:
            size += F.octet_length(_col(ID)) + cut_records.OVERHEAD
        if any(cut.table_key for cut in self.chain.writes.values()):
            size += F.octet_length(value)  # its key has no more than its value
        keys = [F.octet_length(_col(_KEYS)[f"k{i}"]) for i in range(len(self.chain.own_sinks))]
        if keys:
            size += F.greatest(F.lit(0), *(F.coalesce(key, F.lit(0)) for key in keys))
        too_large = _col(DEAD).isNull() & (size > limit)
        letter = self.dead_letters.letter(
            last.name, f"the record is larger than the sinks take: {limit} bytes", value
        )
        marked = F.when(self.dead_letters.reject(last.name, too_large), letter).otherwise(
            _col(DEAD)
        )
        return frame.withColumn(DEAD, marked)


def _bytes(frame: DataFrame, value: Column) -> Column:
    """A value as the bytes of a Kafka key: text in UTF-8, a struct, array or map as JSON."""
    kind = frame.select(value).schema[0].dataType
    if isinstance(kind, T.BinaryType):
        return value
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        value = F.to_json(value)
    return F.encode(value.cast("string"), "UTF-8")
