"""Owns a user's expression on its way into Spark: the probe's functions put in, and what Spark's own
parser made of the text checked once more.

The reader of job files checks the text with another parser (`spec/expressions.py`). Here the tree that
Spark will run is walked, and that very tree goes into the query: two parsers that read a text
differently are no way around the list of functions.
"""

import difflib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from sqlglot.dialects import Spark
from sqlglot.tokenizer_core import TokenType

from trilithon.engines.spark.session import CATALOG
from trilithon.errors import InvalidJob, Problem
from trilithon.spec.functions import ALLOWED, OWN

# Every kind of node that Spark's parser makes of an expression that the reader of job files lets
# through. What is not here is refused: subqueries, windows, parameters, names made by IDENTIFIER(),
# and stars within an expression, which would give out our own columns.
_NODES: Final = frozenset(
    """Add Alias And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat CreateNamedStruct
    Divide EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In IntegralDivide IsNotNull IsNull
    LambdaFunction LessThan LessThanOrEqual Like LikeAll LikeAny Literal Multiply Not NotLikeAll NotLikeAny
    Or Overlay RLike Remainder ShiftLeft ShiftRight ShiftRightUnsigned StringLocate StringTrim
    StringTrimLeft StringTrimRight Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive
    UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction
    UnresolvedNamedLambdaVariable""".split()
)
# What Spark's parser itself calls by these names.
_OPERATORS: Final = frozenset({"between"})
# Read without parentheses; a column of the name goes before.
_BARE: Final = frozenset({"current_date", "current_timestamp", "localtimestamp"}) & ALLOWED


def with_own_functions(text: str) -> str:
    """`wait(10)` → `trilithon.wait(10)`: the probe's functions live in a catalog of their own."""
    words = Spark().tokenize(text)
    result, done = "", 0
    for i, (word, after) in enumerate(pairwise(words)):
        qualified = i > 0 and words[i - 1].token_type is TokenType.DOT
        if (
            word.text.lower() in OWN
            and word.token_type is not TokenType.STRING
            and after.token_type is TokenType.L_PAREN
            and not qualified
        ):
            result += f"{text[done : word.start]}{CATALOG}.{word.text.lower()}"
            done = word.end + 1
    return result + text[done:]


def checked(spark: SparkSession, text: str, columns: Sequence[str], path: str) -> Column:
    """The expression as a column over rows of these columns. Raises `InvalidJob` for what it may not say."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - py4j
    try:
        tree = session.sessionState().sqlParser().parseExpression(with_own_functions(text))
    except Exception as error:
        raise InvalidJob([_syntax(error, path)]) from error
    if problems := tuple(_complaints(tree, columns, path)):
        raise InvalidJob(problems)
    return ClassicColumn(_tools(spark).column(tree))


def attempted(spark: SparkSession, column: Column) -> Column:
    """The column's value, or null where evaluating it throws.

    Spark has `try_` forms of a few functions only; its own node behind them takes any expression.
    """
    catalyst: Any = spark._jvm.org.apache.spark.sql.catalyst.expressions  # type: ignore[union-attr]  # noqa: SLF001
    inner: Any = column._jc  # noqa: SLF001
    tools = _tools(spark)
    return ClassicColumn(tools.column(catalyst.TryEval(tools.expression(inner))))


def _tools(spark: SparkSession) -> Any:
    return spark._jvm.org.apache.spark.sql.classic.ExpressionUtils  # type: ignore[union-attr]  # noqa: SLF001


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    children = tree.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def _complaints(tree: Any, columns: Sequence[str], path: str) -> Iterator[Problem]:
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
    own = {f"{CATALOG}.{function}" for function in OWN}
    if name not in (ALLOWED - OWN) | _OPERATORS | own:
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
        f"Spark does not understand this: {first}",
        "Write one expression.",
    )
