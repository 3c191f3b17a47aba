"""Reads secrets from files, and refuses files that others can read."""

import os
import stat
from pathlib import Path

from trilithon.errors import FileUnreadable, InvalidSetting


def check_private(path: Path, what: str) -> None:
    """Refuses a file with a secret that others than its owner can read or write."""
    try:
        status = path.stat()
    except OSError as error:
        raise FileUnreadable(
            f"{what}: {path} cannot be read: {error.strerror}.", "Check the name."
        ) from error
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        raise InvalidSetting(
            f"{what}: others can read {path} (its mode is {mode:04o}).", f"chmod 600 {path}"
        )
    if status.st_uid not in {os.geteuid(), 0}:
        raise InvalidSetting(f"{what}: {path} belongs to another user.", f"chown it: {path}")


def read_secret(path: Path, what: str) -> str:
    """The first line of a private file. It is never part of a message."""
    check_private(path, what)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise FileUnreadable(f"{what}: {path} cannot be read: {reason}.") from error
    if not lines or not lines[0].strip():
        raise InvalidSetting(f"{what}: {path} is empty.", "Write the secret into its first line.")
    return lines[0].strip()
