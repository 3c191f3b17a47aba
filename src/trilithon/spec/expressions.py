"""Owns what an expression in a job may say: one Spark SQL expression, of allowed functions only.

The text goes to Spark as it was written, so that the check works on that text: every name before a
parenthesis must be on the list, whatever a parser makes of it, and the parsed tree may hold only
expressions, no queries, no windows, no parameters.
"""

import difflib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from trilithon.spec.functions import AGGREGATE, ALLOWED

# The parser logs what it does not know; here that becomes an error, not a line on stderr.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

MAX_LENGTH: Final = 4096
MAX_NESTING: Final = 32
# Words that stand before a parenthesis and call nothing.
_WORDS: Final = frozenset(
    """and or not in like ilike rlike regexp between is then else when case end as on interval div
    distinct from for values all any some by""".split()
)
# Types that take parentheses or that Spark also knows as functions.
_TYPES: Final = frozenset({"decimal", "dec", "numeric", "char", "varchar"})
_FORBIDDEN_NODES: Final = (
    exp.Query, exp.Window, exp.Command, exp.Parameter, exp.Placeholder, exp.SessionParameter,
    exp.DDL, exp.DML, exp.Table, exp.Lateral, exp.Join, exp.Into, exp.Set, exp.Use,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong with an expression: becomes a problem once its place is known."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the rest of a job needs to know of an expression."""

    complaints: tuple[Complaint, ...]
    columns: tuple[str, ...] = ()
    output: str | None = None
    star: bool = False
    aggregates: tuple[str, ...] = ()
    bare_columns: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def parse(text: str) -> Parsed:
    """Takes an expression apart; what is wrong with it is in its complaints."""
    if not text.strip():
        return _wrong("EXPRESSION_SYNTAX", "The expression is empty.", "Write one or leave it out.")
    if len(text) > MAX_LENGTH:
        return _wrong("EXPRESSION_TOO_LONG", f"The expression has {len(text)} characters.",
                      f"Use at most {MAX_LENGTH}; split it over several operators.")  # fmt: skip
    if _nesting(text) > MAX_NESTING:
        return _wrong("EXPRESSION_TOO_LONG", f"More than {MAX_NESTING} parentheses within each other.",
                      "Split it over several operators.")  # fmt: skip
    try:
        words = Spark().tokenize(text)
        trees = Spark().parse(text)
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError) as error:
        return _wrong("EXPRESSION_SYNTAX", f"This is not a Spark SQL expression: {_reason(error)}.",
                      "Write one expression, as in Spark's `expr`.")  # fmt: skip
    if len(trees) != 1 or trees[0] is None:
        return _wrong("EXPRESSION_SYNTAX", "One expression is expected here.", "Write just one.")
    tree = trees[0]
    complaints = (*_bad_calls(words), *_bad_nodes(tree, text))
    if complaints:
        return Parsed(complaints)
    return Parsed(
        complaints=(),
        columns=tuple(_columns(tree)),
        output=_output(tree),
        star=isinstance(tree, exp.Star),
        aggregates=tuple(sorted({name for name, _ in _calls(words) if name in AGGREGATE})),
        bare_columns=tuple(_outside_aggregates(tree)),
    )


def _wrong(code: str, message: str, hint: str) -> Parsed:
    return Parsed((Complaint(code, message, hint),))


def _nesting(text: str) -> int:
    deepest = depth = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        deepest = max(deepest, depth)
    # Words nest as well.
    return max(deepest, len(re.findall(r"(?i)\bcase\b", text)))


def _reason(error: Exception) -> str:
    plain = re.sub(r"\x1b\[\d+m", "", str(error))
    return plain.splitlines()[0].rstrip(". ") if plain else type(error).__name__


