"""Writes numbers for pages: few digits, units, and `n/a` for what was not measured."""

import math
import time
from typing import Final

MISSING: Final = "n/a"
UNBOUNDED: Final = "∞"
# From where on a letter stands for the zeros, and what is divided by.
_LETTERS: Final = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def number(value: float | None, unit: str = "") -> str:
    """About three significant digits, as `1,234`, `12.3k` or `0.052`, with the unit behind it."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return UNBOUNDED
    return f"{_digits(value)}{unit}"


def _digits(value: float) -> str:
    if 0 < abs(value) < 0.0005:
        return "<0.001" if value > 0 else ">-0.001"
    value = float(f"{value:.3g}") if abs(value) < 100 else value
    size = abs(value)
    for least, scale, letter in _LETTERS:
        if size >= least:
            return f"{value / scale:.1f}{letter}"
    if size >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"


def rate(value: float | None) -> str:
    return number(value, "/s")


def milliseconds(value: float | None) -> str:
    """A time in ms, as `41.2 ms`, `8.52 s` or `3.1 min`."""
    if value is None or math.isnan(value) or math.isinf(value) or value < 1000:
        return number(value, " ms")
    return seconds(value / 1000)


def seconds(value: float | None) -> str:
    if value is None or math.isnan(value) or math.isinf(value):
        return number(value)
    if value < 1:
        return number(1000 * value, " ms")
    if value < 120:
        return number(value, " s")
    return number(value / 60, " min") if value < 7200 else number(value / 3600, " h")


def percent(value: float | None) -> str:
    if value is None or math.isnan(value):
        return MISSING
    return UNBOUNDED if math.isinf(value) else f"{100 * value:.0f} %"


def clock_time(time_s: float | None) -> str:
    """The time of day in UTC."""
    return MISSING if time_s is None else time.strftime("%H:%M:%S", time.gmtime(time_s))


def ago(time_s: float | None, now_s: float) -> str:
    """How long ago something was, as `40 s ago`."""
    if time_s is None:
        return MISSING
    past_s = max(0.0, now_s - time_s)
    if past_s < 1:
        return "now"
    if past_s < 120:
        return f"{past_s:.0f} s ago"
    return f"{past_s / 60:.0f} min ago" if past_s < 7200 else f"{past_s / 3600:.0f} h ago"


def value_of(key: str, value: float | None) -> str:
    """A value by the key of its metric: `latency.p95`, `juice`, `throughput`, `emission`."""
    if key.startswith("latency"):
        return milliseconds(value)
    return number(value) if key == "juice" else rate(value)
