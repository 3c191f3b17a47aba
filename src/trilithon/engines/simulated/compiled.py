"""Owns turning the inner loops into machine code, and where that code is kept between runs.

Numba's cache notices a change in the file of a function, not in the files of those that it calls. So the
code is kept under a name made of all sources that are compiled: whatever changes, nothing stale is used.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from trilithon import folders

F = TypeVar("F", bound=Callable[..., Any])


def _sources() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content = path.read_bytes()
        if (
            path.name in {"compiled.py", "world_tables.py"}
            or b"simulated.compiled import" in content
        ):
            digest.update(content)
    return digest.hexdigest()[:16]


def _folder() -> Path | None:
    """Where code is kept; None where nothing can be, and each run compiles for itself."""
    folder = folders.cache() / "compiled" / _sources()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


_KEPT = _folder()
if _KEPT is not None:
    vars(numba.config)["CACHE_DIR"] = str(_KEPT)


# Nothing in the loops is allocated or kept. Without Numba's counting of references, which would be done
# at each look into a table, events run nine times as fast.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def compiled(function: F) -> F:
    """A function over arrays as machine code: made at its first call, kept for the next run."""
    return cast("F", numba.njit(cache=_KEPT is not None, **_OPTIONS)(function))


def part(function: F) -> F:
    """A part of compiled functions, which becomes a piece of each: a call would cost more than it."""
    return cast("F", numba.njit(forceinline=True, **_OPTIONS)(function))
