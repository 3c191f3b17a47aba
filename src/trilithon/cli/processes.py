"""Owns what long-lived processes share: the path of the host's socket, ending on a signal."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from trilithon import folders


def socket_path() -> Path:
    """Where the engine host of this state folder listens."""
    return folders.state() / "host.sock"


def on_signals(end: Callable[[], None]) -> None:
    """Calls `end` in a thread of its own on SIGTERM and on Ctrl-C."""

    def handle(_: int, __: FrameType | None) -> None:
        threading.Thread(target=end, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
