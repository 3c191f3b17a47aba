"""Owns what long-lived processes share: the paths of hosts' sockets, ending on a signal."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from trilithon import folders


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
