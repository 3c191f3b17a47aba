"""Starts, recognizes and ends processes that run in the background: brokers, masters, workers.

A process is known by its id and by a mark, an argument of its command line: the id may have been
reused by another process since it was written down.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trilithon.engines.spark import tether

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 20.0
# How long a port is waited for, and how often it is tried.
PORT_WAIT_S, PORT_TRIES = 3.0, 60
# Below the ports that systems give to outgoing connections: one of those could take the port of a
# process that is down for a moment and is started again at the same address.
_PORTS = range(20_000, 32_000)
_POLL_S = 0.02


def launch(
    command: Sequence[str],
    folder: Path,
    log: Path,
    *,
    detached: bool,
    environment: Mapping[str, str] | None = None,
) -> "tuple[int, subprocess.Popen[str] | None]":
    """Starts a command in a folder; returns its process id, and its watcher if it is tethered: then
    it ends with this process, even if that is killed.
    """
    # -I and -S: neither the user's environment nor site-packages are needed.
    watch = [sys.executable, "-I", "-S", tether.__file__, "detached" if detached else "tethered"]
    watcher = subprocess.Popen(  # noqa: S603 - our own program
        [*watch, str(log), *command],
        cwd=folder,
        env=None if environment is None else {**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert watcher.stdout is not None  # noqa: S101 - it is a pipe
    with watcher.stdout as out:
        pid = int(out.readline() or -1)
    if detached:
        release(watcher)
    return pid, None if detached else watcher


def release(watcher: "subprocess.Popen[str]") -> None:
    """Closes the watcher's standard input, whereupon it ends its process, and waits for it."""
    assert watcher.stdin is not None  # noqa: S101 - it is a pipe
    watcher.stdin.close()
    watcher.wait(STOP_TIMEOUT_S)


def runs(pid: int, mark: str) -> bool:
    """Whether the process with this id is the marked one."""
    return pid > 0 and mark in command_line(pid)


def command_line(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone or a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    listed = subprocess.run(  # noqa: S603 - a standard tool
        ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.split()


def terminate(pid: int, mark: str, grace_s: float = tether.GRACE_S) -> bool:
    """Terminates a process, by force after a grace period; False if it does not run."""
    return _end(pid, mark, (signal.SIGTERM, grace_s), (signal.SIGKILL, STOP_TIMEOUT_S))


def kill(pid: int, mark: str) -> bool:
    """Ends a process at once, without its own clean-up; False if it does not run."""
    return _end(pid, mark, (signal.SIGKILL, STOP_TIMEOUT_S))


def _end(pid: int, mark: str, *steps: tuple[signal.Signals, float]) -> bool:
    """Sends signals until the process is gone, each with the seconds to wait after it."""
    with _handle(pid) as send:
        if not runs(pid, mark):
            return False
        for number, within_s in steps:
            send(number)
            if wait_until_gone(pid, mark, within_s):
                break
    return True


def wait_until_gone(pid: int, mark: str, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while runs(pid, mark):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


@contextmanager
def _handle(pid: int) -> Iterator[Callable[[signal.Signals], None]]:
    """Sends signals to the process that has this id now; on Linux never to a later one."""
    descriptor = None
    if pid > 0 and sys.platform == "linux":
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)

    def send(number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if descriptor is not None and sys.platform == "linux":
                signal.pidfd_send_signal(descriptor, number)
            elif pid > 0:
                os.kill(pid, number)

    try:
        yield send
    finally:
        if descriptor is not None:
            os.close(descriptor)


def listens(port: int) -> bool:
    """Whether a process of this machine accepts connections at a port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def free_ports(*wanted: int) -> list[int]:
    """Free ports: the wanted ones where possible, else any. A process that has just been killed may
    hold its port for a moment, so a wanted one is waited for.
    """
    bound = []
    try:
        for port in wanted:
            trial = socket.socket()
            bound.append(trial)
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if not (port and _bind(trial, [port] * PORT_TRIES, PORT_WAIT_S / PORT_TRIES)):
                candidates = random.sample(_PORTS, 20)
                if not _bind(trial, candidates, 0.0):
                    trial.bind((HOST, 0))
        return [int(trial.getsockname()[1]) for trial in bound]
    finally:
        for trial in bound:
            trial.close()


def _bind(trial: socket.socket, candidates: Iterable[int], pause_s: float) -> bool:
    """Binds to the first of these ports that is free; False if none is."""
    for port in candidates:
        try:
            trial.bind((HOST, port))
        except OSError:
            time.sleep(pause_s)
        else:
            return True
    return False


def log_tail(log: Path) -> str:
    """The last part of a log; empty if it cannot be read."""
    try:
        return log.read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return ""


def last_line(log: Path) -> str:
    """The last line of a log that is not part of a stack trace, for a message; may be empty."""
    lines = [ln for ln in log_tail(log).splitlines() if ln.strip() and ln[:1] not in "\t "]
    return f" Its last log line: {lines[-1].strip()[:300]}" if lines else ""
