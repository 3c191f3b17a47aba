"""Runs a command that must end with the process that started it: a small watcher between them.

    python tether.py tethered|detached LOG COMMAND…

Starts the command and prints its process id. Detached, the watcher then exits and the command runs
on. Tethered, the watcher stays and terminates the command when its standard input closes (the
kernel closes it even for a parent that was killed), or when its parent is no longer the same.

PR_SET_PDEATHSIG alone would not do: Linux sends that signal when the *thread* that started the
process ends, so a broker that a worker thread started would end with the thread. The watcher has
one thread and uses the signal, so that the command ends even if the watcher itself is killed.
Standard library only, and run by its path: it starts in a few milliseconds.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
GRACE_S = 10.0
POLL_S = 0.5
EXEC_S = 5.0
EXEC_POLL_S = 0.001


def main() -> None:
    parent = os.getppid()
    mode, log, *command = sys.argv[1:]
    tethered = mode == "tethered"
    with open(log, "ab") as out:  # noqa: PTH123 - pathlib would double the time to start
        child = subprocess.Popen(  # noqa: S603 - the caller's own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            # This process has one thread, so a function between fork and exec is safe.
            preexec_fn=_die_with_watcher if tethered else None,  # noqa: PLW1509
        )
    _await_command_line(child)
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    if not tethered:
        os._exit(0)
    while child.poll() is None and os.getppid() == parent:
        if select.select([sys.stdin], [], [], POLL_S)[0] and not os.read(0, 1024):
            break
    _terminate(child)


def _await_command_line(child: "subprocess.Popen[bytes]") -> None:
    """Waits until the process has its command line, by which the caller recognizes it. `exec`
    closes the pipe that `Popen` waits for a moment earlier, when the line is still empty.
    """
    path = f"/proc/{child.pid}/cmdline"
    deadline = time.monotonic() + EXEC_S
    while os.path.exists(path) and child.poll() is None:  # noqa: PTH110 - pathlib is slow to import
        with open(path, "rb") as file:  # noqa: PTH123
            if file.read(1) or time.monotonic() > deadline:
                return
        time.sleep(EXEC_POLL_S)


def _die_with_watcher() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _terminate(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
