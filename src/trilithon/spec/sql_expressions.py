"""Checks the SQL expressions of a job: one Spark SQL expression, calling allowed functions only.

Spark gets the text as written, so the check works on the tokens of that text: a token before a
parenthesis must be known to be harmless there, and every other one is refused. The parsed tree says
which columns the expression reads; it may contain expression nodes only.
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
from trilithon.spec.result_bounds import unbounded_calls

# The parser logs syntax that it does not know; here that becomes an error, not a line on stderr.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)

MAX_LENGTH: Final = 4096
MAX_TOKENS: Final = 300
MAX_NESTING: Final = 24
# The parser tries each struct as a type and as a call: its time doubles with every level.
MAX_STRUCTS: Final = 6
COLUMN_NAME: Final = re.compile(r"[\w][\w -]{0,127}")

# Keywords that may precede a parenthesis, depending on the token before them.
_AFTER_OPERAND: Final = frozenset("and or in like ilike rlike regexp between div from for".split())
_ANYWHERE: Final = frozenset("not when then else case".split())
_TYPES: Final = frozenset("decimal dec numeric char varchar".split())
# Keywords of queries, and functions without parentheses that read session settings.
_FORBIDDEN: Final = frozenset(
    """table select values with using lateral over current_user session_user current_catalog
    current_database current_schema""".split()
)
_KEYWORDS: Final = _AFTER_OPERAND | _FORBIDDEN | frozenset("as except end is by interval".split())
_FORBIDDEN_NODES: Final = (
    *(exp.Query, exp.Window, exp.Table, exp.Lateral, exp.Join),
    *(exp.DDL, exp.DML, exp.Command, exp.Into, exp.Set, exp.Use),
    *(exp.Parameter, exp.Placeholder, exp.SessionParameter),
)
_NAMES: Final = frozenset({TokenType.IDENTIFIER, TokenType.VAR})
_LITERALS: Final = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.RAW_STRING})
_QUOTED: Final = _LITERALS | {TokenType.IDENTIFIER}
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.COMMA})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


@dataclass(frozen=True, slots=True)
class ExpressionProblem:
    """A problem with an expression; its path in the job file is added by the caller."""

    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class ParsedExpression:
    """An expression's problems, the columns it reads, and the column it produces."""

    problems: tuple[ExpressionProblem, ...]
    columns: tuple[str, ...] = ()
    # The name of the resulting column; None if it needs an alias.
    output: str | None = None
    # Whether the expression is `*`.
    star: bool = False
    # The aggregate functions it calls, and the columns it reads outside of them.
    aggregates: tuple[str, ...] = ()
    bare_columns: tuple[str, ...] = ()
    # All functions that it calls.
    calls: tuple[str, ...] = ()
    tokens: int = 0


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> ParsedExpression:
    """Parse and check an expression; its problems are part of the result."""
    if problem := _text_problem(text):
        return ParsedExpression((problem,))
    try:
        tokens = Spark().tokenize(text)
        if problems := tuple(_token_problems(tokens)):
            return ParsedExpression(problems)
        trees = Spark().parser().parse(tokens, text)
    except Exception as error:  # noqa: BLE001 - third-party parser on untrusted text
        return _syntax_error(_reason(error), "Write one expression, as in Spark's `expr`.")
    if len(trees) != 1 or trees[0] is None:
        return _syntax_error("exactly one expression is expected", "Write one expression.")
    tree = trees[0]
    if problems := tuple(_tree_problems(tree)):
        return ParsedExpression(problems)
    return ParsedExpression(
        problems=(),
        columns=tuple(dict.fromkeys(name for name, _ in _columns(tree))),
        output=_output(tree),
        star=isinstance(tree, exp.Star),
        aggregates=tuple(sorted({name for name in _calls(tokens) if name in AGGREGATE})),
        bare_columns=tuple(name for name, aggregated in _columns(tree) if not aggregated),
        calls=tuple(sorted(set(_calls(tokens)))),
        tokens=len(tokens),
    )


