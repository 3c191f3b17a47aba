"""Owns where Trilithon keeps files of its own: a cache that can be deleted, and state that lasts."""

import os
from pathlib import Path


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
