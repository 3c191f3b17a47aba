"""`trilithon serve --engine simulated`: the product without Spark, its cluster in real time."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.service.test_api import PATIENCE_S, until
from tests.service.test_serve import cli, printed
from trilithon.service.address import published

PROGRAM = [sys.executable, "-m", "trilithon", "serve"]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    command = [*PROGRAM, "--engine", "simulated", "--speed", "10"]
    serving = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - ourselves
    try:
        published(tmp_path / "daemon", PATIENCE_S)
        yield tmp_path
    finally:
        serving.terminate()
        ended = serving.wait(PATIENCE_S)
    assert ended == 0


def states() -> dict[str, str]:
    return {job["job"]: job["state"] for job in cli("job", "list")}


def test_the_jobs_of_the_showcase_run_and_obey_their_owner(state: Path) -> None:
    until(lambda: list(states().values()) == ["running"] * 5)
    until(lambda: cli("job", "get", "pageload")["figures"].get("utility"))
    printed("job", "pause", "pageload")
    until(lambda: states()["ads/pageload"] == "paused")
    printed("job", "resume", "pageload")
    until(lambda: states()["ads/pageload"] == "running")


def test_the_link_of_the_dashboard_logs_in_and_top_has_the_jobs(state: Path) -> None:
    until(lambda: list(states().values()) == ["running"] * 5)
    link = cli("dashboard")["url"]
    with httpx2.Client(trust_env=False, follow_redirects=True, timeout=120) as http:
        page = http.get(link)
    assert page.status_code == 200
    assert "security/intrusion" in page.text
    assert "security/intrusion" in printed("top", "--once")[0]


def test_top_obeys_keys_in_a_terminal(state: Path) -> None:
    until(lambda: list(states().values()) == ["running"] * 5)
    program, terminal = pty.openpty()
    command = [sys.executable, "-m", "trilithon", "top", "--every", "0.3"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
    top = subprocess.Popen(  # noqa: S603 - ourselves
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    shown = ""

    def shows(text: str) -> bool:
        nonlocal shown
        while select.select([program], [], [], 0.05)[0]:
            shown += os.read(program, 65_536).decode("utf-8", "replace")
        return text in shown

    try:
        until(lambda: shows("sorted by lost utility"))
        os.write(program, b"s")
        until(lambda: shows("sorted by name"))
        os.write(program, b"p")
        until(lambda: shows("Pause"))
        os.write(program, b"n")
        until(lambda: shows("Nothing was changed"))
        os.write(program, b"g")
        until(lambda: shows("●"))
        os.write(program, b"w")
        until(lambda: shows("Why: "))
        os.write(program, b"q")
        assert top.wait(PATIENCE_S) == 0
    finally:
        top.kill()
        top.wait()
        os.close(program)
    assert states()["ads/pageload"] == "running"


def test_a_scenario_without_the_simulated_engine_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "TRILITHON_STATE": str(tmp_path)}
    command = [*PROGRAM, "--scenario", "some.yaml"]
    refused = subprocess.run(  # noqa: S603 - ourselves
        command, env=environment, capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert refused.returncode == 2
    assert b"--engine simulated" in refused.stderr
