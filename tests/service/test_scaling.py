"""Machines on demand through the API and the command line, on a simulated cluster."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tests.policies.stela.model import small_engine
from trilithon.cli import scaling_commands
from trilithon.cli.cluster_commands import app
from trilithon.control.rules import Limits, Rules
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, daemon

RULES = Rules(
    limits=Limits(round_s=0.1, cool_down_s=10.0, fresh_s=10.0),
    policy="stela",
    parameters={"window_s": 20.0, "settle_s": 30.0},
)


class Ticking:
    """The clock of the daemon: every report of the engine takes it on by ten seconds."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine, reports, lock = engine, engine.reports, threading.Lock()

        def ticking() -> Any:
            with lock:
                engine.advance(10.0)
                return reports()

        engine.reports = ticking  # type: ignore[method-assign]

    def now_s(self) -> float:
        return self.engine.now_s


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Daemon, TestClient]]:
    engine = small_engine(tmp_path, "star")
    with daemon(engine, RULES, tmp_path / "daemon", clock=Ticking(engine)) as served:
        headers = {"Authorization": f"Bearer {served.token}"}
        client = TestClient(api(served), base_url="http://127.0.0.1", headers=headers)
        deadline = time.monotonic() + 30
        body = {"machines": 1, "dry_run": True}
        while time.monotonic() < deadline:
            answer = client.post("/cluster/scale-out", json=body)
            if answer.status_code == 200 and answer.json()["hindrance"] is None:
                break
            time.sleep(0.05)
        yield served, client


class OfTest:
    """The command line's client, over the test's."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def get(self, path: str, **params: Any) -> Any:
        return self._client.get(path, params=params).json()

    def post(self, path: str, body: Any) -> Any:
        answer = self._client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


def test_a_dry_run_prints_ranking_projection_and_plan_and_writes_nothing(
    running: tuple[Daemon, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = running
    monkeypatch.setattr(scaling_commands, "client", lambda: OfTest(client))
    shown = CliRunner().invoke(app, ["scale-out", "--machines", "2", "--dry-run"])
    assert shown.exit_code == 0, shown.output
    for words in ("ranking", "centre", "projected", "add 2 machines", "Nothing was changed."):
        assert words in shown.output
    shown = CliRunner().invoke(app, ["scale-in", "--machines", "1", "--dry-run"])
    assert "ETPSum" in shown.output
    assert client.get("/cluster/requests").json() == []
    assert len(served.controller.scene.machine_names) == 4  # type: ignore[union-attr]


def test_machines_are_added_and_given_back_by_commands(
    running: tuple[Daemon, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = running
    monkeypatch.setattr(scaling_commands, "client", lambda: OfTest(client))
    for command, machines in (("scale-out", 5), ("scale-in", 4)):
        done = CliRunner().invoke(app, [command, "--machines", "1", "--wait", "60"])
        assert done.exit_code == 0, done.output
        assert "Carried out whole." in done.output
        deadline = time.monotonic() + 20
        while len(client.get("/cluster").json()["machines"]) != machines:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    kinds = [(row["kind"], row["done"]) for row in client.get("/cluster/requests").json()]
    assert kinds == [("scale_out", True), ("scale_in", True)]
    reasons = [entry["reason"] for entry in client.get("/cluster/explanation").json()]
    assert {"MACHINES_REQUESTED", "SCALE_OUT", "SCALE_IN"} <= set(reasons)


def test_bad_requests_have_a_code_and_change_nothing(running: tuple[Daemon, TestClient]) -> None:
    _, client = running
    assert client.post("/cluster/scale-in", json={"machines": 4}).json()["error"]["code"] == (
        "NOT_ENOUGH_MACHINES"
    )
    assert client.post("/cluster/scale-out", json={"machines": 0}).status_code == 422
    unknown = client.post("/cluster/scale-out", json={"machines": 1, "job": "x/y"})
    assert unknown.json()["error"]["code"] == "NOT_FOUND"
    assert client.get("/cluster/requests").json() == []
