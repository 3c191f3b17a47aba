"""Owns what long-lived processes share: the paths of hosts' sockets, ending on a signal."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from trilithon import folders

# What a shell reports of a process that SIGTERM ended.
TERMINATED: Final = 128 + signal.SIGTERM


def socket_path(application: str = "") -> Path:
    """Where the engine host of this state folder listens, or that of one application."""
    return _applications() / f"{application}.sock" if application else folders.state() / "host.sock"


def application_sockets() -> dict[str, Path]:
    """The sockets of single applications, by name; their hosts may have died."""
    return {path.stem: path for path in sorted(_applications().glob("*.sock"))}


def _applications() -> Path:
    return folders.state() / "applications"


def on_signals(end: Callable[[], None]) -> None:
    """Calls `end` in a thread of its own on SIGTERM and on Ctrl-C."""

    def handle(_: int, __: FrameType | None) -> None:
        threading.Thread(target=end, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)


@contextmanager
def leaving_on_termination() -> Iterator[None]:
    """Lets SIGTERM end a command as Ctrl-C does: with all that it started. Python itself would end
    at once, and leave brokers and clusters behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
