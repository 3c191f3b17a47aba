"""Pauses Python's collector of reference cycles while reports are read.

The reports of a hundred executors are a hundred thousand dicts a second, none of them in a cycle.
The collector would look at each of them several times before it is freed by its count.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cycles are collected in this process until the context ends, of one thread or the
    other.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
