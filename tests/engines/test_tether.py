"""A process that must end with another does, however that one ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trilithon.engines.spark import tether
from trilithon.engines.spark.background_process import command_line

SLEEP = ["sleep", "601"]
# A parent that starts the watcher and then waits, to be killed.
PARENT = """
import subprocess, sys, time
watcher = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)
time.sleep(601)
"""


def until(condition: Callable[[], bool], within_s: float = 120.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def command(mode: str, log: Path) -> list[str]:
    return [sys.executable, "-I", "-S", tether.__file__, mode, str(log), *SLEEP]


def gone(pid: int) -> bool:
    return command_line(pid)[:2] != SLEEP


def watched(log: Path) -> "tuple[subprocess.Popen[str], int]":
    watcher = subprocess.Popen(  # noqa: S603 - our own program
        command("tethered", log), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    with watcher.stdout as out:
        pid = int(out.readline())
    until(lambda: not gone(pid))
    return watcher, pid


def test_it_ends_when_the_line_is_closed(tmp_path: Path) -> None:
    watcher, pid = watched(tmp_path / "log")
    watcher.communicate()
    assert watcher.returncode == 0
    assert gone(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_it_ends_when_the_watcher_is_killed(tmp_path: Path) -> None:
    watcher, pid = watched(tmp_path / "log")
    watcher.kill()
    watcher.communicate()
    until(lambda: gone(pid))


def test_it_ends_when_the_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", PARENT, *command("tethered", tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        until(lambda: not gone(pid))
        parent.kill()
        parent.wait()
        until(lambda: gone(pid))


def test_the_watcher_ends_when_there_is_nothing_left_to_watch(tmp_path: Path) -> None:
    watcher, pid = watched(tmp_path / "log")
    os.kill(pid, signal.SIGKILL)
    assert watcher.wait(120) == 0
    watcher.communicate()


def test_a_process_has_its_command_line_when_its_id_is_printed(tmp_path: Path) -> None:
    """For a moment within `exec` the command line is empty. A broker that was looked at just then
    counted as ended, and was left running: on a busy machine one start in five.
    """
    for _ in range(40):
        started = subprocess.run(  # noqa: S603 - our own program
            command("detached", tmp_path / "log"), stdout=subprocess.PIPE, text=True, check=True
        )
        pid = int(started.stdout)
        try:
            assert command_line(pid)[:2] == SLEEP
        finally:
            os.kill(pid, signal.SIGKILL)


def test_detached_it_is_left_alone(tmp_path: Path) -> None:
    output = subprocess.run(  # noqa: S603 - our own program
        command("detached", tmp_path / "log"), stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    pid = int(output)
    try:
        until(lambda: not gone(pid))
    finally:
        os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
