"""Reads and writes the file with the address of a daemon, without importing the daemon."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Final

from trilithon.errors import DaemonUnreachable

FILE: Final = "daemon.json"


def publish(folder: Path, port: int, token: str) -> None:
    """Writes the daemon's URL and its token, readable by the owner only."""
    path = folder / FILE
    path.unlink(missing_ok=True)
    data = {"url": f"http://127.0.0.1:{port}", "token": token, "pid": os.getpid()}
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(data, stream)


def withdraw(folder: Path) -> None:
    """Deletes the file: no daemon listens any more."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink()


def published(folder: Path) -> dict[str, Any]:
    """The URL, the token and the process of the daemon of a folder."""
    try:
        address: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DaemonUnreachable(
            f"No daemon is running: there is no address in {folder / FILE}.",
            "Start one with `trilithon serve`.",
        ) from error
    return address
