"""Bounds what functions may make of a record, as far as the text of an expression shows it.

All jobs share the memory of a JVM, so that no record may fill it. Counts that are constants are
checked here; those that come from columns are checked by the probe when the record is there
(`probe/…/Budget.java`, with the same limits), and such a record becomes a dead letter.
"""

from collections.abc import Iterator
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

# What all functions together may make of one record; Kafka's own limit for it is 1 MiB by default.
MAX_BYTES: Final = 16 * 2**20
# The characters or elements that one call may ask for: a list of so many numbers has MAX_BYTES.
MAX_COUNT: Final = MAX_BYTES // 8
# The argument of a function that is a count of characters or elements.
COUNTS: Final = {
    "repeat": 1,
    "lpad": 1,
    "rpad": 1,
    "space": 0,
    "array_repeat": 1,
    "array_insert": 1,
    "format_number": 1,
}
_RANDOM: Final = frozenset("rand randn random shuffle uniform uuid".split())
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


def unbounded_calls(tokens: list[Token]) -> Iterator[str]:
    """A sentence for each call that would make too much, whatever the record is."""
    for i, token in enumerate(tokens[:-1]):
        if tokens[i + 1].token_type is not TokenType.L_PAREN:
            continue
        name, arguments = token.text.lower(), _arguments(tokens, i + 2)
        if name in COUNTS and len(arguments) > COUNTS[name]:
            count = _constant(arguments[COUNTS[name]])
            if count is not None and abs(count) * _bytes_of(name, arguments) > _limit(name):
                yield f"{name} is asked for {abs(count)} {_what(name)}; the limit is {MAX_COUNT}."
        elif name == "sequence" and len(arguments) in {2, 3}:
            yield from _sequence(arguments)


def _limit(name: str) -> int:
    return MAX_BYTES if name == "repeat" else MAX_COUNT


def _what(name: str) -> str:
    if name == "repeat":
        return "repetitions"
    return "elements" if name.startswith("array") else "characters"


def _bytes_of(name: str, arguments: list[list[Token]]) -> int:
    """How long a constant text to be repeated is; 1 if that is not known."""
    first = arguments[0]
    constant = name == "repeat" and len(first) == 1 and first[0].token_type is TokenType.STRING
    return len(first[0].text.encode()) if constant else 1


def _sequence(arguments: list[list[Token]]) -> Iterator[str]:
    start, stop, *by = map(_constant, arguments)
    step = by[0] if by else 1
    if start is not None and stop is not None and step:
        count = abs(stop - start) // abs(step) + 1
        if count > MAX_COUNT:
            yield f"sequence is asked for {count} elements; the limit is {MAX_COUNT}."
    # The probe evaluates these a second time to compute the length.
    for argument in (arguments[0], *arguments[2:]):
        names = {token.text.lower() for token in argument}
        if names & (_RANDOM | {"sequence"}):
            yield "The start or step of sequence is random or contains another sequence."


def _arguments(tokens: list[Token], begin: int) -> list[list[Token]]:
    """The arguments of a call, each as its tokens, from the token after the parenthesis."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[begin:]:
        if token.token_type in _CLOSING:
            if depth == 0:
                break
            depth -= 1
        elif token.token_type in _OPENING:
            depth += 1
        elif token.token_type is TokenType.COMMA and depth == 0:
            arguments.append([])
            continue
        arguments[-1].append(token)
    return arguments


def _constant(argument: list[Token]) -> int | None:
    """The whole number that an argument is, or None."""
    sign = 1
    if len(argument) == 2 and argument[0].token_type is TokenType.DASH:
        sign, argument = -1, argument[1:]
    if len(argument) == 3 and argument[1].token_type is TokenType.DCOLON:
        argument = argument[:1]  # a suffix such as L, which the parser makes a cast
    if len(argument) != 1 or argument[0].token_type is not TokenType.NUMBER:
        return None
    text = argument[0].text
    try:
        return sign * int(float(text)) if any(c in text for c in ".eE") else sign * int(text)
    except (ValueError, OverflowError):
        return None
