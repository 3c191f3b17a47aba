"""Reads and writes the file with the address of a daemon, without importing the daemon."""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, Final

from trilithon.errors import DaemonUnreachable

FILE: Final = "daemon.json"
STARTING: Final = "starting.pid"
# How long a daemon that is starting may take to publish its address, on a busy machine.
PUBLISHES_S: Final = 30.0
_POLL_S: Final = 0.1


def announce(folder: Path) -> None:
    """Writes that this process is about to be the daemon of a folder. A folder that cannot be
    written is refused later, with its reason.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / STARTING).write_text(str(os.getpid()), encoding="utf-8")


def _is_starting(folder: Path) -> bool:
    """Whether a process that announced itself is alive and has not published its address yet."""
    try:
        os.kill(int((folder / STARTING).read_text(encoding="utf-8")), 0)
    except (OSError, ValueError):
        return False
    return True


def publish(folder: Path, url: str, token: str, certificate: Path | None = None) -> None:
    """Writes the daemon's URL, its token and its certificate, readable by the owner only."""
    path = folder / FILE
    path.unlink(missing_ok=True)
    data = {"url": url, "token": token, "pid": os.getpid()}
    if certificate is not None:
        data["certificate"] = str(certificate.resolve())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump(data, stream)
    (folder / STARTING).unlink(missing_ok=True)


def withdraw(folder: Path) -> None:
    """Deletes the file: no daemon listens any more."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink()


def published(folder: Path, patience_s: float = 0.0) -> dict[str, Any]:
    """The URL, the token and the process of the daemon of a folder. Waits for a daemon that is
    starting, and `patience_s` for one that may not even have announced itself.
    """
    began = time.monotonic()
    while True:
        try:
            address: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            waited_s = time.monotonic() - began
            if waited_s < patience_s or (waited_s < PUBLISHES_S and _is_starting(folder)):
                time.sleep(_POLL_S)
                continue
            raise DaemonUnreachable(
                f"No daemon is running: there is no address in {folder / FILE}.",
                "Start one with `trilithon serve`.",
            ) from error
        return address
