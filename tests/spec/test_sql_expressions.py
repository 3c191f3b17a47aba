"""Expressions: what Spark may be given, and what it may not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_cost import costs_at_most
from trilithon.spec.functions import AGGREGATE, ALLOWED, KEEPING, OWN, SCALAR
from trilithon.spec.sql_expressions import parse_expression


@pytest.mark.parametrize(
    ("text", "columns", "output"),
    [
        ("user", ("user",), "user"),
        ("v + 1 AS w", ("v",), "w"),
        ("a.b.c AS d", ("a",), "d"),
        ("url IS NOT NULL AND length(url) > 3", ("url",), None),
        ("CASE WHEN (v > 1) THEN 'x' ELSE (w) END AS c", ("v", "w"), "c"),
        ("transform(split(line, ' '), x -> upper(x)) AS words", ("line",), "words"),
        ("aggregate(sequence(1, 9), v, (a, x) -> sha2(concat(a, x), 256)) AS h", ("v",), "h"),
        ("cast(v AS decimal(10, 2)) AS d", ("v",), "d"),
        ("v IN (1, 2, 3)", ("v",), None),
        ("`strange name` AS s", ("strange name",), "s"),
        ("'java_method(x)' AS harmless", (), "harmless"),
        ("wait(10) AS waited", (), "waited"),
        ("at + INTERVAL 1 DAY AS tomorrow", ("at",), "tomorrow"),
        ("name LIKE ANY ('a%', 'b%')", ("name",), None),
        ("parse_url(url, 'HOST') AS host", ("url",), "host"),
    ],
)
def test_what_an_expression_reads_and_gives(
    text: str, columns: tuple[str, ...], output: str | None
) -> None:
    parsed = parse_expression(text)
    assert parsed.problems == ()
    assert sorted(parsed.columns) == sorted(columns)
    assert parsed.output == output


@pytest.mark.parametrize(
    "text",
    [
        "java_method('java.lang.System', 'exit', 0)",
        "reflect('java.lang.Runtime', 'getRuntime')",
        "try_reflect('a', 'b')",
        "`reflect`('a', 'b')",
        "REFLECT\n('a')",
        "reflect /* */ ('a')",
        "concat('a', reflect('b'))",
        "v IN (reflect('b'))",
        "transform(a, x -> reflect(x))",
        "system.builtin.reflect('a')",
        "trilithon.wait(10)",
        "input_file_name()",
        "current_user()",
        "current_user",
        "SESSION_USER",
        "current_database()",
        "read_files('/etc/passwd')",
        "explode(a)",
        "window(at, '1 second')",
        "raise_error('x')",
        "version()",
        "nosuchfunction(1)",
        "1reflect('a')",
        "ｒeflect('a')",
        "reflect\u200b('a')",
        "1.reflect('a')",
        "and(x)",
        "values(x)",
        "by(x)",
        "numeric(x)",
        "concat(`'`, current_user, `'`)",
        "(TABLE secret)",
        "x = (TABLE secret)",
        "'${env:HOME}'",
        "x AS `${spark.master}`",
        "x -> reflect(x)",
    ],
)
def test_a_function_that_is_not_on_the_list_is_refused(text: str) -> None:
    codes = [problem.code for problem in parse_expression(text).problems]
    assert codes
    assert set(codes) <= {"FUNCTION_NOT_ALLOWED", "EXPRESSION_NOT_ALLOWED"}


@pytest.mark.parametrize(
    "text",
    [
        "(SELECT 1)",
        "EXISTS (SELECT 1)",
        "v = (SELECT max(x) FROM t)",
        "sum(v) OVER (PARTITION BY k)",
        "v; DROP TABLE t",
        "v -- comment",
        "v /* comment */",
        "${spark.master}",
        ":parameter",
        "a AS b, c",
        "SELECT v",
        "TRANSFORM(v) USING 'cat' AS w",
        "(((",
        "",
        "   ",
        "v +",
        "'open",
        "x" * 5000,
        "(" * 100 + "v" + ")" * 100,
        "IDENTIFIER('reflect')('a')",
    ],
)
def test_what_is_not_one_plain_expression_is_refused(text: str) -> None:
    assert parse_expression(text).problems


def test_the_variable_of_a_lambda_hides_a_column_only_within_it() -> None:
    """Outside of the lambda, Spark would take `user` for the name of the session's user."""
    text = "concat(user, array_join(transform(array('a'), user -> user), '')) AS x"
    assert parse_expression(text).columns == ("user",)
    assert parse_expression("transform(xs, x -> transform(x, y -> x + y)) AS z").columns == ("xs",)


