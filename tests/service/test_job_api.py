"""Jobs over the API: conditions, versions, dry runs, intents that change while a job runs."""

import copy
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.cluster import FakeCluster, chain
from tests.service.test_api import JOB, apply, state, until
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Condition, Health
from trilithon.errors import NotFound, NotObservable
from trilithon.model.intent import Constraint
from trilithon.service.api import document, routed_app
from trilithon.service.daemon import Daemon
from trilithon.service.monitor.history import History, _Tenants
from trilithon.service.peek import topics_at
from trilithon.service.python_jobs import PythonJobs
from trilithon.service.settings import ServiceSettings
from trilithon.spec.dump import dump_job


def conditions(client: TestClient, job: str = JOB.id) -> dict[str, tuple[str, str]]:
    status = client.get(f"/jobs/{job}").json()["status"]
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def test_conditions_tell_what_a_job_does_and_since_when(
    client: TestClient, cluster: FakeCluster
) -> None:
    cluster.rates[JOB.id] = 20.0
    apply(client)
    until(lambda: conditions(client)["SloMet"] == ("True", "IntentMet"))
    assert conditions(client) == {
        "Ready": ("True", "Running"),
        "SloMet": ("True", "IntentMet"),
        "Reconfiguring": ("False", "Settled"),
        "Degraded": ("False", "Healthy"),
        "Paused": ("False", "NotPaused"),
        "Hungry": ("False", "NotHungry"),
    }
    ready = client.get(f"/jobs/{JOB.id}").json()["status"]["conditions"][0]
    until(lambda: client.get("/health").json()["last_round_s"] > ready["since_s"] + 30)
    assert client.get(f"/jobs/{JOB.id}").json()["status"]["conditions"][0] == ready
    cluster.condition[JOB.id] = Condition(Health.DEGRADED, "Kafka is away.", Cause.KAFKA, 1.0)
    until(lambda: conditions(client)["Degraded"] == ("True", "Degraded"))
    assert conditions(client)["Ready"] == ("False", "Degraded")
    later = client.get(f"/jobs/{JOB.id}").json()["status"]["conditions"][0]
    assert later["since_s"] > ready["since_s"]
    assert later["message"] == "Kafka is away."
    cluster.condition.clear()
    client.post(f"/jobs/{JOB.id}/pause")
    assert conditions(client)["Paused"] == ("True", "PausedByOwner")
    until(lambda: conditions(client)["Ready"] == ("False", "Paused"))


def test_a_missed_intent_tells_what_it_costs(client: TestClient, cluster: FakeCluster) -> None:
    tight = replace(JOB, intent=replace(JOB.intent, constraints=(Constraint(("o0",), 0.001, 10),)))
    apply(client, tight, mode="off")
    until(lambda: conditions(client)["SloMet"] == ("False", "IntentMissed"))
    listed = client.get("/jobs").json()[0]["status"]["numbers"]
    assert listed["met"] is False
    assert listed["lost_utility"] == listed["max_utility"] - listed["utility"]


def test_a_list_asked_for_between_a_round_and_its_facts_is_not_kept(
    client: TestClient, running: Daemon, cluster: FakeCluster
) -> None:
    apply(client)
    until(lambda: state(client) == "running")
    running.stop()

    def listed() -> Any:
        return client.get("/jobs").json()[0]["status"]["numbers"]

    for rate in (20.0, 40.0):
        cluster.rates[JOB.id] = rate
        done = running.controller.round()
        before = listed()
        running.monitor.after_round(done, 0.1)
        last = running.monitor.last.jobs[JOB.id]
        assert listed()["input_per_s"] == last.input_per_s != before["input_per_s"]


def test_applying_the_same_spec_again_changes_nothing(client: TestClient, running: Daemon) -> None:
    assert apply(client).status_code == 201
    until(lambda: state(client) == "running")
    shown = client.get(f"/jobs/{JOB.id}").json()
    audited = len(client.get("/audit").json())
    again = client.put(f"/jobs/{JOB.id}", json={"spec": shown["spec"]})
    assert (again.status_code, again.json()["impact"], again.json()["generation"]) == (
        200,
        "none",
        1,
    )
    assert len(client.get("/audit").json()) == audited


