"""`cluster start`, `stop` and `status` without a cluster; tests/engines/spark has one."""

import json
from pathlib import Path

import pytest

from tests.cli.test_commands import Terminal
from trilithon.cli.cluster_commands import _memory
from trilithon.engines.spark.background_process import free_ports


@pytest.fixture
def terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Terminal:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    return Terminal(monkeypatch, capsys)


def test_without_a_cluster_nothing_is_stopped_and_status_asks_for_a_daemon(
    terminal: Terminal,
) -> None:
    assert terminal.run("cluster", "stop").code == 0
    assert terminal.out == "No cluster was running.\n"
    assert terminal.run("cluster", "status").code == 15
    assert "DAEMON_UNREACHABLE" in terminal.err


def test_a_cluster_that_is_no_more_is_not_listed(terminal: Terminal, tmp_path: Path) -> None:
    """Its process id may belong to another process by now."""
    worker = {"number": 1, "pid": 1, "web_port": 3, "cores": 4, "memory_mb": 512}
    record = {"pid": 1, "port": 1, "web_port": 2, "workers": [worker]}
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "cluster.json").write_text(json.dumps(record))
    assert terminal.run("cluster", "status").code == 15
    assert terminal.run("cluster", "stop").code == 0
    assert terminal.out == "No cluster was running.\n"


@pytest.mark.parametrize("option", [("--workers", "0"), ("--cores", "0"), ("--memory", "100")])
def test_a_size_that_is_none_is_refused(terminal: Terminal, option: tuple[str, str]) -> None:
    assert terminal.run("cluster", "start", *option).code == 2
    assert option[0] in terminal.err


def test_a_master_that_is_not_there_is_told_at_once(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("init", str(tmp_path / "job.yaml"))
    [port] = free_ports(0)
    master = f"spark://127.0.0.1:{port}"
    assert terminal.run("run", str(tmp_path / "job.yaml"), "--master", master).code == 13
    assert f"CLUSTER_UNAVAILABLE: No master listens at {master}." in terminal.err


def test_memory_is_told_in_mb_and_what_is_missing_stays_missing() -> None:
    assert _memory({"memory_bytes": 2**30, "memory_used_bytes": None}) == (1024, None)
