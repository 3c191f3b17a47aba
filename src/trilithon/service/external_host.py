"""Attaches to an engine host that somebody else runs: waits for it, and starts none."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trilithon import logs
from trilithon.engines.remote import RemoteEngine
from trilithon.errors import HostUnreachable
from trilithon.service.keeper import PATIENCE_S, host_answers

_POLL_S: Final = 0.5
_log = logs.logger()


@dataclass
class ExternalHost:
    """The host of a socket. Its supervisor (systemd, Kubernetes) starts and restarts it."""

    path: Path

    @property
    def waiting(self) -> str:
        """What the daemon says as long as no host answers."""
        return (
            f"Waiting for the engine host at {self.path}: `trilithon host` with the same --state "
            "starts it."
        )

    def reach(self) -> RemoteEngine:
        """Connects to the host, if it answers."""
        try:
            return RemoteEngine(self.path, PATIENCE_S)
        except HostUnreachable as error:
            raise HostUnreachable(self.waiting) from error

    def wait(self, tell: Callable[[str], None]) -> None:
        """Waits until a host answers, for as long as it takes."""
        if not host_answers(self.path):
            tell(f"waiting for the engine host at {self.path}")
            _log.info("waiting_for_host", socket=str(self.path))
            while not host_answers(self.path):
                time.sleep(_POLL_S)
        tell("attached to the engine host")
        _log.info("host_attached", socket=str(self.path))