def test_a_change_of_another_version_than_expected_is_refused(client: TestClient) -> None:
    only_new = {"If-None-Match": "*"}
    body = {"spec": dump_job(JOB)}
    path = f"/jobs/{JOB.id}"
    assert client.put(path, json=body, headers={"If-Match": '"1"'}).status_code == 412
    assert client.put(path, json=body, headers=only_new).status_code == 201
    assert client.put(path, json=body, headers=only_new).status_code == 412
    assert client.get(path).headers["ETag"] == '"1"'
    first = {"If-Match": '"1"'}
    changed = client.put(f"{path}/priority", json={"priority": 7}, headers=first)
    assert (changed.json()["generation"], changed.json()["impact"]) == (2, "live")
    for method, place, data in (
        ("PUT", "/priority", {"priority": 8}),
        ("PUT", "/mode", {"mode": "off"}),
        ("POST", "/pause", None),
        ("DELETE", "", None),
    ):
        stale = client.request(method, path + place, json=data, headers=first)
        assert (stale.status_code, stale.json()["code"]) == (412, "VERSION_CONFLICT")
    assert client.put(f"{path}/mode", json={"mode": "off"}, headers={"If-Match": "*"}).is_success


def test_priority_and_intent_change_while_the_job_runs(
    client: TestClient, cluster: FakeCluster
) -> None:
    apply(client)
    until(lambda: state(client) == "running")
    submitted = cluster.now_s
    assert client.put(f"/jobs/{JOB.id}/priority", json={"priority": 35}).json()["impact"] == "live"
    until(lambda: [j["max_utility"] for j in client.get("/snapshot").json()["jobs"]] == [35])
    intent = {"priority": 3, "slo": [{"metric": "juice", "at_least": 0.9}]}
    changed = client.put(f"/jobs/{JOB.id}/intent", json={"intent": intent})
    assert changed.json()["impact"] == "live"
    shown = client.get(f"/jobs/{JOB.id}").json()
    assert shown["spec"]["intent"]["priority"] == 3
    assert shown["spec"]["intent"]["slo"][0]["metric"] == "juice"
    assert shown["status"]["state"] == "running"
    assert client.put(f"/jobs/{JOB.id}/priority", json={"priority": -1}).status_code == 422
    wrong = client.put(f"/jobs/{JOB.id}/intent", json={"intent": {"slo": [{"metric": "joy"}]}})
    assert wrong.status_code == 422
    entries = client.get("/audit").json()
    assert [row["action"] for row in entries] == ["job applied", "priority set", "intent set"]
    before, after = entries[1]["before"], entries[1]["after"]
    assert before["spec"]["intent"].get("priority", 1) == 1
    assert after["spec"]["intent"]["priority"] == 35
    assert entries[1]["name"] == "owner of this machine's state folder"
    assert cluster.now_s > submitted


# Every operation with a dry run, and a request that would change something.
DRY_RUNS: dict[tuple[str, str], Any] = {
    ("PUT", "/api/v1/jobs/{tenant}/{name}"): {"spec": {}},
    ("PUT", "/api/v1/jobs/{tenant}/{name}/python"): {"file": "/jobs/new.py"},
    ("DELETE", "/api/v1/jobs/{tenant}/{name}"): None,
    ("POST", "/api/v1/jobs/{tenant}/{name}/pause"): None,
    ("POST", "/api/v1/jobs/{tenant}/{name}/resume"): None,
    ("PUT", "/api/v1/jobs/{tenant}/{name}/mode"): {"mode": "off"},
    ("PUT", "/api/v1/jobs/{tenant}/{name}/priority"): {"priority": 99},
    ("PUT", "/api/v1/jobs/{tenant}/{name}/intent"): {"intent": {"priority": 99}},
    ("POST", "/api/v1/cluster/scale-out"): {"machines": 1},
    ("POST", "/api/v1/cluster/scale-in"): {"machines": 1},
}


