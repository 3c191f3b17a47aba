"""Compiles the inner loops to machine code, and keeps that code in a cache folder between runs.

Numba's cache notices a change in the file of a function, not in the files of those that it calls.
So the folder is named after all sources that are compiled: stale code is never used.
"""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from trilithon import folders

F = TypeVar("F", bound=Callable[..., Any])
# Nothing in the loops is allocated or kept. Without Numba's counting of references, which would be
# done at each look into a table, events run nine times as fast.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
# Compiled functions whose machine code is not cached yet.
_uncached: list[Any] = []


def compiled(function: F) -> F:
    """A function over arrays that Numba compiles at its first call."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    _uncached.append(dispatcher)
    return cast("F", dispatcher)


def part(function: F) -> F:
    """A part of compiled functions. It is inlined into each: a call would cost more than it."""
    return cast("F", numba.njit(forceinline=True, **_OPTIONS)(function))


def use_cache() -> None:
    """Loads and keeps machine code in the cache folder from now on, where there can be one.

    A run calls this before its first step, so that importing the package touches no file.
    """
    if (folder := cache_folder()) is None:
        return
    vars(numba.config)["CACHE_DIR"] = str(folder)
    while _uncached:
        _uncached.pop().enable_caching()


@cache
def cache_folder() -> Path | None:
    """Where machine code is kept; None where nothing can be written, and each run compiles."""
    folder = folders.cache() / "compiled" / _sources()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _sources() -> str:
    """A digest of everything that the machine code depends on."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content = path.read_bytes()
        if (
            path.name in {"compiled.py", "world_tables.py"}
            or b"simulated.compiled import" in content
        ):
            digest.update(content)
    return digest.hexdigest()[:16]
