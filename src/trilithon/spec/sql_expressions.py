"""Owns what an expression in a job may say: one Spark SQL expression, of allowed functions only.

The text goes to Spark as it was written, so that the check works on the words of that text: whatever
stands before a parenthesis must be known to be harmless there, and everything else is refused. The
parsed tree tells which columns are read; it may hold only expressions.
"""

import difflib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from trilithon.spec.functions import AGGREGATE, ALLOWED

# The parser logs what it does not know; here that becomes an error, not a line on stderr.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

MAX_LENGTH: Final = 4096
MAX_WORDS: Final = 300
MAX_NESTING: Final = 24
# The parser tries each of these as a type and as a call: its time doubles with every level.
MAX_STRUCTS: Final = 6
COLUMN_NAME: Final = re.compile(r"[\w][\w -]{0,127}")

# Words that may stand before a parenthesis because of what stands before them.
_AFTER_OPERAND: Final = frozenset("and or in like ilike rlike regexp between div from for".split())
_ANYWHERE: Final = frozenset("not when then else case".split())
_TYPES: Final = frozenset("decimal dec numeric char varchar".split())
# Words that make a query, or a call without parentheses that reads settings.
_FORBIDDEN: Final = frozenset(
    """table select values with using lateral over current_user session_user current_catalog
    current_database current_schema""".split()
)
_KEYWORDS: Final = _AFTER_OPERAND | _FORBIDDEN | frozenset("as except end is by interval".split())
_FORBIDDEN_NODES: Final = (
    exp.Query, exp.Window, exp.Command, exp.Parameter, exp.Placeholder, exp.SessionParameter,
    exp.DDL, exp.DML, exp.Table, exp.Lateral, exp.Join, exp.Into, exp.Set, exp.Use,
)  # fmt: skip
_NAMES: Final = frozenset({TokenType.IDENTIFIER, TokenType.VAR})
_LITERALS: Final = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.RAW_STRING})
_QUOTED: Final = _LITERALS | {TokenType.IDENTIFIER}
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.COMMA})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


