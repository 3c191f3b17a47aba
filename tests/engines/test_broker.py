"""The embedded broker: starts, answers, attaches, and ends with the process that started it."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cli.test_commands import Terminal
from tests.conftest import brokers_under
from tests.engines.test_tether import until
from trilithon.engines.spark import broker
from trilithon.engines.spark.broker import PROCESS_MARK, BrokerRecord, EmbeddedBroker
from trilithon.errors import BrokerUnavailable, FileUnwritable

OWNER = """
import sys, time
from pathlib import Path
from trilithon.engines.spark.broker import EmbeddedBroker
with EmbeddedBroker.start(Path(sys.argv[1])) as broker:
    print(broker.pid, broker.address, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    return Terminal(monkeypatch, capsys)


def claim(folder: Path, pid: int) -> None:
    """Writes what a broker with this process id would have left."""
    left = {"pid": pid, "port": 9, "cluster": "x", "tethered_to": None, "ready": True}
    (folder / "broker.json").write_text(json.dumps(left))


def topics(address: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    return set(admin.list_topics(timeout=60).topics)


@pytest.mark.kafka
def test_a_broker_listens_on_this_machine_only(kafka: EmbeddedBroker) -> None:
    port = int(kafka.address.split(":")[1])
    listening = [
        words[1].split(":")[0]
        for table in ("tcp", "tcp6")
        for words in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if words[3] == "0A" and int(words[1].split(":")[1], 16) == port
    ]
    assert [address[-8:] for address in listening] == ["0100007F"]
    assert kafka.folder.stat().st_mode & 0o077 == 0


@pytest.mark.kafka
def test_a_broker_that_ends_with_another_process_is_not_shared(kafka: EmbeddedBroker) -> None:
    with pytest.raises(BrokerUnavailable, match=f"ends with process {os.getpid()}"):
        EmbeddedBroker.start(kafka.folder)
    assert broker.status(kafka.folder).answers


def test_a_broker_whose_owner_was_killed_is_waited_for(tmp_path: Path) -> None:
    """Its folder was refused: a host that was killed could not start again at once."""
    owner = subprocess.Popen([sys.executable, "-c", ""])
    owner.wait(120)
    lingers = [sys.executable, "-c", "import time; time.sleep(1.0)", f"{PROCESS_MARK}{tmp_path}"]
    with subprocess.Popen(lingers) as process:  # noqa: S603 - ourselves
        left = BrokerRecord(process.pid, 9, "x", tethered_to=owner.pid, ready=True)
        (tmp_path / "broker.json").write_text(json.dumps(asdict(left)))
        assert broker._attach(tmp_path) is None
        assert process.wait(120) == 0  # it ended by itself


@pytest.mark.kafka
def test_a_broker_that_was_killed_is_revived_at_its_address(tmp_path: Path) -> None:
    with EmbeddedBroker.start(tmp_path / "broker") as own:
        assert not own.revive()
        os.kill(own.pid, signal.SIGKILL)
        until(lambda: not broker._is_broker_of(own.pid, own.folder))
        address = own.address
        assert own.revive()
        assert own.address == address
        assert broker.status(own.folder).answers
    assert not brokers_under(tmp_path)


@pytest.mark.kafka
def test_a_shared_broker_that_died_is_revived_by_one_of_its_users_and_not_if_it_was_stopped(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "broker"
    first = EmbeddedBroker.start(folder, detached=True)
    try:
        second, third = (EmbeddedBroker.start(folder) for _ in range(2))
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not broker._is_broker_of(first.pid, folder))
        assert second.revive()
        assert not third.revive()
        assert third.pid == second.pid
        assert broker.status(folder).answers
    finally:
        broker.stop(folder)
    assert not second.revive()
    assert not third.revive()
    assert not brokers_under(tmp_path)


@pytest.mark.kafka
def test_on_the_command_line_it_runs_on_until_it_is_stopped(terminal: Terminal) -> None:
    try:
        first = terminal.json("broker", "start")
        assert (first["started"], terminal.code) == (True, 0)
        assert terminal.run("broker", "start").out == f"{first['address']}\n"
        assert "already running" in terminal.err
        status = terminal.json("broker", "status")
        assert (status["running"], status["answers"]) == (True, True)
        assert (status["pid"], status["address"]) == (first["pid"], first["address"])
        admin = AdminClient({"bootstrap.servers": first["address"], "log_level": 0})
        admin.create_topics([NewTopic("kept", 2, 1)])["kept"].result(120)
        assert terminal.json("broker", "stop") == {"stopped": True, "pid": first["pid"]}
        again = terminal.json("broker", "start")
        assert again["address"] == first["address"]
        assert again["pid"] != first["pid"]
        assert "kept" in topics(again["address"])
    finally:
        terminal.run("broker", "stop")
    assert terminal.run("broker", "status").code == BrokerUnavailable.exit_code
    assert terminal.run("broker", "stop").out == "No broker was running.\n"


@pytest.mark.kafka
def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, address = owner.stdout.readline().split()
        found = brokers_under(tmp_path)  # and its watcher
        owner.send_signal(signal.SIGKILL)
    assert int(pid) in found
    until(lambda: not brokers_under(tmp_path))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(address.split(":")[1]))) != 0
    assert broker.status(tmp_path).pid is None


@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_why_and_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=77\n")
    with pytest.raises(BrokerUnavailable, match="its process ended") as refused:
        EmbeddedBroker.start(tmp_path)
    assert "Stored node id 77" in refused.value.message
    assert str(tmp_path / "broker.log") in refused.value.hint
    assert not brokers_under(tmp_path)


def test_a_process_that_is_not_our_broker_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "601"]) as stranger:  # noqa: S607 - a standard tool
        claim(tmp_path, stranger.pid)
        assert broker.status(tmp_path).pid is None
        assert broker.stop(tmp_path) is None
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("left", ["", "{", "[]", '{"pid": 1}'])
def test_what_is_left_of_a_broker_may_be_anything(tmp_path: Path, left: str) -> None:
    (tmp_path / "broker.json").write_text(left)
    assert broker.status(tmp_path).pid is None
    assert broker.stop(tmp_path) is None


def test_without_a_folder_there_is_nothing_to_stop(tmp_path: Path) -> None:
    assert broker.stop(tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_a_state_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(FileUnwritable, match="TRILITHON_STATE"),
        broker._locked(tmp_path / "file/x"),
    ):
        pass
