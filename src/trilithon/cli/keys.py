"""Reads single keys from the terminal, without waiting for Enter."""

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_NAMES: Final = {"\x1b[A": "up", "\x1b[B": "down", "\x1b": "escape", "\r": "enter", "\n": "enter"}
# The longest sequence that a key of interest sends.
_LONGEST: Final = 8


@contextmanager
def pressed_keys() -> Iterator[Callable[[float], str | None]]:
    """Yields a function that waits for a key, at most so many seconds: its name or its letter, or
    None. Without a terminal it only waits.
    """
    if not sys.stdin.isatty():
        yield _only_waits
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    # Keys come at once and are not echoed; Ctrl-C is still a signal.
    tty.setcbreak(descriptor)

    def key(wait_s: float) -> str | None:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, wait_s))
        if not ready:
            return None
        text = os.read(descriptor, _LONGEST).decode("utf-8", "replace")
        return _NAMES.get(text, text[:1])

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _only_waits(wait_s: float) -> str | None:
    select.select([], [], [], max(0.0, wait_s))
    return None
