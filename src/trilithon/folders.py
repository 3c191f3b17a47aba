"""Locates Trilithon's own folders: a cache that may be deleted, and state that must be kept."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trilithon.errors import FileUnwritable, TrilithonError


def cache() -> Path:
    """Files that can be fetched again: $TRILITHON_CACHE, else below $XDG_CACHE_HOME or ~/.cache."""
    return _folder("TRILITHON_CACHE", "XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """Files to keep: $TRILITHON_STATE, else below $XDG_STATE_HOME or ~/.local/state."""
    return _folder("TRILITHON_STATE", "XDG_STATE_HOME", ".local/state")


def _folder(own_variable: str, xdg_variable: str, below_home: str) -> Path:
    if path := os.environ.get(own_variable):
        return Path(path).expanduser().absolute()
    # The XDG specification says to ignore relative paths.
    base = Path(os.environ.get(xdg_variable, ""))
    return (base if base.is_absolute() else Path.home() / below_home) / "trilithon"


@contextmanager
def locked(
    folder: Path,
    purpose: str,
    variable: str,
    mode: int = 0o777,
    refusal: TrilithonError | None = None,
) -> Iterator[None]:
    """Create a folder and lock it against other processes; the lock ends with the process.

    If another process holds the lock: raises `refusal`, or waits if there is none. `purpose` and
    `variable` name the folder in the error if it cannot be written.
    """
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise FileUnwritable(
            f"The {purpose} folder {folder} cannot be written: {error.strerror}.",
            f"Set {variable} to a folder that can be written.",
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
    """Create a folder and its parents, if they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileUnwritable(
            f"The folder {folder} cannot be written: {error.strerror}.", "Choose another folder."
        ) from error