def test_a_dry_run_changes_not_a_byte(client: TestClient, running: Daemon, tmp_path: Path) -> None:
    """Of files, of the controller's state in memory, and of what the engine was asked."""
    apply(client)
    until(lambda: state(client) == "running" and running.controller.scene is not None)
    other = chain("other")
    apply(client, other)
    until(lambda: state(client, other.id) == "running")
    client.post(f"/jobs/{other.id}/pause")
    until(lambda: state(client, other.id) == "paused")
    running.stop()  # so that no round writes meanwhile
    operations = document(routed_app())["paths"]
    offered = {
        (method.upper(), path)
        for path, methods in operations.items()
        for method, operation in methods.items()
        if "dry_run" in str(operation)
    }
    assert offered == set(DRY_RUNS)

    def everything() -> tuple[Any, ...]:
        files = {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(tmp_path.rglob("*"))
            # Readers mark in the shared memory which pages they read.
            if path.is_file() and not path.name.endswith("-shm")
        }
        engine = running.controller.engine
        assert isinstance(engine, FakeCluster)
        return (
            files,
            copy.deepcopy(running.controller.state),
            dict(engine.allocations),
            running.changes,
            running.journal.last_event(),
        )

    new_version = chain(operators=3)
    running.python_jobs = PythonJobs(
        ServiceSettings.of({"python_folders": ["/jobs"]}),
        lambda *_: {"jobs": [dump_job(new_version)]},
    )
    before = everything()
    for (method, path), body in DRY_RUNS.items():
        target = other if path.endswith("resume") else JOB
        url = f"http://127.0.0.1{path.format(tenant=target.tenant, name=target.name)}"
        given = body
        if body == {"spec": {}}:
            given = {"spec": dump_job(new_version), "mode": "off", "anew": True}
        answer = client.request(method, url, json=given, params={"dry_run": "true"})
        assert answer.is_success, answer.text
        assert everything() == before, f"{method} {path}"
        if path.startswith("/api/v1/cluster"):  # in the body, too
            assert client.request(method, url, json={**body, "dry_run": True}).is_success
            assert everything() == before, f"{method} {path}"
    # The same requests in earnest do change something.
    assert client.put(f"/jobs/{JOB.id}/priority", json={"priority": 99}).is_success
    assert everything() != before


def test_a_dry_run_says_what_would_be_refused(client: TestClient) -> None:
    apply(client)
    until(lambda: state(client) == "running")
    source = replace(JOB.sources[0], options=(("subscribe", "elsewhere"),))
    planned = apply(client, replace(JOB, sources=(source,)), dry_run=True).json()
    assert (planned["impact"], planned["dry_run"], planned["generation"]) == ("anew", True, 1)
    assert "NEEDS_NEW_CHECKPOINT" in planned["told"]
    mismatch = client.put("/jobs/ads/another", json={"spec": dump_job(JOB)})
    assert mismatch.json()["problems"][0]["code"] == "NAME_MISMATCH"


def test_the_history_has_totals_and_columns_of_each_job(
    client: TestClient, cluster: FakeCluster
) -> None:
    other = chain("other", "shop")
    apply(client)
    apply(client, other)
    until(lambda: {state(client), state(client, other.id)} == {"running"})
    past = until(
        lambda: (
            (read := client.get("/history", params={"job": JOB.id}).json())
            and (read["max_utility"] or [None])[-1] == 2.0  # both are measured
            and read
        )
    )
    assert set(past["jobs"]) == {JOB.id}
    columns = past["jobs"][JOB.id]
    assert all(len(column) == len(past["time_s"]) for column in columns.values())
    assert past["time_s"] == sorted(past["time_s"])
    assert past["utility"][-1] <= 2.0
    assert past["slots_used"][-1] == client.get("/cluster").json()["slots_used"]
    few = client.get("/history", params={"points": 2}).json()
    assert len(few["time_s"]) <= 2
    assert client.get("/history", params={"since_s": 1e12}).json()["time_s"] == []


