"""Marks records that fail as dead letters, which pass a query untouched to a topic of their own."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.expressions import try_evaluate
from trilithon.engines.spark.record_columns import DEAD, ID, call_probe, named


@dataclass(frozen=True)
class DeadLetters:
    """Of the query of a chain, which the probes count as `job`."""

    spark: SparkSession
    chain: Chain
    job: str

    def mark_unevaluated(
        self, frame: DataFrame, columns: Sequence[str], node: str, part: str, tried: str
    ) -> DataFrame:
        failed = named(DEAD).isNull() & named(tried).isNull()
        reason = f"{part} cannot be evaluated for this row"
        return self.mark_failed(node, columns, frame, failed, reason)

    def mark_failed(
        self, node: str, columns: Sequence[str], frame: DataFrame, failed: Column, reason: str
    ) -> DataFrame:
        """The rows that failed in a node become dead letters."""
        row = try_evaluate(self.spark, F.to_json(F.struct(*(named(name) for name in columns))))
        letter = self.letter(node, reason, row)
        marked = F.when(self.reject(node, failed), letter).otherwise(named(DEAD))
        return frame.withColumn(DEAD, marked)

    def reject(self, node: str, condition: Column) -> Column:
        return call_probe("reject", F.lit(f"{self.job}/{node}"), condition)

    def letter(
        self, node: str, reason: str, value: Column, evaluated: Column | None = None
    ) -> Column:
        """The record as a dead letter, with the error that was caught last. `evaluated` is a
        column that must be evaluated before.
        """
        chars, any_ = F.lit(self.chain.dead_letter_chars), F.lit(True)
        texts = (F.lit(reason), F.lit(node), named(ID), value)
        return call_probe("dead_letter", *texts, chars, any_ if evaluated is None else evaluated)
