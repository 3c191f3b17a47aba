"""Texts are parsed in generated code, as Spark's from_json parses them."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from trilithon.engines.spark.expressions import json_rows, try_evaluate

pytestmark = pytest.mark.spark

SCHEMA = "n BIGINT, at TIMESTAMP, d DECIMAL(10, 2), tags ARRAY<STRING>, more MAP<STRING, INT>"
CORRUPT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "$c"}
TEXTS = [
    '{"n": 1, "at": "2026-01-01T00:00:00.123456Z", "d": 1.5, "more": {"x": 1}}',
    '{"tags": ["a", null]}',
    '{"n": 9999999999, "unknown": {"deep": [1]}}',
    '{"n": "x"}',
    '{"n": 1} and more',
    "{}",
    "[]",
    "null",
    "",
    "   ",
    "not JSON",
    '{"n": 1.5}',
    '{"tags": "none", "n": 3}',
    "ü€",
    None,
]


def test_rows_are_those_of_from_json(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in TEXTS], "v STRING")
    columns = f"{SCHEMA}, `$c` STRING"
    ours = frame.select(json_rows(spark, F.col("v"), columns, CORRUPT).alias("r"))
    sparks = frame.select(F.from_json("v", columns, CORRUPT).alias("r"))
    assert ours.schema == sparks.schema
    assert ours.collect() == sparks.collect()


def test_what_cannot_be_parsed_is_caught(spark: SparkSession) -> None:
    frame = spark.createDataFrame([('{"n": 1}',), ('{"n": "x"}',)], "v STRING")
    strict = json_rows(spark, F.col("v"), "n INT", {"mode": "FAILFAST"})
    rows = frame.select(try_evaluate(spark, strict).alias("r")).collect()
    assert [None if row["r"] is None else row["r"]["n"] for row in rows] == [1, None]


def test_the_code_of_a_stage_is_not_cut_in_parts(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("concat('{\"n\": ', id, '}') AS v")
    row = json_rows(spark, F.col("v"), "n INT", {"mode": "FAILFAST"})
    made: Any = frame.withColumn("r", row).select("r.n").where("n >= 0")
    plan = made._jdf.queryExecution().executedPlan().toString()
    assert all(line.lstrip(" :+-").startswith("*(1)") for line in plan.splitlines() if line), plan
