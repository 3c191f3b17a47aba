"""Commands call the daemon that the environment names, and send a token only where it is safe."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from tests.cluster import FakeCluster, chain
from tests.control.scene import ClusterClock
from tests.service.conftest import RULES
from tests.service.test_api import until
from trilithon.cli.client import _address, check_remote
from trilithon.cli.main import app
from trilithon.errors import DaemonUnreachable, InvalidSetting, TrilithonError
from trilithon.service.address import publish
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, daemon
from trilithon.service.python_jobs import PythonJobs
from trilithon.service.settings import ServiceSettings
from trilithon.service.web_server import serving_in_background
from trilithon.spec.dump import dump_job
from trilithon.workloads.topic_reader import Record

JOB = chain("chain", "ads")
# It would clear the screen.
HOSTILE = "\x1b[2J"
# Every command of a daemon, in an order in which each has something to do; `job apply` and `token
# revoke` need what others make.
COMMANDS = """
job list
job get ads/chain
job history ads/chain
job records ads/chain in -n 2
job records chain o0->o1
job load ads/loaded /jobs/loaded.py
job mode ads/chain advise
job priority ads/chain 7
explain ads/chain
explain
cluster status
cluster crunch
cluster scale-out --machines 1 --dry-run
cluster scale-in --machines 1 --dry-run
cluster scale-in --machine m0 --dry-run
top --once
token create reader --grant ads=viewer
token list
dashboard
job pause ads/chain
job resume ads/chain
job delete ads/chain
""".strip().splitlines()


def test_the_environment_names_a_daemon_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    with pytest.raises(DaemonUnreachable):
        _address(0.0)
    monkeypatch.setenv("TRILITHON_URL", "https://streams.example:8443/")
    monkeypatch.setenv("TRILITHON_TOKEN", "trl_1_2")
    assert _address(0.0) == ("https://streams.example:8443", "trl_1_2", None, False)


def test_a_token_alone_is_shown_to_the_daemon_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "daemon"
    folder.mkdir()
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    publish(folder, "http://127.0.0.1:4711", "the owner's")
    assert _address(0.0) == ("http://127.0.0.1:4711", "the owner's", None, True)
    monkeypatch.setenv("TRILITHON_TOKEN", "trl_1_2")
    assert _address(0.0) == ("http://127.0.0.1:4711", "trl_1_2", None, True)


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("http://streams.example", "t"),
        ("ftp://streams.example", "t"),
        ("streams.example", "t"),
        ("https://user:password@streams.example", "t"),
        ("https://streams.example", "a\nb"),
    ],
)
def test_an_address_where_others_could_read_the_token_is_refused(url: str, token: str) -> None:
    with pytest.raises(InvalidSetting):
        check_remote(url, token)
    check_remote("http://127.0.0.1:8080", token.replace("\n", ""))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon whose address and token are all that commands know of it."""
    cluster = FakeCluster(auto_s=10.0)
    folder = tmp_path / "daemon"
    with (
        daemon(cluster, RULES, folder, clock=ClusterClock(cluster)) as running,
        serving_in_background(api(running)) as url,
    ):
        _, secret = running.access.store.create("remote", {}, cluster_admin=True)
        monkeypatch.setenv("TRILITHON_URL", url)
        monkeypatch.setenv("TRILITHON_TOKEN", secret)
        monkeypatch.setenv("TRILITHON_STATE", str(tmp_path / "nothing here"))
        running.read_latest = lambda topic, n, _: [
            Record(0, i, 1.5, HOSTILE, json.dumps({"v": topic}), ((HOSTILE, None),)).as_data()
            for i in range(n)
        ]
        passed = {"instance": 3, "time": "2026-01-01T00:00:00.000+00:00", "value": HOSTILE}
        running.read_edge = lambda _, __, n: [passed] * n
        allowed = ServiceSettings.of({"tenants": {"ads": {"python_folders": ["/jobs"]}}})
        loaded = {"jobs": [dump_job(chain("loaded", "ads"))]}
        running.python_jobs = PythonJobs(allowed, lambda *_: loaded)
        yield running


def cli(*arguments: str) -> Any:
    as_data = () if arguments[0] == "top" else ("-o", "json")
    result = CliRunner().invoke(app, [*arguments, *as_data])
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return json.loads(result.stdout) if as_data else result.stdout


def commands_of(group: str) -> set[str]:
    """The names of a group's commands, as `--help` lists them."""
    loaded: Any = typer.main.get_command(app)
    command = loaded.get_command(None, group).loaded
    return {f"{group} {name}" for name in command.commands}


def test_no_command_of_a_daemon_is_left_out_here() -> None:
    known = {" ".join(command.split()[:2]) for command in COMMANDS}
    known |= {"job apply", "token revoke"}
    # These start and end a Spark cluster on this machine, without a daemon.
    without_daemon = {"cluster start", "cluster stop"}
    for group in ("job", "token", "cluster"):
        assert commands_of(group) - known - without_daemon == set()


def test_records_are_printed_for_people_and_cannot_change_the_terminal(elsewhere: Daemon) -> None:
    elsewhere.commands.apply(JOB)
    shown = CliRunner().invoke(app, ["job", "records", "chain", "in", "-n", "2"]).stdout
    assert shown.count("chain-in  partition 0  offset") == 2
    assert '"v": "chain-in"' in shown
    edge = CliRunner().invoke(app, ["job", "records", "ads/chain", "o0->o1"]).stdout
    assert edge.count("to instance 3") == 5
    assert "\x1b" not in shown + edge
    assert "\\x1b[2J" in shown
    assert "\\x1b[2J" in edge
    elsewhere.read_edge = lambda *_: []
    none = CliRunner().invoke(app, ["job", "records", "ads/chain", "o0->o1"]).stdout
    assert none == "There are no records at o0->o1.\n"
    with pytest.raises(TrilithonError, match="no 'x'"):
        CliRunner().invoke(app, ["job", "records", "chain", "x"], catch_exceptions=False)


def test_every_command_of_a_daemon_works_from_elsewhere_with_its_api_alone(
    elsewhere: Daemon, tmp_path: Path
) -> None:
    """No command reads a state folder, a socket or a journal of this machine."""
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(dump_job(JOB)))
    (applied,) = cli("job", "apply", str(file), "--wait")
    assert applied["generation"] == 1
    until(lambda: elsewhere.controller.scene is not None)
    until(lambda: elsewhere.monitor.last.jobs[JOB.id].utility is not None)
    for command in COMMANDS:
        shown = cli(*command.split())
        if command == "token create reader --grant ads=viewer":
            cli("token", "revoke", shown["token"])
        if command == "cluster status":
            assert shown["standalone"] is None
        if command.startswith("top"):
            assert "ads/chain" in shown
    assert not (tmp_path / "nothing here").exists()
    audited = {entry.action for entry in elsewhere.access.store.audited()}
    assert {"job applied", "priority set", "mode set", "job paused", "job deleted"} <= audited
    assert {entry.name for entry in elsewhere.access.store.audited()} == {"remote"}
