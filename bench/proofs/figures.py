"""Owns how a proof's figures are printed: a table for people, one line of JSON for programs."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def quantile_ms(values: Iterable[float], share: float) -> float | None:
    """The same of seconds, in milliseconds; None if there are no values."""
    found = quantile(values, share)
    return None if found is None else round(1000 * found, 1)


def known(value: float, digits: int = 3) -> float | None:
    """Rounded; None for what could not be computed."""
    return round(value, digits) if math.isfinite(value) else None


def show(title: str, figures: Mapping[str, Any]) -> None:
    print(f"\n{title}")
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"  {name:<{width}}  {value}")


def emit(proof: str, results: Any) -> None:
    print(json.dumps({"proof": proof, "results": results}), flush=True)