def test_the_ring_of_the_history_is_bounded_and_knows_jobs_that_come_and_go(
    running: Daemon, client: TestClient
) -> None:
    ring = History(rounds=3)
    facts = running.monitor.last
    for i in range(5):
        ring.add(replace(facts, time_s=float(i)))
    assert ring.read(lambda _: True)["time_s"] == [2.0, 3.0, 4.0]
    ring.add(replace(facts, time_s=3.0))  # the clock was set back
    assert ring.read(lambda _: True)["time_s"] == [2.0, 3.0]


def test_totals_of_the_history_are_those_of_the_tenants_that_are_seen(
    client: TestClient, running: Daemon
) -> None:
    apply(client)
    until(lambda: state(client) == "running")
    running.stop()
    facts, ring = running.monitor.last, History()
    job = facts.jobs[JOB.id]
    for i, names in enumerate((["a/x", "b/y"], ["a/x", "b/y", "a/z"], [])):
        unknown = replace(job, slots=i + 2, has_slots=True, utility=None)
        jobs = {name: replace(unknown, job=name) for name in names}
        ring.add(replace(facts, time_s=1.0 + i, jobs=jobs))
    for seen, slots in (({"a", "b"}, [4, 9, 0]), ({"a"}, [2, 6, 0]), ({"c"}, [0, 0, 0])):
        read = ring.read(seen.__contains__)
        assert read["slots_used"] == slots
        assert read["utility"] == read["max_utility"] == [None] * 3  # nothing was measured


def test_a_utility_that_is_unknown_counts_for_no_tenant() -> None:
    tenants = _Tenants.of(("a/x", "b/y", "a/z"))
    columns = {"utility": [0.5, np.nan, 0.25], "max_utility": [1, 2, 3], "slots": [4, 5, 6]}
    totals = tenants.totals({name: np.array(column, "f4") for name, column in columns.items()})
    assert tenants.names == ("a", "b")
    assert totals.tolist() == [[2, 0], [0.75, 0], [4, 0], [10, 5]]


def test_records_are_read_from_the_topic_of_a_place_or_while_they_pass(
    client: TestClient, running: Daemon
) -> None:
    apply(client)
    simulated = client.get(f"/jobs/{JOB.id}/records/in")
    assert (simulated.status_code, simulated.json()["code"]) == (409, "NOT_OBSERVABLE")
    running.read_latest = lambda topic, n, _: [{"offset": i, "value": topic} for i in range(n)]
    answer = client.get(f"/jobs/{JOB.id}/records/in", params={"limit": 2}).json()
    assert answer["topics"] == ["chain-in"]
    assert [row["offset"] for row in answer["records"]] == [0, 1]
    assert client.get(f"/jobs/{JOB.id}/records/o1->out").json()["topics"] == ["chain-out"]
    assert topics_at(replace(JOB, dead_letter_topic="dead"), "dead_letters") == ["dead"]
    running.edge_topics = lambda job: {"o0->o1": f"trilithon.1a.{job}"}
    cut = client.get(f"/jobs/{JOB.id}/records/o0->o1").json()
    assert cut["topics"] == [f"trilithon.1a.{JOB.id}"]
    running.edge_topics = lambda _: {}
    inside = client.get(f"/jobs/{JOB.id}/records/o0->o1")
    assert (inside.status_code, inside.json()["code"]) == (409, "NOT_OBSERVABLE")
    running.read_edge = lambda job, edge, n: [{"instance": 1, "value": f"{job} {edge} {n}"}]
    shown = client.get(f"/jobs/{JOB.id}/records/o0->o1").json()
    assert shown["topics"] == []
    assert shown["records"] == [{"instance": 1, "value": f"{JOB.id} o0->o1 5"}]
    for place, kind in (("o0", NotObservable), ("x", NotFound), ("o0->x", NotFound)):
        with pytest.raises(kind):
            topics_at(JOB, place)


def test_policies_and_machines_are_listed(client: TestClient, running: Daemon) -> None:
    apply(client)
    until(lambda: state(client) == "running")
    assert {"henge", "stela", "latency", "dhalion"} <= {
        row["policy"] for row in client.get("/policies").json()
    }
    running.stop()  # so that no round comes between the two
    assert client.get("/machines").json() == client.get("/cluster").json()["machine_details"]
