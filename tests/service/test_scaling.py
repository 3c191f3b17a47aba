"""Machines on demand through the API and the command line, on a simulated cluster."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from tests.policies.stela.model import made_job, made_scene, out, small_engine
from tests.service.openapi_shapes import Document, Violation
from tests.service.test_access import failing_audit
from tests.service.test_api import until
from trilithon.cli import scaling_commands
from trilithon.cli.cluster_commands import app
from trilithon.control.journal.rows import RequestRow
from trilithon.control.rules import Limits, Rules
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.stela.planning import preview
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.service.access.roles import Caller
from trilithon.service.access.store import AccessStore
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, daemon
from trilithon.service.routes.common import API
from trilithon.service.scaling_audit import ScalingAudit

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
    engine = small_engine(tmp_path, "star", "diamond")
    with daemon(engine, RULES, tmp_path / "daemon", clock=Ticking(engine)) as served:
        headers = {"Authorization": f"Bearer {served.token}"}
        client = TestClient(api(served), base_url="http://127.0.0.1/api/v1", headers=headers)
        body = {"machines": 1, "dry_run": True}

        def unhindered() -> bool:
            answer = client.post("/cluster/scale-out", json=body)
            return answer.status_code == 200 and answer.json()["hindrance"] is None

        until(unhindered)
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
    # Who gets how many instances, and where.
    assert "→" in shown.output
    assert "on new machine 1" in shown.output
    shown = CliRunner().invoke(app, ["scale-in", "--machines", "1", "--dry-run"])
    assert "ETPSum" in shown.output
    moved = [line for line in shown.output.splitlines() if " on m" in line]
    assert moved
    assert client.get("/cluster/requests").json() == []
    assert len(served.controller.scene.machine_names) == 4  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("scale-out", {"machines": 1}),
        ("scale-in", {"machines": 1}),
        ("scale-in", {"machine_names": ["m1"]}),
    ],
)
def test_plans_and_requests_have_the_shape_that_the_document_says(
    kind: str, body: dict[str, Any], running: tuple[Daemon, TestClient]
) -> None:
    (_, client), described, path = running, Document(), f"{API}/cluster/{kind}"
    plan = client.post(f"/cluster/{kind}", json={**body, "dry_run": True}).json()
    described.check_answer("post", path, plan)
    assert plan["ranking"]
    assert plan["steps"]
    assert plan["placement"]
    assert bool(plan["moves"]) is (kind == "scale-in")
    described.check_answer("post", path, client.post(f"/cluster/{kind}", json=body).json())
    until(lambda: client.get("/cluster/explanation").json())
    for about in ("requests", "explanation"):
        answer = client.get(f"/cluster/{about}").json()
        described.check_answer("get", f"{API}/cluster/{about}", answer)
    with pytest.raises(Violation):
        described.check_answer("post", path, {**plan, "steps": [{"subject": 1}]})


def test_a_dry_run_says_which_steps_the_ranking_did_not_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = made_job("line", "s>a", "a>b", "b>c", "c>k", counts={"b": 2, "c": 2}, most=4)
    scene = made_scene({job: {"s": 100.0, "a": 100.0, "b": 45.0, "c": 200.0}}, machines=5)
    plan = preview(scene, out(), StelaParameters())
    answer = {"request": "scale_out", "carried_out_by": "stela", **plan}

    class Answering(OfTest):
        def post(self, path: str, body: Any) -> Any:
            del path, body
            return answer

    monkeypatch.setattr(scaling_commands, "client", lambda: Answering(None))  # type: ignore[arg-type]
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["scale-out", "--machines", "1", "--dry-run"]).output
    assert "exchanged by projection, instead of t/line a" in shown
    assert (
        "By the ranking alone, 90.0/s would be projected; with the exchanged steps it is" in shown
    )
    assert "(+11.1 %)" in shown


def has_machines(client: TestClient, count: int) -> bool:
    return len(client.get("/cluster").json()["machines"]) == count


def test_machines_are_added_and_given_back_by_commands(
    running: tuple[Daemon, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = running
    monkeypatch.setattr(scaling_commands, "client", lambda: OfTest(client))
    for command, machines in (("scale-out", 5), ("scale-in", 4)):
        done = CliRunner().invoke(app, [command, "--machines", "1", "--wait", "300"])
        assert done.exit_code == 0, done.output
        assert "Carried out whole." in done.output
        until(partial(has_machines, client, machines))
    kinds = [(row["kind"], row["done"]) for row in client.get("/cluster/requests").json()]
    assert kinds == [("scale_out", True), ("scale_in", True)]
    until(lambda: client.get("/audit").json()[-1]["action"] == "scale-in ended")
    requested, ended = client.get("/audit").json()[-4:-2]
    assert (requested["action"], ended["action"]) == ("scale-out requested", "scale-out ended")
    assert requested["name"] == ended["name"] == "owner of this machine's state folder"
    assert requested["after"] == {
        "request": "scale-out-1",
        "machines": 1,
        "machine_names": [],
        "job": None,
    }
    assert ended["before"] == requested["before"]
    assert len(ended["before"]["machines"]) == 4
    assert ended["after"]["done"] is True
    reasons = [entry["reason"] for entry in client.get("/cluster/explanation").json()]
    assert {"MACHINES_REQUESTED", "SCALE_OUT", "SCALE_IN"} <= set(reasons)


def test_named_machines_and_no_others_are_given_back_by_command(
    running: tuple[Daemon, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = running
    monkeypatch.setattr(scaling_commands, "client", lambda: OfTest(client))
    monkeypatch.setenv("COLUMNS", "200")
    plan = client.post("/cluster/scale-in", json={"machines": 1, "dry_run": True}).json()
    first, second = sorted({"m0", "m1", "m2", "m3"} - {*plan["machines_to_remove"]})[:2]
    command = ["scale-in", "--machine", first, "--machine", second]
    shown = CliRunner().invoke(app, [*command, "--dry-run"])
    assert shown.exit_code == 0, shown.output
    for words in ("named; its ETPSum is", "moves", "from", "Nothing was changed."):
        assert words in shown.output
    assert any(f"remove {a}, {b}" in shown.output for a, b in ((first, second), (second, first)))
    assert client.get("/cluster/requests").json() == []
    done = CliRunner().invoke(app, [*command, "--machines", "2", "--wait", "300"])
    assert done.exit_code == 0, done.output
    until(partial(has_machines, client, 2))
    assert not {first, second} & set(client.get("/cluster").json()["machines"])
    (row,) = client.get("/cluster/requests").json()
    assert (row["machines"], row["machine_names"]) == (2, [first, second])
    assert row["done"] is True
    until(lambda: client.get("/audit").json()[-1]["action"] == "scale-in ended")
    requested, ended = client.get("/audit").json()
    assert requested["after"]["machine_names"] == [first, second]
    assert set(ended["before"]["machines"]) - set(ended["after"]["machines"]) == {first, second}
    entries = client.get("/cluster/explanation").json()
    (said,) = [each["sentences"][0] for each in entries if each["reason"] == "SCALE_IN"]
    assert ", as named." in said
    assert served.controller.state.requests == []


def test_a_scale_in_by_command_needs_a_number_or_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scaling_commands, "client", lambda: pytest.fail("it asked the daemon"))
    refused = CliRunner().invoke(app, ["scale-in"])
    assert refused.exit_code == 2
    assert "--machine NAME" in " ".join(refused.output.replace("│", " ").split())


def test_machines_can_be_for_one_job_alone(
    running: tuple[Daemon, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, client = running
    monkeypatch.setattr(scaling_commands, "client", lambda: OfTest(client))

    def instances() -> dict[str, int]:
        jobs = served.controller.engine.jobs()
        return {name: accepted.allocation.instances for name, accepted in jobs.items()}

    before = instances()
    command = ["scale-out", "--machines", "1", "--job", "papers/star", "--wait", "300"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    after = instances()
    assert {name for name in after if after[name] != before[name]} == {"papers/star"}


def test_bad_requests_have_a_code_and_change_nothing(running: tuple[Daemon, TestClient]) -> None:
    _, client = running
    assert client.post("/cluster/scale-in", json={"machines": 4}).json()["code"] == (
        "NOT_ENOUGH_MACHINES"
    )
    assert client.post("/cluster/scale-out", json={"machines": 0}).status_code == 422
    unknown = client.post("/cluster/scale-out", json={"machines": 1, "job": "x/y"})
    assert unknown.json()["code"] == "NOT_FOUND"
    for body, code, status in (
        ({}, "NOT_UNDERSTOOD", 422),
        ({"machines": 2, "machine_names": ["m1"]}, "NOT_UNDERSTOOD", 422),
        ({"machine_names": ["m1", "m1"]}, "NOT_UNDERSTOOD", 422),
        ({"machine_names": [""]}, "NOT_UNDERSTOOD", 422),
        ({"machine_names": ["m1", "m9"]}, "UNKNOWN_MACHINE", 422),
        ({"machine_names": ["m0", "m1", "m2", "m3"]}, "NOT_ENOUGH_MACHINES", 409),
    ):
        refused = client.post("/cluster/scale-in", json=body)
        assert (refused.status_code, refused.json()["code"]) == (status, code), body
    dry = client.post("/cluster/scale-in", json={"machine_names": ["m9"], "dry_run": True})
    assert dry.json()["detail"] == "The cluster has no machine 'm9'. It has: m0, m1, m2, m3."
    assert client.get("/cluster/requests").json() == []
    assert has_machines(client, 4)


def test_a_request_that_is_not_audited_is_carried_out_and_its_end_is_audited_later(
    running: tuple[Daemon, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, client = running
    with monkeypatch.context() as failing:
        failing_audit(failing)
        answer = client.post("/cluster/scale-out", json={"machines": 1})
        assert (answer.status_code, answer.json()["code"]) == (500, "NOT_AUDITED")
        until(partial(has_machines, client, 5))
        until(lambda: [row["done"] for row in client.get("/cluster/requests").json()] == [True])
        rounds = client.get("/health").json()["round"]
        until(lambda: client.get("/health").json()["round"] > rounds + 2)
        assert client.get("/health").json()["problem"] == ""  # the rounds go on
        assert client.get("/audit").json() == []
    until(lambda: client.get("/audit").json())
    assert [row["action"] for row in client.get("/audit").json()] == ["scale-out ended"]


def test_a_request_is_audited_to_its_end_by_the_next_daemon_too(tmp_path: Path) -> None:
    """The first daemon ends before it has carried out what it accepted."""
    store = AccessStore(tmp_path / "access.sqlite", lambda: 7.0)
    request = ScalingRequest("scale-in-3", ScalingKind.IN, 2, None, 5.0)
    state = SimpleNamespace(requests=[request])
    row = RequestRow(request, 6.0, done=False, message="No machine is idle.")
    journal = SimpleNamespace(requests=lambda _: (row,))
    controller: Any = SimpleNamespace(
        state=state, journal=journal, scene=None, cluster=SimpleNamespace(slots=8)
    )
    ScalingAudit(controller, store).requested(Caller("5f0c", "ops", cluster_admin=True), request)
    following = ScalingAudit(controller, store)
    following.after_round()
    assert len(store.audited()) == 1
    state.requests.clear()
    following.after_round()
    following.after_round()
    _, ended = store.audited()
    assert (ended.token, ended.name, ended.action) == ("5f0c", "ops", "scale-in ended")
    assert ended.after == {
        "request": "scale-in-3",
        "done": False,
        "told": "No machine is idle.",
        "machines": [],
        "slots": 8,
    }
    store.close()
