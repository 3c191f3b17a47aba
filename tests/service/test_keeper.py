"""A host that dies is started again, later each time; one that somebody ended stays ended."""

import os
import signal
import socket
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.service.test_api import PATIENCE_S, until
from trilithon.errors import HostUnreachable
from trilithon.service.keeper import FIRST_WAIT_S, WELL_AFTER_S, HostKeeper
from trilithon.service.reattach import ReattachingEngine

# A host as a process, with a cluster that costs nothing.
HOST = textwrap.dedent("""
    import signal, sys, threading
    from pathlib import Path
    from tests.fakes import FakeEngine
    from trilithon.engines.host import Host

    host = Host(FakeEngine(), Path(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=host.close).start())
    print("up", flush=True)
    host.serve()
""")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keeper(tmp_path: Path, clock: Clock) -> Iterator[HostKeeper]:
    path = tmp_path / "host.sock"
    command = [sys.executable, "-c", HOST, str(path)]
    host_keeper = HostKeeper(path, command, tmp_path / "host.log", clock=clock)
    yield host_keeper
    if host_keeper._process is not None:
        host_keeper._process.kill()
        host_keeper._process.wait(PATIENCE_S)


def process_of(keeper: HostKeeper) -> int:
    assert keeper._process is not None
    return keeper._process.pid


def starts(keeper: HostKeeper) -> int:
    return keeper.log.read_text().count("up") if keeper.log.exists() else 0


def reached(keeper: HostKeeper) -> bool:
    try:
        keeper.reach().close()
    except HostUnreachable:
        return False
    return True


def test_a_host_that_is_told_to_end_while_it_starts_ends(keeper: HostKeeper) -> None:
    """It would come up when nobody is there any more, and take what others gave back."""
    keeper.command = [sys.executable, "-c", "import time; time.sleep(600)"]
    keeper.begin()
    pid = process_of(keeper)
    assert keeper.starting
    keeper.end()
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert (keeper.starting, keeper.ended) == (False, True)
    with pytest.raises(HostUnreachable):
        keeper.end()


def test_a_host_that_is_killed_is_started_again_and_that_is_logged(keeper: HostKeeper) -> None:
    keeper.ensure()
    assert reached(keeper)
    first = process_of(keeper)
    os.kill(first, signal.SIGKILL)
    until(lambda: not keeper.answers())
    with capture_logs() as events:
        until(lambda: reached(keeper))
    (died,) = [event for event in events if event["event"] == "host_died"]
    assert (died["exit_code"], died["restart"]) == (-signal.SIGKILL, 1)
    assert process_of(keeper) != first
    assert starts(keeper) == 2


def test_a_host_that_dies_again_and_again_is_started_later_each_time(
    keeper: HostKeeper, clock: Clock
) -> None:
    keeper.ensure()
    waits = []
    for _ in range(3):
        os.kill(process_of(keeper), signal.SIGKILL)
        until(lambda: not keeper.answers())
        began, before = clock.now_s, process_of(keeper)
        while process_of(keeper) == before:
            reached(keeper)
            clock.now_s += FIRST_WAIT_S / 10
        waits.append(clock.now_s - began)
        until(lambda: reached(keeper))
    assert waits[2] > waits[1] > waits[0]
    clock.now_s += WELL_AFTER_S
    os.kill(process_of(keeper), signal.SIGKILL)
    until(lambda: not keeper.answers())
    assert not reached(keeper)
    until(lambda: reached(keeper))  # it had been well: at once


def test_a_host_that_somebody_ended_is_not_started_by_the_loop(keeper: HostKeeper) -> None:
    keeper.ensure()
    keeper.end()
    for _ in range(3):
        assert not reached(keeper)
    assert starts(keeper) == 1
    keeper.ensure()  # whoever wants one asks for it
    assert reached(keeper)


def test_one_that_never_comes_up_is_tried_later_each_time(tmp_path: Path, clock: Clock) -> None:
    path, log = tmp_path / "host.sock", tmp_path / "host.log"
    keeper = HostKeeper(path, [sys.executable, "-c", "print('up'); exit(3)"], log, clock=clock)
    with pytest.raises(HostUnreachable, match="did not start"):
        keeper.ensure()
    waits = []
    for _ in range(4):
        began, before = clock.now_s, process_of(keeper)
        while process_of(keeper) == before:
            assert not reached(keeper)
            clock.now_s += FIRST_WAIT_S / 20
        waits.append(clock.now_s - began)
        assert keeper._process is not None
        keeper._process.wait(PATIENCE_S)
    assert waits[-1] > 3 * max(waits[0], FIRST_WAIT_S)


def test_the_loop_and_who_waits_do_not_start_two(keeper: HostKeeper) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(keeper.path))  # by one that died
    assert not reached(keeper)
    keeper.ensure()
    assert starts(keeper) == 1


def test_whoever_waits_is_woken_when_a_host_answers_and_when_it_dies(keeper: HostKeeper) -> None:
    changes: list[bool] = []
    keeper.on_change = lambda: changes.append(keeper.answers())
    keeper.ensure()
    until(lambda: changes == [True])
    os.kill(process_of(keeper), signal.SIGKILL)
    until(lambda: changes == [True, False])


def test_a_host_that_died_is_started_again_by_the_call_that_missed_it(keeper: HostKeeper) -> None:
    """The next call came a second later, and Spark began to start only then."""
    keeper.ensure()
    engine = ReattachingEngine(keeper.reach)
    assert engine.jobs() == {}
    first = process_of(keeper)
    os.kill(first, signal.SIGKILL)
    until(lambda: not keeper.answers())
    with pytest.raises(HostUnreachable):
        engine.jobs()
    assert process_of(keeper) != first
    assert keeper.starting


def test_a_host_that_ends_before_it_answers_wakes_nobody(tmp_path: Path) -> None:
    """The loop started it again, and whoever waited for the first one went on waiting."""
    changes: list[bool] = []
    command = [sys.executable, "-c", "exit(3)"]
    keeper = HostKeeper(tmp_path / "host.sock", command, tmp_path / "host.log")
    keeper.on_change = lambda: changes.append(True)
    with pytest.raises(HostUnreachable, match="did not start"):
        keeper.ensure()
    watchers = [thread for thread in threading.enumerate() if thread.name == "host-watch"]
    for thread in watchers:
        thread.join(PATIENCE_S)
    assert changes == []
