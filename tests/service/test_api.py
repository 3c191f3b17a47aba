"""The API: jobs, decisions, explanations, the cluster, health and
events; one shape for every error.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cluster import FakeCluster, chain
from tests.control.scene import ClusterClock
from tests.service.conftest import RULES
from trilithon.cli.cluster_commands import headline
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Condition, Health
from trilithon.errors import DaemonRuns, DaemonUnreachable, HostUnreachable
from trilithon.model.intent import Constraint
from trilithon.model.job import Parallelism
from trilithon.service import daemon as daemon_module
from trilithon.service.address import publish, published, withdraw
from trilithon.service.api import api
from trilithon.service.daemon import Daemon, daemon
from trilithon.service.reattach import ReattachingEngine
from trilithon.spec.dump import dump_job

JOB = chain()
PATIENCE_S = 120.0


def until(check: Callable[[], Any]) -> Any:
    """Waits until something is so, for as long as a slow machine may take."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := check()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
    return value


def state(client: TestClient, name: str = JOB.id) -> str:
    rows = client.get("/jobs").json()
    states = {row["metadata"]["id"]: row["status"]["state"] for row in rows}
    return str(states.get(name, "gone"))


def apply(client: TestClient, job: Any = JOB, **more: Any) -> Any:
    dry_run = more.pop("dry_run", False)
    body = {"spec": dump_job(job), **more}
    return client.put(f"/jobs/{job.id}", json=body, params={"dry_run": dry_run})


