"""Runs a daemon: alone in its folder, its loop in a thread, with a clean stop."""

import gc
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trilithon import folders, logs
from trilithon.contract.engine import Engine
from trilithon.control.clock import Clock, SystemClock
from trilithon.control.cluster_commands import ClusterCommands
from trilithon.control.commands import JobCommands
from trilithon.control.journal import FILE, Journal
from trilithon.control.loop import Controller, Round
from trilithon.control.recorder import RecordingFolder
from trilithon.control.rules import Rules
from trilithon.errors import DaemonRuns, Problem
from trilithon.model.job import Job
from trilithon.plugins import policy

LOOK_EVERY_S: Final = 2.0
_log = logs.logger()


@dataclass
class Daemon:
    """A controller whose rounds run in a thread."""

    controller: Controller
    journal: Journal
    token: str
    # Every reason why the engine cannot run a valid job, as far as can be said without asking it.
    unsupported: Callable[[Job], Iterable[Problem]] = lambda _: ()
    commands: JobCommands = field(init=False)
    cluster_commands: ClusterCommands = field(init=False)
    failure: str = ""
    # What the daemon waits for before the engine can be reached for the first time.
    starting: str = ""

    def __post_init__(self) -> None:
        self.commands = JobCommands(self.controller)
        self.cluster_commands = ClusterCommands(self.controller)
        self._blind = ""
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Starts the next round at once: an owner waits for it."""
        self._wake.set()

    def stop(self) -> None:
        """Stops the loop after the current round."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                done = self.controller.round()
                self._log_round(done)
                wait_s, self.failure = done.next_s, ""
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                failure = f"{type(error).__name__}: {error}"
                # The same failure may repeat each round: one traceback is enough.
                fresh = failure != self.failure
                number = self.controller.state.round
                _log.error("round_failed", round=number, failure=failure, exc_info=fresh)
                self.failure = failure
                wait_s = self.controller.rules.limits.round_s
            self._await_round(wait_s)
            self._wake.clear()

    def _await_round(self, wait_s: float) -> None:
        """Waits for the next round, and looks at the jobs meanwhile. A host that is lost or a job
        that failed is seen within two seconds, however rare the rounds are.
        """
        deadline = time.monotonic() + wait_s
        while (left_s := deadline - time.monotonic()) > LOOK_EVERY_S:
            if self._wake.wait(LOOK_EVERY_S):
                return
            try:
                if not self.controller.look():
                    return
            except Exception:  # noqa: BLE001 - the next round may succeed
                _log.exception("look_failed", round=self.controller.state.round)
        self._wake.wait(left_s)

    def _log_round(self, done: Round) -> None:
        if done.blind and self.starting:
            return  # that is no surprise
        if done.blind and done.blind != self._blind:
            _log.warning("engine_not_reached", round=done.number, reason=done.blind)
        elif self._blind and not done.blind:
            _log.info("engine_reached_again", round=done.number)
        self._blind = done.blind
        _log.debug("round_done", round=done.number, decisions=len(done.rulings), next_s=done.next_s)


def calm_collector() -> None:
    """Runs the garbage collector less often. A round makes many small tuples and few cycles;
    searching everything that a daemon holds at Python's usual rate can cost as much as the round.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@contextmanager
def daemon(
    engine: Engine,
    rules: Rules,
    folder: Path,
    record: Path | None = None,
    clock: Clock | None = None,
    unsupported: Callable[[Job], Iterable[Problem]] = lambda _: (),
    starting: str = "",
) -> Iterator[Daemon]:
    """Runs a daemon in a state folder. A second daemon in the same folder is refused."""
    refusal = DaemonRuns(
        f"A daemon runs in {folder} already.", "Use it, stop it, or choose another --state."
    )
    with ExitStack() as ending:
        ending.enter_context(folders.locked(folder, "state", "TRILITHON_STATE", 0o700, refusal))
        journal = Journal(folder / FILE)
        ending.callback(journal.close)
        recorder = None
        if record is not None:
            recorder = ending.enter_context(RecordingFolder(record))
        controller = Controller(
            engine,
            journal,
            policy(rules.policy, rules.parameters),
            rules,
            clock or SystemClock(),
            recorder,
        )
        running = Daemon(controller, journal, secrets.token_urlsafe(24), unsupported)
        running.starting = starting
        ending.callback(running.stop)
        running.start()
        yield running
