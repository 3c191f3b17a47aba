"""Runs an application as a host process of its own, for an engine over several of them."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from trilithon.contract.engine import Engine
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.start_failure import start_failure
from trilithon.errors import HostUnreachable
from trilithon.service.keeper import PATIENCE_S, HostKeeper
from trilithon.service.reattach import ReattachingEngine

# A host answers questions within milliseconds, and other applications wait meanwhile.
READ_S: Final = 10.0
# One that did not answer in time is not asked again for so long.
HUNG_S: Final = 30.0
# Linux: the size of `sun_path` without the final zero byte.
LONGEST_SOCKET: Final = 107
T = TypeVar("T")


class PromptEngine(ReattachingEngine):
    """An engine in another process that must answer in time."""

    def __init__(self, path: Path, answer_s: float, steady_clock: Callable[[], float]) -> None:
        super().__init__(lambda: RemoteEngine(path, answer_s))
        self._path, self._answer_s, self._steady_clock = path, answer_s, steady_clock
        self._hung_until_s = 0.0

    def refuse_if_hung(self) -> None:
        if self._steady_clock() < self._hung_until_s:
            raise HostUnreachable(
                f"The host at {self._path} does not answer within {self._answer_s:g} s."
            )

    def _ask(self, call: Callable[[Engine], T]) -> T:
        self.refuse_if_hung()
        began_s = self._steady_clock()
        try:
            return super()._ask(call)
        except HostUnreachable:
            now_s = self._steady_clock()
            if now_s - began_s >= self._answer_s:
                self._hung_until_s = now_s + HUNG_S
            raise


class ApplicationHost:
    """An application in a host process, which a keeper starts and finds."""

    def __init__(
        self,
        keeper: HostKeeper,
        read_s: float = READ_S,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keeper = keeper
        self._reads = PromptEngine(keeper.path, read_s, steady_clock)
        self._changes = self._reattaching()

    @property
    def reads(self) -> Engine:
        return self._reads

    @property
    def changes(self) -> Engine:
        self._reads.refuse_if_hung()
        return self._changes

    def connect(self) -> Engine:
        self._reads.refuse_if_hung()
        return self._reattaching()

    def _reattaching(self) -> ReattachingEngine:
        return ReattachingEngine(lambda: RemoteEngine(self.keeper.path, PATIENCE_S))

    def begin(self) -> None:
        check_socket(self.keeper.path)
        # One that hangs runs, and must not be started a second time.
        if not self.keeper.answers():
            self.keeper.begin()

    @property
    def starting(self) -> bool:
        return self.keeper.starting and not self.keeper.answers()

    @property
    def ended(self) -> bool:
        return self.keeper.ended

    @property
    def failure(self) -> str:
        return start_failure(self.keeper.path)

    def end(self) -> None:
        self.disconnect()
        self.keeper.ask_to_end()

    def disconnect(self) -> None:
        self._reads.close()
        self._changes.close()


def check_socket(path: Path) -> None:
    """Refuses a path that is too long for a socket, before a process fails with it."""
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        raise HostUnreachable(
            f"The path of a socket has at most {LONGEST_SOCKET} bytes: {path}.",
            "Choose a shorter --state.",
        )
