"""Processes beside a proof: each ends with it, even if the proof is killed."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trilithon.engines.spark import tether

ENDING_S = 20.0


class Processes:
    """Tethered processes; their output goes to files in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._watchers: list[subprocess.Popen[str]] = []

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
        """Starts a process and returns its id."""
        watcher = subprocess.Popen(  # noqa: S603 - our own program
            [
                sys.executable,
                "-I",
                "-S",
                tether.__file__,
                "tethered",
                str(self._log(name)),
                *command,
            ],
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._watchers.append(watcher)
        assert watcher.stdout is not None
        with watcher.stdout as out:
            return int(out.readline())

    def printed(self, name: str) -> str:
        return self._log(name).read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Terminates them, the newest first, and waits until they have ended."""
        while self._watchers:
            watcher = self._watchers.pop()
            assert watcher.stdin is not None
            watcher.stdin.close()
            watcher.wait(ENDING_S)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