@dataclass(frozen=True, slots=True)
class ExpressionProblem:
    """What is wrong with an expression: becomes a problem once its place is known."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class ParsedExpression:
    """What the rest of a job needs to know of an expression."""

    complaints: tuple[ExpressionProblem, ...]
    columns: tuple[str, ...] = ()
    output: str | None = None
    star: bool = False
    aggregates: tuple[str, ...] = ()
    bare_columns: tuple[str, ...] = ()
    words: int = 0


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> ParsedExpression:
    """Takes an expression apart; what is wrong with it is in its complaints."""
    if complaint := _bad_text(text):
        return ParsedExpression((complaint,))
    try:
        words = Spark().tokenize(text)
        if complaints := tuple(_bad_words(words)):
            return ParsedExpression(complaints)
        trees = Spark().parser().parse(words, text)
    except Exception as error:  # noqa: BLE001 - a foreign parser, on text that may be hostile
        return _wrong(_reason(error), "Write one expression, as in Spark's `expr`.")
    if len(trees) != 1 or trees[0] is None:
        return _wrong("one expression is expected here", "Write just one.")
    tree = trees[0]
    if complaints := tuple(_bad_nodes(tree)):
        return ParsedExpression(complaints)
    return ParsedExpression(
        complaints=(),
        columns=tuple(dict.fromkeys(name for name, _ in _columns(tree))),
        output=_output(tree),
        star=isinstance(tree, exp.Star),
        aggregates=tuple(sorted({name for name in _calls(words) if name in AGGREGATE})),
        bare_columns=tuple(name for name, inside in _columns(tree) if not inside),
        words=len(words),
    )


def _wrong(reason: str, hint: str) -> ParsedExpression:
    message = f"This is not a Spark SQL expression: {reason}."
    return ParsedExpression((ExpressionProblem("EXPRESSION_SYNTAX", message, hint),))


def _bad_text(text: str) -> ExpressionProblem | None:
    if not text.strip():
        return ExpressionProblem(
            "EXPRESSION_SYNTAX", "The expression is empty.", "Write one or leave it out."
        )
    if len(text) > MAX_LENGTH:
        return _too_long(f"The expression has {len(text)} characters, more than {MAX_LENGTH}.")
    if any(ord(sign) < 32 and sign not in "\t\r\n" for sign in text):
        return ExpressionProblem("EXPRESSION_NOT_ALLOWED", "A control character.", "Remove it.")
    if "${" in text:
        # Spark puts settings and the environment in there before it parses, even inside strings.
        return ExpressionProblem("EXPRESSION_NOT_ALLOWED", "`${` is not allowed, not even in a string.",
                         "An expression may read its row and nothing else.")  # fmt: skip
    return None


def _too_long(message: str) -> ExpressionProblem:
    return ExpressionProblem("EXPRESSION_TOO_LONG", message, "Split it over several operators.")


def _bad_words(words: list[Token]) -> Iterator[ExpressionProblem]:
    if len(words) > MAX_WORDS:
        yield _too_long(f"The expression has {len(words)} words, more than {MAX_WORDS}.")
        return
    if deep := _too_deep(words):
        yield deep
        return
    for word in words:
        if word.comments or word.token_type is TokenType.SEMICOLON:
            yield ExpressionProblem("EXPRESSION_NOT_ALLOWED", "Comments and ';' are not allowed.",
                            "Write one plain expression.")  # fmt: skip
        elif word.text.lower() in _FORBIDDEN and word.token_type not in _QUOTED:
            yield ExpressionProblem(
                "EXPRESSION_NOT_ALLOWED",
                f"{word.text.upper()} is not allowed.",
                "Use the operator's own parts; a column of that name goes into backticks.",
            )
    for i, (word, after) in enumerate(pairwise(words)):
        if after.token_type is TokenType.L_PAREN:
            yield from _bad_call(words[i - 1] if i else None, word)


def _too_deep(words: list[Token]) -> ExpressionProblem | None:
    open_structs: list[bool] = []
    cases = 0
    for before, word in pairwise([None, *words]):
        kind = word.token_type if word else None
        if kind in {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.LT}:
            open_structs.append(before is not None and before.text.lower() == "struct")
        elif kind in {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.GT} and open_structs:
            open_structs.pop()
        elif kind is TokenType.CASE:
            cases += 1
        elif kind is TokenType.END:
            cases -= 1
        if sum(open_structs) > MAX_STRUCTS:
            return _too_long(f"More than {MAX_STRUCTS} structs within each other.")
        if len(open_structs) + cases > MAX_NESTING:
            return _too_long(f"More than {MAX_NESTING} levels within each other.")
    return None


def _calls(words: list[Token]) -> Iterator[str]:
    """The functions that are called."""
    for i, (word, after) in enumerate(pairwise(words)):
        like = i > 0 and words[i - 1].text.lower() in {"like", "ilike"}
        if after.token_type is TokenType.L_PAREN and not like:
            yield word.text.lower()


def _bad_call(before: Token | None, word: Token) -> Iterator[ExpressionProblem]:
    """Whether a word may stand before a parenthesis, given the word before it."""
    name = word.text.lower()
    quoted = word.token_type is TokenType.IDENTIFIER
    previous = before.text.lower() if before else ""
    if before is not None and before.token_type is TokenType.DOT:
        yield ExpressionProblem("FUNCTION_NOT_ALLOWED", f"{name!r} is called by a qualified name.",
                        "Call Spark's built-in functions by their plain names.")  # fmt: skip
        return
    if not quoted and not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", word.text):
        # An operator, or the beginning of something: then the parenthesis only groups.
        if word.token_type in _OPENING or _is_operator(word):
            return
    elif name in ALLOWED or (
        not quoted
        and (
            name in _ANYWHERE
            or (name in _AFTER_OPERAND and _is_operand_end(before))
            or (name in {"any", "all", "some"} and previous in {"like", "ilike"})
            or (
                name == "distinct" and before is not None and before.token_type is TokenType.L_PAREN
            )
            or (name in _TYPES and previous in {"as", "::"})
        )
    ):
        return
    if not name.isidentifier() or name in _KEYWORDS:
        yield ExpressionProblem("EXPRESSION_NOT_ALLOWED", f"A parenthesis after {word.text!r}.",
                        "Write a plain expression of columns and functions.")  # fmt: skip
        return
    near = difflib.get_close_matches(name, ALLOWED, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    yield ExpressionProblem("FUNCTION_NOT_ALLOWED", f"The function {name!r} is not allowed.",
                    f"{hint}docs/reference/functions.md lists those that are.")  # fmt: skip


def _is_operator(word: Token) -> bool:
    return (
        re.fullmatch(r"[-+*/%=<>!|&^~:]+", word.text) is not None
        and word.token_type not in _LITERALS
    )


def _is_operand_end(word: Token | None) -> bool:
    if word is None:
        return False
    ends = {"end", "null", "true", "false", "not", "distinct", "leading", "trailing", "both"}
    return (
        word.token_type in _NAMES | _LITERALS | _CLOSING
        or word.text.lower() in ends
        or (
            re.fullmatch(r"[A-Za-z_]\w*", word.text) is not None
            and word.text.lower() not in _AFTER_OPERAND | _ANYWHERE
        )
    )


def _bad_nodes(tree: exp.Expression) -> Iterator[ExpressionProblem]:
    for node in tree.walk():
        if isinstance(node, _FORBIDDEN_NODES):
            kind = type(node).__name__.lower()
            yield ExpressionProblem("EXPRESSION_NOT_ALLOWED", f"A {kind} is not allowed in an expression.",
                            "Use the operator's own parts for it: join, window, aggregate.")  # fmt: skip
            return
        if isinstance(node, exp.Alias | exp.Aliases) and node is not tree:
            yield ExpressionProblem("EXPRESSION_NOT_ALLOWED", "AS within an expression.",
                            "Name the whole result at its end; fields of a struct by named_struct.")  # fmt: skip
            return
    name = _output(tree)
    if name is not None and not COLUMN_NAME.fullmatch(name):
        yield bad_column_name(name)


def bad_column_name(name: str) -> ExpressionProblem:
    return ExpressionProblem("BAD_COLUMN_NAME", f"{name!r} is not a name for a column.",
                     "Use letters, digits, '_', '-' and spaces.")  # fmt: skip


def _columns(tree: exp.Expression) -> Iterator[tuple[str, bool]]:
    """The columns that are read, by the first part of their names, and whether in an aggregate."""
    for column in tree.find_all(exp.Column):
        name = column.parts[0].name
        if not isinstance(column.this, exp.Star) and not _bound(column, name.lower()):
            yield name, column.find_ancestor(exp.AggFunc) is not None


def _bound(column: exp.Column, name: str) -> bool:
    """Whether the name is the variable of a lambda around it."""
    around = column.find_ancestor(exp.Lambda)
    while around is not None:
        if name in {variable.name.lower() for variable in around.expressions}:
            return True
        around = around.find_ancestor(exp.Lambda)
    return False


def _output(tree: exp.Expression) -> str | None:
    """The name of the result: an alias, or a column's own name; None when Spark would make one up."""
    if isinstance(tree, exp.Alias):
        return tree.alias
    if isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star):
        return tree.name
    return None


def _reason(error: Exception) -> str:
    """The parser's complaint in words that do not ask for its source."""
    plain = re.sub(r"\x1b\[\d+m", "", str(error)).splitlines()
    first = plain[0] if plain else type(error).__name__
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if missing := re.search(r"Required keyword: '\w+' missing for <class '[\w.]+\.(\w+)'>", first):
        return f"{missing.group(1)} needs more arguments"
    if not isinstance(error, SqlglotError):
        return "it is not well-formed"
    return first.rstrip(". ")


def unknown_columns(names: Iterable[str], known: Iterable[str]) -> Iterator[ExpressionProblem]:
    """Columns that are not there. Spark does not tell upper from lower case, and neither do we."""
    available = list(known)
    lower = {name.lower() for name in available}
    for name in names:
        if name.lower() not in lower:
            near = difflib.get_close_matches(name, available, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            listed = ", ".join(available) or "none"
            yield ExpressionProblem("UNKNOWN_COLUMN", f"There is no column {name!r} here.",
                            f"{hint}The columns are: {listed}.")  # fmt: skip
