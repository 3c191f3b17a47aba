"""Formats numbers, tables and verdicts for the result pages and the command line."""

from collections.abc import Iterable, Sequence
from typing import Final

from trilithon.experiments.paper import Paper
from trilithon.experiments.suite import ComparedFigure, ExperimentResult

_UNITS: Final = {"s": " s", "h": " h", "ratio": "", "times": " ×"}


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "ratio":
        return f"{100 * value:.1f} %" if value >= 0.001 or value == 0 else f"{100 * value:.2g} %"
    digits = 0 if abs(value) >= 100 or value == round(value) else 1
    return f"{value:,.{digits}f}{_UNITS.get(unit, ' ' + unit)}"


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


def verdict(compared: ComparedFigure) -> str:
    if compared.figure.not_comparable:
        return "not comparable"
    if compared.worse:
        return "differs" if compared.figure.more_is_better is None else "worse"
    return ""


def reason(paper: Paper, result: ExperimentResult, compared: ComparedFigure) -> str | None:
    """Why our figure is worse, differs, is missing or cannot be compared: one sentence."""
    figure = compared.figure
    if figure.not_comparable:
        return f"{capitalised(figure.not_comparable)}."
    if compared.worse or compared.ours is None:
        explain = paper.reasons.get((result.experiment.name, figure.name))
        return None if explain is None else explain(result)
    return None
