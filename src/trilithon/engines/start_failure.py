"""Keeps why a host did not start, beside its socket, for whoever starts it again.

A host that fails before it listens can tell nobody: its message would be in its log alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trilithon.errors import TrilithonError


@contextmanager
def start_failure_kept(socket: Path) -> Iterator[None]:
    """Keeps the error of a start that fails inside, and forgets that of an earlier one."""
    file = _file_of(socket)
    try:
        yield
    except Exception as error:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.write_text(_told(error), encoding="utf-8")
        raise
    file.unlink(missing_ok=True)


def _told(error: Exception) -> str:
    if isinstance(error, TrilithonError):
        return f"{error.code}: {error.message} {error.hint}".strip()
    return f"{type(error).__name__}: {error}"


def forget_start_failure(socket: Path) -> None:
    """Whoever begins anew knows of no failure: what it was about may have changed."""
    _file_of(socket).unlink(missing_ok=True)


def start_failure(socket: Path) -> str:
    """Why the last start of a host failed; empty if it did not."""
    try:
        return _file_of(socket).read_text(encoding="utf-8")
    except OSError:
        return ""


def _file_of(socket: Path) -> Path:
    return socket.with_suffix(".failure")
