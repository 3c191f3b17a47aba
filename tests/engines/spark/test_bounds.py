"""Functions that can make much of little: bounded by their records, otherwise as Spark's."""

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from trilithon.engines.spark.expressions import checked_column, try_evaluate

pytestmark = pytest.mark.spark

FIELDS = "s STRING, n INT, big BIGINT, a ARRAY<STRING>, d DATE, t TIMESTAMP, b BINARY"
COLUMNS = ("s", "n", "big", "a", "d", "t", "b")
# A column of 1 MiB, twenty times.
LARGE = ", ".join(["large"] * 20)
WIDE = ", ".join(f"f{i} INT" for i in range(300))
NAMED = [f"'f{i}', large" for i in range(20)]


@pytest.mark.parametrize(
    "text",
    [
        "repeat(s, n)",
        "lpad(s, n, 'x')",
        "rpad(s, n)",
        "space(n)",
        "sequence(1, n)",
        "sequence(n, big)",
        "sequence(big, 1, -1)",
        "sequence(t, t + INTERVAL 10 YEARS, INTERVAL 1 SECOND)",
        "array_repeat(s, n)",
        "array_insert(a, n, s)",
        "format_string(concat('%', n, 'd'), n)",
        "format_number(1.5, n)",
        "replace(lpad(s, 5000, 'x'), 'x', lpad(s, 5000, 'x'))",
        "regexp_replace(lpad(s, 5000, 'x'), 'x', lpad(s, 5000, 'x'))",
        # Each call is small; what grows is what is made of it.
        "aggregate(sequence(1, 40), s, (x, i) -> concat(x, x))",
        "aggregate(sequence(1, 40), s, (x, i) -> x || x)",
        "aggregate(sequence(1, 40), s, (x, i) -> hex(x))",
        "transform(sequence(1, 100000), x -> lpad(s, 100000))",
        "transform(sequence(1, 100000), x -> sequence(1, 100000))",
        "flatten(array_repeat(array_repeat(s, 10000), 10000))",
        # Put together of the same value again and again; of nothing else.
        f"array({LARGE})",
        f"struct({LARGE})",
        f"named_struct({', '.join(NAMED)})",
        f"map({', '.join(NAMED)})",
        f"map_from_arrays(sequence(1, 20), array({LARGE}))",
        # Each pair of braces becomes a struct with all fields.
        f"from_json(concat('[', repeat('{{}},', 9999), '{{}}]'), 'array<struct<{WIDE}>>')",
    ],
)
def test_a_record_that_asks_for_too_much_memory_fails_by_itself(
    spark: SparkSession, text: str
) -> None:
    rows = (
        spark.createDataFrame(
            [("ab", 2_000_000_000, 4_000_000_000, ["x"], None, None, None)], FIELDS
        )
        .withColumn("t", expr("timestamp_seconds(0)"))
        .withColumn("large", expr("repeat('x', 1048576)"))
    )
    columns = (*COLUMNS, "large")
    made = rows.select(try_evaluate(spark, checked_column(spark, text, columns, "where")))
    assert made.collect()[0][0] is None


@pytest.mark.parametrize(
    "text",
    [
        "repeat(s, n)",
        "repeat(n, 3)",
        "repeat(s, -1)",
        "repeat(NULL, n)",
        "lpad(s, n)",
        "rpad(b, n)",
        "space(n)",
        "sequence(1, n)",
        "sequence(n, 1)",
        "sequence(1S, 3S)",
        "sequence(1, NULL)",
        "sequence(big, big + 10, 5)",
        "sequence(d, d + INTERVAL 2 MONTHS, INTERVAL 1 MONTH)",
        "sequence(t, t + INTERVAL 1 DAY, INTERVAL 6 HOURS)",
        "sequence(d, DATE'2026-01-05')",
        "array_repeat(s, n)",
        "array_insert(a, 3, s)",
        "format_string('%05d %s', n, s)",
        "format_number(1.5, 2)",
        "format_number(1.5, '#.00')",
        "replace(s, 'a', 'xyz')",
        "replace(s, 'a')",
        "replace(s, NULL, 'x')",
        "regexp_replace(s, '(a)', '$1$1')",
        "s || NULL",
        "concat(b, b)",
        "concat(a, a)",
        "concat_ws('-', a, s)",
        "transform(a, x -> concat(x, s))",
        "aggregate(a, '', (x, y) -> x || y)",
        # A long loop that keeps little is within the bounds.
        "aggregate(sequence(1, 300000), s, (x, i) -> lpad(concat(x, i), 100, 'x'))",
        "aggregate(sequence(1, 3), 0, (x, i) -> x + i, x -> x * 10)",
        "aggregate(transform(a, x -> aggregate(a, x, (p, q) -> p || q)), '', (p, q) -> p || q)",
        "flatten(transform(sequence(1, n), i -> array(i, i)))",
        "map_concat(map(s, n), map('z', 1))",
        "to_json(named_struct('s', s, 'n', n))",
        "array(s, s)",
        "array()",
        "struct(s, n AS m, 1)",
        "named_struct('s', s, 'n', n).s",
        "map('s', s, 'a', 'b')['s']",
        "map_from_arrays(array(s, 'x'), sequence(1, 2))",
        "(s, n) IN (('banana', 4), ('p', 1))",
        "aggregate(a, named_struct('n', 0), (x, y) -> named_struct('n', x.n + 1), x -> x.n)",
        # These want constants.
        "from_json('{\"v\": 1}', 'v INT', map('mode', 'FAILFAST')).v",
        "to_json(struct(t), map('timestampFormat', 'yyyy'))",
        "from_json('[{\"v\": 1}, {}]', 'array<struct<v INT, w STRING>>')",
        'from_json(\'{"v": 1}\', schema_of_json(\'{"v": 1, "w": [2]}\')).v',
        "from_json(s, 'v INT')",
        "from_csv('1,2', 'v INT, w INT').w",
    ],
)
def test_within_the_bounds_a_function_gives_what_sparks_own_gives(
    spark: SparkSession, text: str
) -> None:
    rows = spark.createDataFrame(
        [("banana", 4, 10, ["p", None, "q"], date(2026, 1, 1), None, b"ab")], FIELDS
    ).withColumn("t", expr("timestamp_seconds(86400)"))
    bounded = rows.select(checked_column(spark, text, COLUMNS, "where").alias("v"))
    plain = rows.select(expr(text).alias("v"))
    assert bounded.schema["v"].dataType == plain.schema["v"].dataType
    assert bounded.collect() == plain.collect()


def test_texts_are_bounded_in_generated_code(spark: SparkSession) -> None:
    """A call without a static method cuts a stage in two, and what it is around is interpreted."""
    rows = spark.range(1).selectExpr("concat('a', id) AS s")
    made: Any = rows.select(checked_column(spark, "base64(encode(s, 'UTF-8'))", ("s",), "where"))
    plan = made._jdf.queryExecution().executedPlan().toString()
    assert "BoundedFunctions$TextResult" in plan
    assert all(line.lstrip(" :+-").startswith("*(1)") for line in plan.splitlines() if line), plan


def test_in_an_aggregate_values_are_put_together_as_spark_does_it(spark: SparkSession) -> None:
    """Spark takes no non-deterministic call in the argument of an aggregate function."""
    rows = spark.createDataFrame([("a", 1), ("b", 3), ("c", 2)], "s STRING, n INT")
    text = "max(struct(n, s)).s"
    column = checked_column(spark, text, ("s", "n"), "aggregate.latest", aggregate=True)
    assert rows.groupBy().agg(column.alias("latest")).collect()[0]["latest"] == "b"