def _syntax_error(reason: str, hint: str) -> ParsedExpression:
    message = f"This is not a Spark SQL expression: {reason}."
    return ParsedExpression((ExpressionProblem("EXPRESSION_SYNTAX", message, hint),))


def _not_allowed(message: str, hint: str) -> ExpressionProblem:
    return ExpressionProblem("EXPRESSION_NOT_ALLOWED", message, hint)


def _text_problem(text: str) -> ExpressionProblem | None:
    if not text.strip():
        return ExpressionProblem(
            "EXPRESSION_SYNTAX", "The expression is empty.", "Write one, or remove the field."
        )
    if len(text) > MAX_LENGTH:
        return _too_long(f"The expression has {len(text)} characters, more than {MAX_LENGTH}.")
    if any(ord(character) < 32 and character not in "\t\r\n" for character in text):
        return _not_allowed("The expression contains a control character.", "Remove it.")
    if "${" in text:
        # Spark substitutes settings and the environment before it parses, even inside strings.
        return _not_allowed(
            "`${` is not allowed, not even in a string.",
            "An expression may read the columns of its row and nothing else.",
        )
    return None


def _too_long(message: str) -> ExpressionProblem:
    return ExpressionProblem("EXPRESSION_TOO_LONG", message, "Split it over several operators.")


def _token_problems(tokens: list[Token]) -> Iterator[ExpressionProblem]:
    if len(tokens) > MAX_TOKENS:
        yield _too_long(f"The expression has {len(tokens)} tokens, more than {MAX_TOKENS}.")
        return
    if problem := _nesting_problem(tokens):
        yield problem
        return
    for token in tokens:
        if token.comments or token.token_type is TokenType.SEMICOLON:
            yield _not_allowed("Comments and ';' are not allowed.", "Write one plain expression.")
        elif token.text.lower() in _FORBIDDEN and token.token_type not in _QUOTED:
            yield _not_allowed(
                f"{token.text.upper()} is not allowed in an expression.",
                "Use the fields of the operator (join, window, …), or put a column of that name "
                "into backticks.",
            )
    for i, (token, after) in enumerate(pairwise(tokens)):
        if after.token_type is TokenType.L_PAREN:
            yield from _call_problems(tokens[i - 1] if i else None, token)
    for message in unbounded_calls(tokens):
        yield ExpressionProblem(
            "RESULT_TOO_LARGE",
            message,
            "Ask for less: all jobs share the memory (docs/reference/functions.md).",
        )


def _nesting_problem(tokens: list[Token]) -> ExpressionProblem | None:
    open_structs: list[bool] = []
    cases = 0
    for before, token in pairwise([None, *tokens]):
        kind = token.token_type if token else None
        if kind in {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.LT}:
            open_structs.append(before is not None and before.text.lower() == "struct")
        elif kind in {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.GT} and open_structs:
            open_structs.pop()
        elif kind is TokenType.CASE:
            cases += 1
        elif kind is TokenType.END:
            cases -= 1
        if sum(open_structs) > MAX_STRUCTS:
            return _too_long(f"Structs are nested more than {MAX_STRUCTS} levels deep.")
        if len(open_structs) + cases > MAX_NESTING:
            return _too_long(f"The expression is nested more than {MAX_NESTING} levels deep.")
    return None


def _calls(tokens: list[Token]) -> Iterator[str]:
    """The names of the functions that are called."""
    for i, (token, after) in enumerate(pairwise(tokens)):
        like = i > 0 and tokens[i - 1].text.lower() in {"like", "ilike"}
        if after.token_type is TokenType.L_PAREN and not like:
            yield token.text.lower()


