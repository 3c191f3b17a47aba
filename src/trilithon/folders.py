"""Owns where Trilithon keeps files of its own: a cache that can be deleted, and state that lasts."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trilithon.errors import FileUnwritable, TrilithonError


def cache() -> Path:
    """What can be fetched again: $TRILITHON_CACHE, else a folder in $XDG_CACHE_HOME or ~/.cache."""
    return _folder("TRILITHON_CACHE", "XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """What lasts: $TRILITHON_STATE, else a folder in $XDG_STATE_HOME or ~/.local/state."""
    return _folder("TRILITHON_STATE", "XDG_STATE_HOME", ".local/state")


def _folder(own: str, standard: str, home: str) -> Path:
    if named := os.environ.get(own):
        return Path(named).expanduser().absolute()
    # The XDG specification: a relative path is to be ignored.
    base = Path(os.environ.get(standard, ""))
    return (base if base.is_absolute() else Path.home() / home) / "trilithon"


@contextmanager
def alone(
    folder: Path,
    what: str,
    variable: str,
    mode: int = 0o777,
    refusal: TrilithonError | None = None,
) -> Iterator[None]:
    """One process at a time in a folder, which is made; the lock goes with its process, however that
    ends. `what` and `variable` say which folder it is, if it cannot be written. Whoever comes second
    waits, or gets the refusal if there is one.
    """
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise FileUnwritable(
            f"The {what} folder {folder} cannot be written: {error.strerror}.",
            f"Set {variable} to a folder that can.",
        ) from error
    with lock:
        if refusal is None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        else:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise refusal from None
        yield


def make(folder: Path) -> None:
    """A folder for what a caller writes, with those above it; there already is as good."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileUnwritable(
            f"{folder} cannot be written: {error.strerror}.", "Choose another place."
        ) from error
