"""`trilithon serve` while its engine starts: it answers at once, and jobs can be submitted. With
`--attach` it waits for a host, however long that takes, and starts none.
"""

import json
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

from tests.cluster import chain
from tests.service.test_api import PATIENCE_S, until
from tests.service.test_keeper import HOST
from tests.service.test_serve import cli, printed, write
from trilithon.cli.main import app
from trilithon.cli.spark_options import MASTER
from trilithon.errors import DaemonUnreachable, HostUnreachable
from trilithon.service.address import STARTING, announce, publish, published

JOB = chain()
# `serve` starts the host with this interpreter: one that waits for a file, and is then a host.
INTERPRETER = """#!/bin/sh
while [ ! -e {go} ]; do sleep 0.1; done
[ -s {go} ] && exit 3
exec {python} -c '{host}' {socket}
"""
SERVE = """
import sys
sys.executable = sys.argv.pop(1)
from trilithon.cli.main import main
main()
"""


class StartingDaemon:
    """A daemon whose host starts when `go` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        interpreter = folder / "interpreter"
        text = INTERPRETER.format(
            go=folder / "go",
            python=sys.executable,
            host=textwrap.dedent(HOST),
            socket=self.state / "host.sock",
        )
        interpreter.write_text(text)
        interpreter.chmod(0o700)
        self.process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", SERVE, str(interpreter), "serve", "--with-jobs"],
            stderr=subprocess.PIPE,
            text=True,
        )

    def go(self, *, fails: bool = False) -> None:
        (self.folder / "go").write_text("no" if fails else "")

    def health(self) -> dict[str, Any]:
        address = published(self.state / "daemon")
        headers = {"Authorization": f"Bearer {address['token']}"}
        request = Request(f"{address['url']}/api/v1/health", headers=headers)  # noqa: S310
        with urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - ourselves
            data: dict[str, Any] = json.load(answer)
        return data


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartingDaemon]:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("trilithon.service.address.PUBLISHES_S", PATIENCE_S)
    daemon = StartingDaemon(tmp_path)
    yield daemon
    daemon.go()
    if daemon.process.poll() is None:
        until((daemon.state / "host.sock").exists)
        daemon.process.terminate()
    daemon.process.communicate(timeout=PATIENCE_S)


def test_a_daemon_answers_while_its_engine_starts_and_takes_jobs(
    starting: StartingDaemon, tmp_path: Path
) -> None:
    """For half a minute it was not there, and `apply` said that one should be started."""
    until((starting.state / "daemon" / STARTING).exists)
    out, err = printed("job", "apply", write(tmp_path, JOB))
    assert out == "ads/chain generation 1: The job is new; the next round starts it.\n"
    assert err == "The engine is starting; jobs start after it.\n"
    health = starting.health()
    assert health["status"] == "starting"
    assert "host.log" in health["problem"]
    assert [row["state"] for row in cli("job", "list")] == ["starting"]
    assert "The engine is starting" in printed("cluster", "status")[0]
    starting.go()
    until(lambda: cli("job", "list")[0]["state"] == "running")
    until(lambda: starting.health()["status"] == "ok")


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_daemon_answers_within_its_first_seconds_whatever_its_engine_does(
    starting: StartingDaemon,
) -> None:
    """What it does before its first answer costs as much as some short commands, which take longer
    on a busy machine, too. It has no part in what Spark's start costs.
    """
    until((starting.state / "daemon" / "daemon.json").exists)
    assert starting.health()["status"] == "starting"
    answered_s = cpu_s(starting.process.pid)
    began_s = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "trilithon", "plan", "--help"], check=True, stdout=subprocess.DEVNULL
    )
    ended_s = resource.getrusage(resource.RUSAGE_CHILDREN)
    command_s = ended_s.ru_utime + ended_s.ru_stime - began_s.ru_utime - began_s.ru_stime
    assert answered_s <= 8 * command_s
    # It shows what there is: the engine has not begun to start.
    assert not (starting.folder / "go").exists()
    assert cli("job", "list") == []


def test_apply_with_wait_waits_for_the_engine(starting: StartingDaemon, tmp_path: Path) -> None:
    until((starting.state / "daemon" / "daemon.json").exists)
    threading.Timer(1.0, starting.go).start()
    assert printed("job", "apply", write(tmp_path, JOB), "--wait")[0] == (
        "ads/chain generation 1: running.\n"
    )


def test_an_engine_that_does_not_start_ends_the_daemon_with_its_log(
    starting: StartingDaemon,
) -> None:
    until((starting.state / "daemon" / "daemon.json").exists)
    starting.go(fails=True)
    assert starting.process.wait(PATIENCE_S) == HostUnreachable.exit_code
    assert starting.process.stderr is not None
    errors = starting.process.stderr.read()
    assert "did not start" in errors
    # That it cannot be reached while it starts is no surprise, and no warning.
    assert "engine_not_reached" not in errors


def test_a_client_waits_for_a_daemon_that_is_starting(tmp_path: Path) -> None:
    announce(tmp_path / "daemon")
    threading.Timer(0.5, publish, (tmp_path / "daemon", "http://x:4711", "secret")).start()
    assert published(tmp_path / "daemon")["url"] == "http://x:4711"


def test_a_daemon_that_died_while_it_started_is_not_waited_for(tmp_path: Path) -> None:
    announce(tmp_path)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (tmp_path / STARTING).write_text(str(ended.pid))
    with pytest.raises(DaemonUnreachable):
        published(tmp_path)


def test_without_a_daemon_a_client_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(DaemonUnreachable):
        published(tmp_path)


def test_apply_without_a_daemon_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("trilithon.cli.job_commands.STARTING_S", 0.3)
    result = CliRunner().invoke(app, ["job", "apply", write(tmp_path, JOB)])
    assert isinstance(result.exception, DaemonUnreachable)
    assert "trilithon serve" in str(result.exception)


class AttachedDaemon:
    """A daemon with `--attach`, and hosts that others start and kill."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.log = folder / "serve.log"
        # Whatever it would start in place of a host leaves a trace.
        interpreter = folder / "interpreter"
        interpreter.write_text(f"#!/bin/sh\ntouch {folder / 'started'}\n")
        interpreter.chmod(0o700)
        self.started = folder / "started"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-c", SERVE, str(interpreter), "serve", "--attach", "--log-json"],
                stderr=log,
            )
        self.hosts: list[subprocess.Popen[bytes]] = []

    def start_host(self) -> None:
        path = str(self.state / "host.sock")
        command = [sys.executable, "-c", HOST, path]
        self.hosts.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))  # noqa: S603

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        address = published(self.state / "daemon")
        headers = {"Authorization": f"Bearer {address['token']}"}
        request = Request(f"{address['url']}{path}", headers=headers)  # noqa: S310 - ourselves
        try:
            with urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log.read_text().splitlines()]

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AttachedDaemon]:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("trilithon.service.address.PUBLISHES_S", PATIENCE_S)
    daemon = AttachedDaemon(tmp_path)
    yield daemon
    for process in (daemon.process, *daemon.hosts):
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)