@pytest.mark.parametrize(
    "text",
    [
        "(a + b) * (c - d) AS e",
        "NOT (a)",
        "a AND (b OR (c))",
        "x NOT IN (1, 2)",
        "-(a) AS n",
        "x NOT BETWEEN (1) AND (2)",
        "extract(hour FROM (at)) AS h",
        "trim(BOTH FROM (a)) AS t",
        "substring(a FROM (1) FOR (2)) AS s",
        "a IS NOT DISTINCT FROM (b)",
        "count(DISTINCT (a)) AS n",
        "a::decimal(10, 2) AS d",
        "a[(1)] AS b",
        "a div (b) AS c",
        "'f(x)' || (a) AS s",
        "`table` AS t",
        "a <=> (b)",
        "at > current_timestamp()",
        "current_date AS d",
        "regexp_replace(a, '(x|y(z))', '') AS r",
        "CASE WHEN a THEN 1 END" + " + CASE WHEN a THEN 1 END" * 20 + " AS n",
        "struct(a, b) AS s",
    ],
)
def test_what_people_write_is_not_refused(text: str) -> None:
    assert parse_expression(text).problems == ()


def test_a_near_miss_gets_a_suggestion() -> None:
    (problem,) = parse_expression("lenght(v)").problems
    assert "'length'" in problem.hint


@given(st.text(max_size=60))
def test_whatever_is_written_the_answer_comes(text: str) -> None:
    parsed = parse_expression(text)
    assert all(problem.message for problem in parsed.problems)


@pytest.mark.parametrize(
    "text",
    [
        "a" + "+a" * 2000,
        "NOT " * 1000 + "a",
        "- " * 2000 + "a",
        "a" + ".b" * 1500,
        "a" + "[0]" * 1000,
        "CASE WHEN a THEN " * 100,
        "x -> " * 500 + "x",
        "a" + " OR a" * 800,
        "((a" * 600,
        "a" + "::int" * 700,
    ],
)
def test_a_pathological_expression_costs_little(text: str) -> None:
    def parse() -> None:
        parse_expression.cache_clear()
        parse_expression(text)

    assert costs_at_most(10, parse)


def test_the_lists_do_not_overlap_where_they_must_not() -> None:
    assert not SCALAR & AGGREGATE
    assert OWN <= SCALAR
    assert KEEPING <= AGGREGATE
    dangerous = {
        "java_method",
        "reflect",
        "try_reflect",
        "input_file_name",
        "current_user",
        "version",
        "read_files",
        "explode",
        "window",
        "spark_partition_id",
        "raise_error",
        "current_catalog",
        "session_user",
        "from_avro",
    }
    assert not dangerous & ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        "repeat(s, 2147483647)",
        "repeat('0123456789', 2000000)",
        "lpad(s, 3000000, 'x')",
        "rpad(s, 3e9, 'x')",
        "upper(space(2147483647))",
        "array_repeat(v, 2147483647L)",
        "array_insert(a, -2147483647, v)",
        "format_number(v, 2000000000)",
        "sequence(1, 2000000000)",
        "sequence(2000000000, -2000000000, -1)",
        "transform(a, x -> repeat(x, 99999999))",
        "sequence(CAST(rand() * 9 AS INT), v)",
        "sequence(size(sequence(1, v)), 3)",
    ],
)
def test_a_constant_that_asks_for_too_much_memory_is_refused(text: str) -> None:
    assert [problem.code for problem in parse_expression(text).problems] == ["RESULT_TOO_LARGE"]


@pytest.mark.parametrize(
    "text",
    [
        "repeat(s, 100)",
        "repeat(s, v)",
        "lpad(s, 2000000, 'x')",
        "sequence(1, v)",
        "sequence(1, 2000000)",
        "sequence(0, 2000000000, 1000)",
        "sequence(at, at + INTERVAL 1 DAY, INTERVAL 1 HOUR)",
        "'repeat(s, 2147483647)'",
        "rand() + size(sequence(1, 5))",
    ],
)
def test_what_may_be_asked_for_is_accepted(text: str) -> None:
    assert parse_expression(text).problems == ()