def _call_problems(before: Token | None, token: Token) -> Iterator[ExpressionProblem]:
    """Whether a token may precede a parenthesis, given the token before it."""
    name = token.text.lower()
    quoted = token.token_type is TokenType.IDENTIFIER
    previous = before.text.lower() if before else ""
    if before is not None and before.token_type is TokenType.DOT:
        yield ExpressionProblem(
            "FUNCTION_NOT_ALLOWED",
            f"{name!r} is called by a qualified name.",
            "Call Spark's built-in functions by their plain names.",
        )
        return
    if not quoted and not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", token.text):
        # After an operator, an opening bracket or a comma, the parenthesis only groups.
        if token.token_type in _OPENING or _is_operator(token):
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
        yield _not_allowed(
            f"A parenthesis after {token.text!r} is not allowed.",
            "Write a plain expression of columns and functions.",
        )
        return
    near = difflib.get_close_matches(name, ALLOWED, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    yield ExpressionProblem(
        "FUNCTION_NOT_ALLOWED",
        f"The function {name!r} is not allowed.",
        f"{hint}docs/reference/functions.md lists the allowed functions.",
    )


def _is_operator(token: Token) -> bool:
    return (
        re.fullmatch(r"[-+*/%=<>!|&^~:]+", token.text) is not None
        and token.token_type not in _LITERALS
    )


def _is_operand_end(token: Token | None) -> bool:
    if token is None:
        return False
    ends = {"end", "null", "true", "false", "not", "distinct", "leading", "trailing", "both"}
    return (
        token.token_type in _NAMES | _LITERALS | _CLOSING
        or token.text.lower() in ends
        or (
            re.fullmatch(r"[A-Za-z_]\w*", token.text) is not None
            and token.text.lower() not in _AFTER_OPERAND | _ANYWHERE
        )
    )


def _tree_problems(tree: exp.Expression) -> Iterator[ExpressionProblem]:
    for node in tree.walk():
        if isinstance(node, _FORBIDDEN_NODES):
            kind = type(node).__name__.lower()
            yield _not_allowed(
                f"A {kind} is not allowed in an expression.",
                "Use the fields of the operator for it: join, window, aggregate.",
            )
            return
        if isinstance(node, exp.Alias | exp.Aliases) and node is not tree:
            yield _not_allowed(
                "AS is allowed only at the end of an expression.",
                "Name the whole result; name the fields of a struct with named_struct.",
            )
            return
    name = _output(tree)
    if name is not None and not COLUMN_NAME.fullmatch(name):
        yield bad_column_name(name)


def bad_column_name(name: str) -> ExpressionProblem:
    return ExpressionProblem(
        "BAD_COLUMN_NAME",
        f"{name!r} is not a column name.",
        "Use letters, digits, '_', '-' and spaces.",
    )


def _columns(tree: exp.Expression) -> Iterator[tuple[str, bool]]:
    """The columns that are read (the first part of `a.b.c`), and whether inside an aggregate."""
    for column in tree.find_all(exp.Column):
        name = column.parts[0].name
        if not isinstance(column.this, exp.Star) and not _is_lambda_variable(column, name.lower()):
            yield name, column.find_ancestor(exp.AggFunc) is not None


def _is_lambda_variable(column: exp.Column, name: str) -> bool:
    """Whether an enclosing lambda binds the name."""
    enclosing = column.find_ancestor(exp.Lambda)
    while enclosing is not None:
        if name in {variable.name.lower() for variable in enclosing.expressions}:
            return True
        enclosing = enclosing.find_ancestor(exp.Lambda)
    return False


def _output(tree: exp.Expression) -> str | None:
    """The name of the result: its alias or column name; None if Spark would generate one."""
    if isinstance(tree, exp.Alias):
        return tree.alias
    if isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star):
        return tree.name
    return None


def _reason(error: Exception) -> str:
    """The parser's error message without references to the parser's source code."""
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
    """A problem for each name that is not a known column; case does not matter, as in Spark."""
    available = list(known)
    lower = {name.lower() for name in available}
    for name in names:
        if name.lower() not in lower:
            near = difflib.get_close_matches(name, available, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            listed = ", ".join(available) or "none"
            yield ExpressionProblem(
                "UNKNOWN_COLUMN",
                f"There is no column {name!r} here.",
                f"{hint}The columns are: {listed}.",
            )
