"""Owns the life of a process that must end with another: a small watcher between the two.

    python tether.py tethered|detached LOG COMMAND…

Starts the command and prints its process id. Detached it then leaves it alone. Tethered it stays, and
ends the command when its own standard input closes, which the kernel does for a parent that was killed,
too; or when its parent is another than at the start.

Why a watcher and not PR_SET_PDEATHSIG alone: that signal comes when the *thread* that started the process
ends, so a broker started by a worker thread would die with it, and it exists on Linux only. The watcher
has one thread and uses it there, so that the command ends even if the watcher itself is killed.
Standard library only, and run by its path: it starts in a few milliseconds.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
GRACE_S = 10.0
LOOK_S = 0.5


def main() -> None:
    parent = os.getppid()
    mode, log, *command = sys.argv[1:]
    tethered = mode == "tethered"
    with open(log, "ab") as out:  # noqa: PTH123 - pathlib would double the time to start
        child = subprocess.Popen(  # noqa: S603 - what our own caller asks for
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            # One thread, so a function between fork and exec is safe here.
            preexec_fn=_die_with_watcher if tethered else None,  # noqa: PLW1509
        )
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    if not tethered:
        os._exit(0)
    while child.poll() is None and os.getppid() == parent:
        if select.select([sys.stdin], [], [], LOOK_S)[0] and not os.read(0, 1024):
            break
    _end(child)


def _die_with_watcher() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