def test_an_attached_daemon_waits_for_its_host_and_never_starts_one(
    attached: AttachedDaemon, tmp_path: Path
) -> None:
    """Under systemd the daemon could be up first, and started a Spark with other settings."""
    until((attached.state / "daemon" / "daemon.json").exists)
    assert attached.get("/readyz") == (503, {"status": "waiting"})
    assert attached.get("/healthz") == (200, {"status": "ok"})
    _, health = attached.get("/api/v1/health")
    assert health["status"] == "waiting"
    assert str(attached.state / "host.sock") in health["problem"]
    assert printed("job", "apply", write(tmp_path, JOB))[1] == (
        "The daemon waits for its engine host; jobs start when it answers.\n"
    )
    assert "Waiting for the engine host" in printed("cluster", "status")[0]
    attached.start_host()
    until(lambda: cli("job", "list")[0]["state"] == "running")
    until(lambda: attached.get("/readyz")[0] == 200)
    # Somebody else restarts a host that was killed, too.
    attached.hosts[0].kill()
    until(lambda: attached.get("/readyz") == (503, {"status": "blind"}))
    assert "Waiting for the engine host" in attached.get("/api/v1/health")[1]["problem"]
    attached.start_host()
    until(lambda: attached.get("/readyz")[0] == 200)
    assert attached.end() == 0
    assert attached.hosts[1].poll() is None
    assert not attached.started.exists()
    events = attached.events()
    assert events.index("waiting_for_host") < events.index("host_attached")
    assert "engine_reached_again" in events
    assert "host_started" not in events


@pytest.mark.parametrize(
    "option", [["--master", MASTER], ["--slots", "32"], ["--per-tenant"], ["--with-jobs"]]
)
def test_what_only_the_host_decides_is_refused_beside_attach(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "state"))
    result = CliRunner().invoke(app, ["serve", "--attach", *option])
    assert result.exit_code == 2
    assert option[0] in result.output
