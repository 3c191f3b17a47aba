"""Keeps the engine host running: attaches to the running host, starts one, and restarts it when it
died.

A host that is stopped on purpose removes its socket. A host that leaves its socket behind has died,
and so has one that ended before it ever answered: these are restarted, with back-off. The loop
resubmits their jobs, which continue from their checkpoints.
"""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trilithon import logs
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.start_failure import forget_start_failure, start_failure
from trilithon.errors import HostUnreachable

# Spark and a broker take their time.
STARTS_S: Final = 180.0
# A job's start may take a minute, and the host answers one caller at a time.
PATIENCE_S: Final = 300.0
ENDS_S: Final = 60.0
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
# A host that lived for so long resets the back-off.
WELL_AFTER_S: Final = 120.0
_POLL_S: Final = 0.2
_log = logs.logger()


def host_answers(path: Path) -> bool:
    """Whether a host listens at a socket."""
    try:
        RemoteEngine(path, timeout_s=5).close()
    except HostUnreachable:
        return False
    return True


@dataclass
class HostKeeper:
    """Reaches the host of a socket. `command` starts one, whose output goes to `log`."""

    path: Path
    command: Sequence[str]
    log: Path
    tell: Callable[[str], None] = lambda _: None
    # Called, in a thread of its own, when a host that was started here answers, and when it ends
    # after that.
    on_change: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    # The loop and a caller of `ensure` may both find that there is no host.
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    _tries: int = field(default=0, init=False)
    _next_s: float = field(default=0.0, init=False)
    _started_s: float = field(default=0.0, init=False)

    def reach(self) -> RemoteEngine:
        """Connects to the host. A host that died is restarted, and can be reached later."""
        try:
            engine = RemoteEngine(self.path, PATIENCE_S)
        except HostUnreachable:
            with self._lock:
                if self._starting():
                    raise HostUnreachable(
                        "The host is being started.", f"Its log is {self.log}."
                    ) from None
                if self._died():
                    self._start_in_time()
            raise
        with self._lock:
            if not self._starting():
                self._process = None  # another host answers than the one started here
        return engine

    def ensure(self) -> None:
        """Attaches to the running host; without one, starts a host and waits until it answers."""
        if self.answers():
            self.tell("attached to the host that runs")
            _log.info("host_attached", socket=str(self.path))
            return
        with self._lock:
            if not self._starting():
                forget_start_failure(self.path)
                self._start()
        self.tell(f"starting a host; its log is {self.log}")
        deadline = time.monotonic() + STARTS_S
        while not self.answers():
            if not self._starting() or time.monotonic() > deadline:
                why = f"The host did not start. {start_failure(self.path)}".strip()
                raise HostUnreachable(why, f"Its log is {self.log}.")
            time.sleep(_POLL_S)

    def begin(self) -> None:
        """Starts a host unless one is being started, and does not wait for it: for a caller that
        has found that none answers. After one that died there is a back-off.
        """
        with self._lock:
            if self._starting():
                return
            if self._died():
                self._start_in_time()
            else:
                self._start()

    @property
    def starting(self) -> bool:
        """Whether a process that was started here runs: if it does not answer, it is starting."""
        with self._lock:
            return self._starting()

    @property
    def ended(self) -> bool:
        """Whether no host runs, and none died: it was stopped on purpose, or never started."""
        with self._lock:
            return not self._starting() and not self._died()

    def answers(self) -> bool:
        return host_answers(self.path)

    def end(self) -> None:
        """Stops the host and its jobs, even if another process started it, and waits until it is
        gone.
        """
        process = self._process
        self.ask_to_end()
        deadline = time.monotonic() + ENDS_S
        while self._there(process) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _there(self, process: "subprocess.Popen[bytes] | None") -> bool:
        """Whether a host that ends is there: one that was starting ends its JVM first."""
        if self.path.exists() or self._starting():
            return True
        return process is not None and process.poll() is None

    def ask_to_end(self) -> None:
        """Stops the host and its jobs, without waiting until it is gone."""
        try:
            remote = RemoteEngine(self.path, timeout_s=PATIENCE_S)
        except HostUnreachable:
            if not self._end_starting():
                raise
            return
        try:
            remote.end()
        finally:
            remote.close()

    def _end_starting(self) -> bool:
        """Ends a host that has been started and does not listen yet; False if there is none."""
        with self._lock:
            if self._process is None or not self._starting():
                return False
            self._process.terminate()
            self._process = None
            # Of one that died before: whoever finds it starts a host again.
            self.path.unlink(missing_ok=True)
            return True

    def _starting(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _died(self) -> bool:
        failed = self._process is not None and self._process.poll() not in (None, 0)
        return self.path.exists() or failed

    def _start_in_time(self) -> None:
        now_s = self.clock()
        if now_s - self._started_s >= WELL_AFTER_S:
            self._tries = 0
        if now_s < self._next_s:
            return
        self._next_s = now_s + min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self._tries)
        self._tries += 1
        self.tell(f"the host has died and is started again; its log is {self.log}")
        code = None if self._process is None else self._process.poll()
        _log.error("host_died", exit_code=code, restart=self._tries, log=str(self.log))
        self._start()

    def _start(self) -> None:
        """Starts a process that survives this one."""
        self._started_s = self.clock()
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.log.open("ab") as stream:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                env=os.environ.copy(),
            )
        _log.info("host_started", pid=self._process.pid, log=str(self.log))
        threading.Thread(
            target=self._follow, args=(self._process,), name="host-watch", daemon=True
        ).start()

    def _follow(self, process: "subprocess.Popen[bytes]") -> None:
        """Says at once when the host can be reached and when it is gone: its callers look every
        second or two. One that ends before it answers is left to whoever waits for it.
        """
        while not self.answers():
            if process.poll() is not None:
                return
            time.sleep(_POLL_S)
        self.on_change()
        process.wait()
        self.on_change()
