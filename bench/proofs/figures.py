"""Prints a proof's figures: a table for people, one line of JSON for programs."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any


def quantile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def quantile_ms(values: Iterable[float], share: float) -> float | None:
    """The quantile of seconds in milliseconds; None without values."""
    seconds = quantile(values, share)
    return None if seconds is None else round(1000 * seconds, 1)


def known(value: float, digits: int = 3) -> float | None:
    """Rounded; None for infinity and NaN."""
    return round(value, digits) if math.isfinite(value) else None


def show(title: str, figures: Mapping[str, Any]) -> None:
    print(f"\n{title}")
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"  {name:<{width}}  {value}")


def emit(proof: str, results: Any) -> None:
    print(json.dumps({"proof": proof, "results": results}), flush=True)