def _calls(words: list[Token]) -> Iterator[tuple[str, bool]]:
    """Every name that stands before a parenthesis, and whether it is qualified by another."""
    for i, word in enumerate(words[:-1]):
        if words[i + 1].token_type is not TokenType.L_PAREN:
            continue
        if not re.fullmatch(r"[A-Za-z_]\w*", word.text) and not word.text.startswith("`"):
            quoted = word.token_type in {TokenType.IDENTIFIER, TokenType.STRING}
            if not quoted:
                continue
        name = word.text.strip("`").lower()
        before = words[i - 1].text.lower() if i else ""
        if name in {"any", "all", "some"} and before in {"like", "ilike"}:
            continue
        qualified = before == "."
        if qualified or (name not in _WORDS and name not in _TYPES) or name in ALLOWED:
            yield name, qualified


def _bad_calls(words: list[Token]) -> Iterator[Complaint]:
    for name, qualified in _calls(words):
        if qualified:
            yield Complaint("FUNCTION_NOT_ALLOWED", f"{name!r} is called by a qualified name.",
                            "Call Spark's built-in functions by their plain names.")  # fmt: skip
        elif name not in ALLOWED and name not in _WORDS:
            near = difflib.get_close_matches(name, ALLOWED, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            yield Complaint("FUNCTION_NOT_ALLOWED", f"The function {name!r} is not allowed.",
                            f"{hint}docs/reference/functions.md lists those that are.")  # fmt: skip
    if any(word.comments for word in words):
        yield Complaint("EXPRESSION_NOT_ALLOWED", "A comment inside an expression.",
                        "Put it beside the expression, with #.")  # fmt: skip


def _bad_nodes(tree: exp.Expression, text: str) -> Iterator[Complaint]:
    for node in tree.walk():
        if isinstance(node, _FORBIDDEN_NODES):
            kind = type(node).__name__.lower()
            yield Complaint("EXPRESSION_NOT_ALLOWED", f"A {kind} is not allowed in an expression.",
                            "Use the operator's own parts for it: join, window, aggregate.")  # fmt: skip
            return
    plain = _without_strings(text)
    if re.search(r"(?i)\busing\b|--|/\*|;", plain):
        yield Complaint("EXPRESSION_NOT_ALLOWED", "Comments, ';' and USING are not allowed.",
                        "Write one plain expression.")  # fmt: skip
    # These read settings of the session and need no parentheses.
    if found := re.search(r"(?i)\b(session_user|current_(user|catalog|database|schema))\b", plain):
        yield Complaint("FUNCTION_NOT_ALLOWED", f"{found.group().lower()!r} is not allowed.",
                        "An expression may read its row and nothing else.")  # fmt: skip


def _without_strings(text: str) -> str:
    return re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "''", text)


def _columns(tree: exp.Expression) -> Iterator[str]:
    """The columns that the expression reads: the first part of each name."""
    bound = _lambda_names(tree)
    seen: set[str] = set()
    for column in tree.find_all(exp.Column):
        name = column.parts[0].name
        if isinstance(column.this, exp.Star) or name.lower() in bound or name in seen:
            continue
        seen.add(name)
        yield name


def _lambda_names(tree: exp.Expression) -> set[str]:
    return {
        bound.name.lower()
        for function in tree.find_all(exp.Lambda)
        for bound in function.expressions
    }


def _outside_aggregates(tree: exp.Expression) -> Iterator[str]:
    bound = _lambda_names(tree)
    for column in tree.find_all(exp.Column):
        name = column.parts[0].name
        if name.lower() not in bound and column.find_ancestor(exp.AggFunc) is None:
            yield name


def _output(tree: exp.Expression) -> str | None:
    """The name of the result: an alias, or a column's own name; None when Spark would make one up."""
    if isinstance(tree, exp.Alias):
        return tree.alias
    if isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star):
        return tree.name
    return None


def unknown_columns(names: Iterable[str], known: Iterable[str]) -> Iterator[Complaint]:
    """Columns that are not there. Spark does not tell upper from lower case, and neither do we."""
    available = list(known)
    lower = {name.lower() for name in available}
    for name in names:
        if name.lower() not in lower:
            near = difflib.get_close_matches(name, available, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            listed = ", ".join(available) or "none"
            yield Complaint("UNKNOWN_COLUMN", f"There is no column {name!r} here.",
                            f"{hint}The columns are: {listed}.")  # fmt: skip
