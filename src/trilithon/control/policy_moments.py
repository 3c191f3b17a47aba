"""Moves the moments that a policy remembers when the clock is set.

A policy keeps what it likes as JSON data, and counts waits from moments in it. Only moments are
about as large as the present, in seconds since 1970: that tells them from durations, rates and
counts, and no policy has to say which of its numbers they are.
"""

from collections.abc import Mapping
from typing import Any


def shifted(state: Any, by_s: float, before_s: float) -> Any:
    """The state with its moments shifted. `before_s` is the time by the clock before it was set."""
    if isinstance(state, Mapping):
        return {key: shifted(value, by_s, before_s) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [shifted(value, by_s, before_s) for value in state]
    if isinstance(state, float) and before_s / 2 < state < 2 * before_s:
        return state + by_s
    return state
