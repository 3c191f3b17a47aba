"""Owns spans of time as they are written: `200 ms`, `10 seconds`, `5 minutes`, as Spark writes them."""

import re
from typing import Final

_UNITS: Final = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_SPAN: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]+)\s*")


def parse_seconds(text: str) -> float:
    """The span in seconds. Raises ValueError with a sentence about what is expected."""
    found = _SPAN.fullmatch(text)
    unit = _UNITS.get(found.group(2).lower()) if found else None
    if found is None or unit is None:
        raise ValueError(
            f"{text!r} is not a span of time: write `200 ms`, `10 seconds` or `5 minutes`"
        )
    return round(float(found.group(1)) * unit, 9)


def parse_milliseconds(text: str) -> float:
    """The span in milliseconds, without the rounding of a detour over seconds."""
    return round(parse_seconds(text) * 1000, 6)


def format_duration(span_s: float) -> str:
    """A span as Spark would write it, in the largest unit in which it is a whole number."""
    for unit, length in (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0)):
        count = span_s / length
        if count >= 1 and abs(count - round(count)) < 1e-9:
            return f"{round(count)} {unit}"
    return f"{round(span_s * 1000, 6):g} milliseconds"
