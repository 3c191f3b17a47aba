"""Formats numbers and tables for the result pages and the command line."""

from collections.abc import Iterable, Sequence
from typing import Final

from trilithon.experiments.definition import PaperFigure

_UNITS: Final = {"": "", "s": " s", "h": " h", "ratio": "", "times": " ×"}


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "ratio":
        tiny = 0 < abs(value) < 0.001
        return f"{100 * value:.2g} %" if tiny else f"{100 * value:.1f} %"
    digits = 0 if abs(value) >= 100 or value == round(value) else 1
    word = unit.removesuffix("s") if value == 1 else unit
    return f"{value:,.{digits}f}{_UNITS.get(unit, ' ' + word)}"


def stated(figure: PaperFigure) -> str:
    """What the paper says: its number, or its words."""
    return f"“{figure.words}”" if figure.words else number(figure.value, figure.unit)


def interval(value: float | None, half_width: float | None, unit: str) -> str:
    """A number, with half of its 95 % interval where there is one."""
    if value is None or half_width is None:
        return number(value, unit)
    return f"{number(value, unit)} ± {number(half_width, unit)}"


def percent(share: float) -> str:
    return number(share, "ratio")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def listed(items: Sequence[str]) -> str:
    """Several things as part of a sentence."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
