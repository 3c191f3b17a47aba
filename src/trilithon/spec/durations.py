"""Parses and formats durations as Spark writes them: `200 ms`, `10 seconds`, `5 minutes`."""

import re
from typing import Final

_UNITS: Final = {
    unit: length_s
    for length_s, units in (
        (0.001, "ms millisecond milliseconds"),
        (1.0, "s sec second seconds"),
        (60.0, "m min minute minutes"),
        (3600.0, "h hour hours"),
        (86400.0, "d day days"),
    )
    for unit in units.split()
}
_DURATION: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]+)\s*")


def parse_seconds(text: str) -> float:
    """The duration in seconds. Raises ValueError with a sentence that says what to write."""
    match = _DURATION.fullmatch(text)
    unit_s = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit_s is None:
        raise ValueError(f"{text!r} is not a duration: write `200 ms`, `10 seconds` or `5 minutes`")
    return round(float(match.group(1)) * unit_s, 9)


def parse_milliseconds(text: str) -> float:
    """The duration in milliseconds, rounded to a nanosecond."""
    return round(parse_seconds(text) * 1000, 6)


def format_duration(duration_s: float) -> str:
    """A duration as Spark writes it, in the largest unit in which it is a whole number."""
    for unit, unit_s in (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0)):
        count = duration_s / unit_s
        if count >= 1 and abs(count - round(count)) < 1e-9:
            return f"{round(count)} {unit if round(count) != 1 else unit.removesuffix('s')}"
    return f"{round(duration_s * 1000, 6):g} milliseconds"
