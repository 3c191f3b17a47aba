"""What long-lived commands do when they are told to end."""

import signal
import subprocess
import sys
import threading

from trilithon.cli.processes import TERMINATED, leaving_on_termination

PROGRAM = """
import time
from trilithon.cli.processes import leaving_on_termination

with leaving_on_termination():
    try:
        print("started", flush=True)
        time.sleep(600)
    finally:
        print("ended what it started", flush=True)
"""


def test_a_command_that_is_terminated_ends_what_it_started() -> None:
    """An experiment on Spark that was told to end left its master and workers behind."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b"ended what it started\n"
    assert process.returncode == TERMINATED


def test_the_handler_before_is_there_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with leaving_on_termination():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_set_no_handler() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with leaving_on_termination():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
