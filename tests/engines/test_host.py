"""An engine behind a socket: the same contract, for its owner only, whichever client dies."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.suite import EngineContract
from tests.fakes import FakeEngine
from tests.model.test_validation import GOOD
from trilithon.contract.engine import Engine, Outcome
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.errors import HostRuns, HostUnreachable, Refused
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import Job

PATIENCE_S = 60.0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(FakeEngine(), tmp_path / "state" / "host.sock")
    serving = threading.Thread(target=found.serve, daemon=True)
    serving.start()
    yield found
    found.close()
    serving.join(timeout=PATIENCE_S)
    assert not serving.is_alive()


class TestThroughASocket(EngineContract):
    @pytest.fixture
    def engine(self, host: Host) -> Iterator[Engine]:
        remote = RemoteEngine(host.path)
        yield remote
        remote.close()


def test_only_its_owner_can_open_the_socket(host: Host) -> None:
    assert stat.S_IMODE(host.path.stat().st_mode) == 0o600


def test_a_client_whose_host_died_closes_without_an_error(tmp_path: Path) -> None:
    """The failed flush kept the daemon from noticing at once: it asked again two seconds later."""
    path = tmp_path / "host.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        remote = RemoteEngine(path)
        listening.accept()[0].close()
    for _ in range(2):
        with pytest.raises(HostUnreachable):
            remote.jobs()
    remote.close()


def test_every_caller_reads_all_reports(host: Host) -> None:
    one, two = RemoteEngine(host.path), RemoteEngine(host.path)
    first = [report.sequence for report in one.reports()]
    second = [report.sequence for report in two.reports()]
    assert second[: len(first)] == first
    # If nobody asks for a second, the host does so itself, and there are more.
    third = [report.sequence for report in one.reports()]
    assert first + third == list(range(first[0], third[-1] + 1))
    assert third[-1] > second[-1] > first[-1]
    one.close()
    two.close()


@pytest.mark.parametrize(
    "line",
    [b"hello\n", b"[]\n", b"{}\n", b'{"call": "fly"}\n', b'{"call": "apply", "action": {}}\n'],
)
def test_what_is_no_request_is_answered_and_the_host_goes_on(host: Host, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
        raw.connect(str(host.path))
        stream = raw.makefile("rwb")
        stream.write(line)
        stream.flush()
        assert json.loads(stream.readline())["error"]["code"] == "NOT_UNDERSTOOD"
        stream.close()
    remote = RemoteEngine(host.path)
    assert remote.capabilities().slots == 20
    remote.close()


def test_half_a_request_is_forgotten_with_its_caller(host: Host) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
        raw.connect(str(host.path))
        raw.sendall(b'{"call": "cancel", "jo')
    remote = RemoteEngine(host.path)
    assert remote.capabilities().tasks == 100
    remote.close()


def test_a_caller_that_is_killed_leaves_the_host_alone(host: Host) -> None:
    program = (
        "import sys, pathlib; from trilithon.engines.remote import RemoteEngine\n"
        "remote = RemoteEngine(pathlib.Path(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "while True: remote.reports()\n"
    )
    caller = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", program, str(host.path)], stdout=subprocess.PIPE
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"ready\n"
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait(timeout=PATIENCE_S)
    caller.stdout.close()
    remote = RemoteEngine(host.path)
    assert remote.reports()
    remote.close()


def test_an_error_of_the_engine_reaches_the_caller_with_its_code(host: Host) -> None:
    remote = RemoteEngine(host.path)
    with pytest.raises(Refused, match="There is no action 'fly'"):
        remote._call("apply", {"action": {"do": "fly"}})
    remote.close()


def test_a_second_host_at_the_same_place_is_refused_and_a_dead_ones_place_is_taken(
    host: Host, tmp_path: Path
) -> None:
    with pytest.raises(HostRuns):
        Host(FakeEngine(), host.path)
    dead = tmp_path / "dead.sock"
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(dead))
    left.close()
    taken = Host(FakeEngine(), dead)
    taken.close()
    assert not dead.exists()


def test_without_a_host_the_caller_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostUnreachable, match="No host answers"):
        RemoteEngine(tmp_path / "nothing.sock")


def test_a_closed_host_ends_its_engine(tmp_path: Path) -> None:
    engine = FakeEngine()
    host = Host(engine, tmp_path / "host.sock")
    host.close()
    host.close()
    assert engine.closed


class SlowEngine(FakeEngine):
    """Submitting takes until the test says so, as a start on Spark takes seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        return super().submit(job, allocation, checkpoint)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[SlowEngine, Path]]:
    engine = SlowEngine()
    found = Host(engine, tmp_path / "host.sock")
    threading.Thread(target=found.serve, daemon=True).start()
    yield engine, found.path
    engine.go_on.set()
    found.close()


def test_reports_are_taken_while_a_job_is_being_started(slow: tuple[SlowEngine, Path]) -> None:
    engine, path = slow
    one, two = RemoteEngine(path), RemoteEngine(path)
    starting = threading.Thread(target=one.submit, args=(GOOD, initial(GOOD)))
    starting.start()
    assert engine.begun.wait(PATIENCE_S)
    assert two.reports()
    assert GOOD.id not in two.jobs()
    engine.go_on.set()
    starting.join(PATIENCE_S)
    assert GOOD.id in two.jobs()
    one.close()
    two.close()


class ShowingEngine(FakeEngine):
    def edge_records(self, job: str, edge: str, count: int) -> list[dict[str, Any]]:
        return [{"value": f"{job} {edge}"}] * count


def test_records_inside_a_query_come_from_an_engine_that_shows_them(
    host: Host, tmp_path: Path
) -> None:
    with closing(RemoteEngine(host.path)) as remote, pytest.raises(Refused) as refused:
        remote.edge_records("a/b", "x->y", 2)
    assert refused.value.code == "NOT_OBSERVABLE"
    showing = Host(ShowingEngine(), tmp_path / "showing" / "host.sock")
    with showing.in_background(), closing(RemoteEngine(showing.path)) as remote:
        assert remote.edge_records("a/b", "x->y", 2) == [{"value": "a/b x->y"}] * 2


def test_an_engine_is_looked_after_while_nobody_asks(host: Host) -> None:
    engine = host.engine
    assert isinstance(engine, FakeEngine)
    deadline = time.monotonic() + PATIENCE_S
    while engine._sequence < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    remote = RemoteEngine(host.path)
    assert [report.sequence for report in remote.reports()][:2] == [1, 2]
    remote.close()