def test_a_deletion_is_answered_though_the_loop_is_faster(
    client: TestClient, running: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was looked up after the next round had ended the job: 404 for what was done."""
    assert apply(client).is_success
    until(lambda: state(client) == "running")
    delete = running.commands.delete

    def slowly(job: str) -> None:
        delete(job)
        deadline = time.monotonic() + 1.0
        while job in running.controller.state.jobs and time.monotonic() < deadline:
            time.sleep(0.02)

    monkeypatch.setattr(running.commands, "delete", slowly)
    answer = client.delete(f"/jobs/{JOB.id}")
    assert (answer.status_code, answer.json()["status"]["state"]) == (200, "ending")
    until(lambda: state(client) == "gone")


def test_a_job_is_applied_runs_is_rescaled_and_explained(
    client: TestClient, cluster: FakeCluster
) -> None:
    cluster.rates[JOB.id] = 250.0
    answer = apply(client).json()
    assert (answer["job"], answer["generation"]) == (JOB.id, 1)
    until(lambda: state(client) == "running")
    until(lambda: client.get(f"/jobs/{JOB.id}").json()["status"]["slots"] > 3)
    shown = client.get(f"/jobs/{JOB.id}").json()
    assert shown["spec"]["name"] == "chain"
    assert shown["figures"]["operators"][0]["operator"] == "o0"

    def done() -> bool:
        rows = client.get(f"/jobs/{JOB.id}/explanation", params={"limit": 100}).json()
        return any(sentence.startswith("Done") for row in rows for sentence in row["sentences"])

    until(done)
    assert client.get("/decisions").json()
    assert client.get("/figures").json()[0]["job"] == JOB.id
    status = client.get("/cluster").json()
    assert status["tenants"] == [
        {"tenant": "ads", "jobs": 1, "slots_used": status["slots_used"], "quota": 12}
    ]
    until(lambda: client.get(f"/jobs/{JOB.id}/series").json())


def test_constraints_are_among_the_live_figures(client: TestClient) -> None:
    limits = (Constraint(("o0",), 1000.0, over_s=10),)
    apply(client, replace(JOB, intent=replace(JOB.intent, constraints=limits)))
    until(lambda: state(client) == "running")
    until(lambda: (rows := client.get("/figures").json()) and rows[0]["constraints"])
    figures = client.get(f"/jobs/{JOB.id}").json()["figures"]
    (constraint,) = figures["constraints"]
    assert (constraint["sequence"], constraint["at_most_ms"]) == (["o0"], 1000.0)


def test_a_job_pauses_resumes_and_is_deleted_and_its_history_stays(client: TestClient) -> None:
    apply(client)
    until(lambda: state(client) == "running")
    assert client.post(f"/jobs/{JOB.id}/pause").status_code == 200
    until(lambda: state(client) == "paused")
    assert client.post(f"/jobs/{JOB.id}/resume").status_code == 200
    until(lambda: state(client) == "running")
    assert (
        client.put(f"/jobs/{JOB.id}/mode", json={"mode": "off"}).json()["metadata"]["mode"] == "off"
    )
    assert client.delete(f"/jobs/{JOB.id}").json()["status"]["state"] == "ending"
    until(lambda: state(client) == "gone")
    kinds = [e["kind"] for e in client.get(f"/jobs/{JOB.id}/history").json()["events"]]
    assert kinds[0] == "accepted"
    assert kinds[-1] == "gone"


def test_a_job_that_the_engine_cannot_run_is_refused_and_not_listed(client: TestClient) -> None:
    """It was accepted, listed as `not started` and tried again for ever."""
    wide = replace(JOB.operators[0], parallelism=Parallelism(1, 1, 5000))
    impossible = replace(JOB, operators=(wide, *JOB.operators[1:]))
    for refused in (apply(client, impossible), apply(client, impossible, dry_run=True)):
        assert refused.status_code == 422
        (problem,) = refused.json()["problems"]
        assert problem["code"] == "TOO_MANY_TASKS"
        assert "TOO_MANY_TASKS" not in problem["message"]
    assert client.get("/jobs").json() == []


def test_what_a_new_version_means_is_told_before_it_is_done(client: TestClient) -> None:
    apply(client)
    until(lambda: state(client) == "running")
    source = replace(JOB.sources[0], options=(("subscribe", "elsewhere"),))
    other = replace(JOB, sources=(source,))
    assert apply(client, other, dry_run=True).json()["impact"] == "anew"
    refused = apply(client, other)
    assert refused.status_code == 409
    assert refused.json()["code"] == "NEEDS_NEW_CHECKPOINT"
    assert apply(client, other, anew=True).json()["generation"] == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/jobs/no/body", None, 404, "NOT_FOUND"),
        ("GET", "/jobs/no/body/explanation", None, 404, "NOT_FOUND"),
        ("GET", "/jobs/no/body/history", None, 404, "NOT_FOUND"),
        ("GET", "/nowhere", None, 404, "NOT_FOUND"),
        ("DELETE", "/jobs/no/body", None, 404, "NOT_FOUND"),
        ("PUT", "/jobs/no/body", {"spec": {"name": 3}}, 422, "INVALID_JOB"),
        ("PUT", "/jobs/no/body", {"spec": "run this"}, 422, "NOT_UNDERSTOOD"),
        ("PUT", "/jobs/no/body", {}, 422, "NOT_UNDERSTOOD"),
        ("PUT", "/jobs/no/body", {"spec": {}, "mood": "good"}, 422, "NOT_UNDERSTOOD"),
        ("POST", "/jobs", {}, 405, "NOT_UNDERSTOOD"),
        ("PUT", "/jobs/no/body/mode", {"mode": "on"}, 422, "NOT_UNDERSTOOD"),
        ("GET", "/decisions?limit=0", None, 422, "NOT_UNDERSTOOD"),
    ],
)
def test_every_error_has_one_shape(
    client: TestClient, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = client.request(method, path, json=body)
    assert answer.status_code == status
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:trilithon:problem:{code.lower().replace('_', '-')}"
    assert problem["detail"]


def test_only_who_has_a_token_may_ask_and_only_by_this_machines_name(
    running: Daemon, client: TestClient
) -> None:
    stranger = TestClient(api(running), base_url="http://127.0.0.1/api/v1")
    assert stranger.get("/jobs").status_code == 401
    assert stranger.get("http://127.0.0.1/healthz").json() == {"status": "ok"}
    wrong = {"Authorization": "Bearer guessed"}
    assert stranger.get("/jobs", headers=wrong).json()["code"] == "NOT_ALLOWED"
    for host in ("evil.example", "127.0.0.1.evil.example", "[::1", "", "[::2]"):
        refused = client.get("/jobs", headers={"Host": host})
        assert refused.status_code == 400
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["code"] == "NOT_UNDERSTOOD"
    for host in ("127.0.0.1:8443", "LOCALHOST"):
        assert client.get("/jobs", headers={"Host": host}).status_code == 200
    app = api(running, ("::1", "[fe80::2]", "streams.example"))
    for host in ("[::1]", "[::1]:8443", "[fe80::2]:1", "Streams.Example:443"):
        assert TestClient(app).get("/healthz", headers={"Host": host}).status_code == 200


def test_events_come_as_they_happen_and_a_reader_that_comes_back_misses_none(
    running: Daemon, client: TestClient
) -> None:
    apply(client)
    until(lambda: len(running.journal.events()) >= 3)
    first = running.journal.events()[0]

    def read(**given: Any) -> list[dict[str, Any]]:
        rows = []
        with client.stream("GET", "/events", **given) as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    rows.append(json.loads(line[5:]))
                if len(rows) == 2:
                    running._stop.set()  # the stream ends with the daemon
        running._stop.clear()
        return rows[:2]

    rows = read(params={"after": 0})
    assert [row["id"] for row in rows] == [first.id, first.id + 1]
    assert rows[0]["kind"] == "accepted"
    again = read(headers={"Last-Event-ID": str(first.id)})
    assert [row["id"] for row in again] == [first.id + 1, first.id + 2]


def test_health_tells_when_the_engine_cannot_be_seen(tmp_path: Path) -> None:
    def nobody() -> FakeCluster:
        raise HostUnreachable("No host answers.")

    with daemon(ReattachingEngine(nobody), RULES, tmp_path / "daemon") as running:
        headers = {"Authorization": f"Bearer {running.token}"}
        client = TestClient(api(running), base_url="http://127.0.0.1/api/v1", headers=headers)
        health = until(lambda: (h := client.get("/health").json()) and h["status"] == "blind" and h)
        ready = client.get("http://127.0.0.1/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "blind"})
    assert "No host answers" in health["problem"]


def test_an_engine_that_was_lost_is_reached_again(tmp_path: Path, cluster: FakeCluster) -> None:
    reached: list[int] = []

    class Once(FakeCluster):
        """Answers three times and is then lost."""

        def jobs(self) -> Any:
            if len(reached) == 1 and self.now_s > cluster.now_s + 25:
                raise HostUnreachable("It is gone.")
            return super().jobs()

    engine = Once(auto_s=10.0)

    def reach() -> FakeCluster:
        reached.append(1)
        return engine

    clock = ClusterClock(engine)
    with daemon(ReattachingEngine(reach), RULES, tmp_path / "daemon", clock=clock) as running:
        until(
            lambda: (
                len(reached) == 2 and running.controller.last and not running.controller.last.blind
            )
        )


class WrittenLog:
    """A log that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    debug = warning = error = exception = info


def test_the_log_has_the_id_of_every_decision_and_of_its_actions(
    client: TestClient,
    running: Daemon,
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = WrittenLog()
    monkeypatch.setattr(daemon_module, "_log", log)
    cluster.rates[JOB.id] = 250.0
    apply(client)
    until(lambda: any(event == "action_ended" for event, _ in log.events))
    running.stop()
    decided = {fields["decision"]: fields for event, fields in log.events if event == "decided"}
    acted = [fields["decision"] for event, fields in log.events if event == "action_ended"]
    explained = {entry["id"] for entry in client.get(f"/jobs/{JOB.id}/explanation").json()}
    assert set(acted) <= set(decided) <= explained
    assert {fields["job"] for fields in decided.values()} == {JOB.id}


def test_a_second_daemon_in_the_same_folder_is_refused(
    running: Daemon, tmp_path: Path, cluster: FakeCluster
) -> None:
    with (
        pytest.raises(DaemonRuns, match="already"),
        daemon(cluster, RULES, tmp_path / "daemon"),
    ):
        pytest.fail("it was let in")


def test_where_a_daemon_answers_is_for_its_owner_only_and_gone_with_it(tmp_path: Path) -> None:
    publish(tmp_path, "http://127.0.0.1:4711", "secret")
    assert (tmp_path / "daemon.json").stat().st_mode & 0o777 == 0o600
    assert published(tmp_path)["url"] == "http://127.0.0.1:4711"
    withdraw(tmp_path)
    with pytest.raises(DaemonUnreachable):
        published(tmp_path)


def test_a_round_that_fails_does_not_end_the_daemon(
    running: Daemon, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(running.controller, "round", broken)
        until(lambda: "ZeroDivisionError" in client.get("/health").json()["problem"])
    running.wake()
    until(lambda: client.get("/health").json()["status"] == "ok")


def test_the_cluster_tells_whether_it_is_large_enough(
    client: TestClient, cluster: FakeCluster
) -> None:
    cluster.rates[JOB.id] = 50.0
    apply(client)
    until(lambda: state(client) == "running")
    crunch = until(lambda: _crunch(client))
    (need,) = crunch["jobs"]
    assert need["job"] == JOB.id
    assert need["has"] == client.get(f"/jobs/{JOB.id}").json()["status"]["slots"]
    assert crunch["feasible"] is True
    assert crunch["slots_missing"] == 0
    assert crunch["slots_needed"] == need["needs"] == sum(need["instances"].values())


def _crunch(client: TestClient) -> dict[str, Any] | None:
    """As soon as all that matters was measured."""
    answer = client.get("/cluster/crunch")
    crunch: dict[str, Any] | None = answer.json() if answer.status_code == 200 else None
    return crunch if crunch and crunch["jobs"] and crunch["feasible"] is not None else None


def test_jobs_that_do_not_run_are_counted_and_health_tells(
    client: TestClient, cluster: FakeCluster
) -> None:
    """`top` said "1 of 1 jobs run" of a job that had failed, and `/health` that all was well."""
    other = chain("other")
    apply(client)
    apply(client, other)
    until(lambda: {state(client), state(client, other.id)} == {"running"})
    cluster.condition[JOB.id] = Condition(
        Health.DEGRADED, "Kafka does not answer.", Cause.KAFKA, 1.0, 3661.0
    )
    until(lambda: state(client) == "degraded")
    shown = client.get("/cluster").json()
    assert (shown["jobs"], shown["running"], shown["degraded"], shown["failed"]) == (2, 1, 1, 0)
    assert headline(shown).plain.startswith("1 of 2 jobs running, 1 degraded, ")
    health = client.get("/health").json()
    assert health["status"] == "degraded"
    assert health["problem"] == (
        "1 of 2 jobs do not run. ads/chain degraded: Kafka does not answer."
    )
    line = client.get(f"/jobs/{JOB.id}").json()["status"]
    assert line["problem"] == "Kafka does not answer. Next try at 01:01:01Z."
    assert line["next_try_s"] == 3661.0
    cluster.condition[JOB.id] = Condition(Health.FAILED, "A cast fails.", Cause.EXPRESSION, 1.0)
    until(lambda: state(client) == "failed")
    assert client.get("/cluster").json()["failed"] == 1
    # From the command on it is not called failed any more.
    assert client.post(f"/jobs/{JOB.id}/resume").json()["status"]["state"] == "starting"
    cluster.condition.clear()
    until(lambda: client.get("/health").json()["status"] == "ok")
    kinds = [e["kind"] for e in client.get(f"/jobs/{JOB.id}/history").json()["events"]]
    assert [k for k in kinds if k in {"degraded", "failed", "resumed", "recovered"}] == [
        "degraded",
        "failed",
        "resumed",
        "recovered",
    ]
    told = [row["sentences"][0] for row in client.get(f"/jobs/{JOB.id}/explanation").json()]
    assert any(text.startswith("The job failed: A cast fails.") for text in told)
