"""Turns a user's expression into a Spark column: qualifies the probe's functions and checks the
tree that Spark's own parser made of the text.

The reader of job files checks the text with another parser (`spec/sql_expressions.py`). Here the
tree that Spark will run is checked, and that same tree goes into the query. So a text that the two
parsers read differently cannot get around the list of allowed functions. In it the probe bounds the
calls that could make more of a record than there is memory.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from sqlglot.dialects import Spark
from sqlglot.tokenizer_core import TokenType

from trilithon.engines.spark.session import CATALOG
from trilithon.errors import InvalidJob, Problem
from trilithon.spec.functions import ALLOWED, OWN

# Every kind of node that Spark's parser makes of an expression that job files may contain. All
# others are refused: subqueries, windows, parameters, names made by IDENTIFIER(), and stars within
# an expression, which would expose Trilithon's own columns.
_NODES: Final = frozenset(
    """Add AggregateExpression Alias And AnyValue BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    CaseWhen Cast Concat CreateNamedStruct Divide EqualNullSafe EqualTo First GreaterThan
    GreaterThanOrEqual ILike In IntegralDivide IsNotNull IsNull LambdaFunction Last LessThan
    LessThanOrEqual Like LikeAll LikeAny Literal Multiply Not NotLikeAll NotLikeAny Or Overlay
    RLike Remainder ShiftLeft ShiftRight ShiftRightUnsigned StringLocate StringTrim
    StringTrimLeft StringTrimRight Substring Subtract TimestampAdd TimestampDiff UnaryMinus
    UnaryPositive UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction
    UnresolvedNamedLambdaVariable""".split()
)
# Operators that Spark's parser turns into function calls of these names.
_OPERATORS: Final = frozenset({"between"})
# Functions that may be written without parentheses; a column of that name has precedence.
_BARE: Final = frozenset({"current_date", "current_timestamp", "localtimestamp"}) & ALLOWED
# Trilithon's own functions as Spark finds them. The probe has them in a catalog of its own, except
# one that Spark has: behind the shuffle before an operator, partitions are its instances.
_OWN_NAMES: Final = {name: f"{CATALOG}.{name}" for name in OWN} | {
    "instance_number": "spark_partition_id"
}


def qualify_probe_functions(text: str) -> str:
    """`wait(10)` → `trilithon.wait(10)`: Trilithon's own functions by their names in Spark."""
    tokens = Spark().tokenize(text)
    result, copied = "", 0
    for i, (token, after) in enumerate(pairwise(tokens)):
        qualified = i > 0 and tokens[i - 1].token_type is TokenType.DOT
        if (
            token.text.lower() in OWN
            and token.token_type is not TokenType.STRING
            and after.token_type is TokenType.L_PAREN
            and not qualified
        ):
            result += f"{text[copied : token.start]}{_OWN_NAMES[token.text.lower()]}"
            copied = token.end + 1
    return result + text[copied:]


def checked_column(
    spark: SparkSession, text: str, columns: Sequence[str], path: str, *, aggregate: bool = False
) -> Column:
    """The expression as a column over rows with these columns, or with `aggregate` over groups of
    them. Raises `InvalidJob` for anything that is not allowed.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001 - py4j
    try:
        tree = session.sessionState().sqlParser().parseExpression(qualify_probe_functions(text))
    except Exception as error:
        raise InvalidJob([_syntax(error, path)]) from error
    if problems := tuple(_problems(tree, columns, path)):
        raise InvalidJob(problems)
    jvm: Any = spark._jvm  # noqa: SLF001 - py4j
    bounded = jvm.io.trilithon.probe.Bounds.apply(tree, CATALOG, not aggregate)
    return ClassicColumn(_converter(spark).column(bounded))


def json_rows(spark: SparkSession, text: Column, schema: str, options: Mapping[str, str]) -> Column:
    """The text as a row of this schema, as by `from_json`, but in generated code. Spark's analyser
    does not check the schema.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - py4j
    given: Any = text._jc  # noqa: SLF001
    convert, zone = _converter(spark), spark.conf.get("spark.sql.session.timeZone")
    parsed = jvm.io.trilithon.probe.JsonRows.parsed(
        convert.expression(given), schema, dict(options), zone
    )
    return ClassicColumn(convert.column(parsed))


def try_evaluate(spark: SparkSession, column: Column) -> Column:
    """The column's value, or null where evaluating it throws.

    Spark has `try_` variants of a few functions only; the node behind them takes any expression.
    The probe's variant keeps the error for the record's dead letter.
    """
    return _catching(spark, column, "")


def named_field(spark: SparkSession, column: Column, name: str) -> Column:
    """The column; if evaluating it throws, the dead letter names the field."""
    return _catching(spark, column, name)


def _catching(spark: SparkSession, column: Column, field: str) -> Column:
    jvm: Any = spark._jvm  # noqa: SLF001 - py4j
    inner: Any = column._jc  # noqa: SLF001
    convert = _converter(spark)
    tried = jvm.io.trilithon.probe.CatchingEval(convert.expression(inner), field)
    return ClassicColumn(convert.column(tried))


def _converter(spark: SparkSession) -> Any:
    """Spark's conversion between columns and expression trees."""
    jvm: Any = spark._jvm  # noqa: SLF001 - py4j
    return jvm.org.apache.spark.sql.classic.ExpressionUtils


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    children = tree.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def _problems(tree: Any, columns: Sequence[str], path: str) -> Iterator[Problem]:
    for node in _nodes(tree):
        kind = node.getClass().getSimpleName().rstrip("$")
        if kind not in _NODES:
            yield Problem(
                "EXPRESSION_NOT_ALLOWED",
                path,
                f"Spark reads a {kind} here, which is not allowed in an expression.",
                "Use plain columns, operators and functions.",
            )
        elif kind == "UnresolvedFunction":
            yield from _bad_function(_parts(node), path)
        elif kind == "UnresolvedAttribute":
            yield from _bad_column(_parts(node)[0], columns, path)


def _parts(node: Any) -> list[str]:
    parts = node.nameParts()
    return [str(parts.apply(i)) for i in range(parts.size())]


def _bad_function(parts: list[str], path: str) -> Iterator[Problem]:
    name = ".".join(parts).lower()
    if name not in (ALLOWED - OWN) | _OPERATORS | {*_OWN_NAMES.values()}:
        yield Problem(
            "FUNCTION_NOT_ALLOWED",
            path,
            f"Spark reads a call of {name!r} here, which is not allowed.",
            "docs/reference/functions.md lists the functions that are.",
        )


def _bad_column(name: str, columns: Sequence[str], path: str) -> Iterator[Problem]:
    known = {column.lower() for column in columns}
    if name.lower() not in known | _BARE:
        near = difflib.get_close_matches(name, columns, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        yield Problem(
            "UNKNOWN_COLUMN",
            path,
            f"There is no column {name!r} here.",
            f"{hint}The columns are: {', '.join(columns)}.",
        )


def _syntax(error: Exception, path: str) -> Problem:
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    return Problem(
        "EXPRESSION_SYNTAX",
        path,
        f"Spark cannot parse this: {first}",
        "Write one expression.",
    )
