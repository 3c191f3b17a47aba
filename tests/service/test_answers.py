"""Answers with data in them have the shape that the OpenAPI document says: of a simulated cluster
under Henge, with decisions, alerts, usage and an audit log.
"""

import json
import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from starlette.testclient import TestClient

from tests.service.dashboard.showcase import BASE, Showcase, showcase
from tests.service.dashboard.test_parts import decision, write_decision
from tests.service.openapi_shapes import Document, Violation
from trilithon.contract.change_wire import proposal_to_json
from trilithon.engines.composite import ApplicationStatus, State
from trilithon.model.change import (
    Alert,
    AvoidedTasksChange,
    BatchingChange,
    InstanceRestart,
    JobRestart,
    KeyGroupsChange,
    MachinesAddition,
    MachinesRemoval,
    ParallelismChange,
    PlacementChange,
    Proposal,
    Severity,
    WeightsChange,
)
from trilithon.model.intent import EdgeName
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.service.access.roles import Caller
from trilithon.service.monitor.alerts import ActiveAlert
from trilithon.service.monitor.monitor import event_data
from trilithon.service.monitor.snapshots import RoundSnapshot
from trilithon.service.routes.common import API
from trilithon.workloads.topic_reader import Record

JOB = "ads/pageload"
# What a policy publishes, in its own form; and a route whose answer is one named text.
FREE = {("get", "/api/v1/cluster/{report}"), ("post", "/api/v1/login-codes")}
PROPOSALS: tuple[Proposal, ...] = (
    ParallelismChange(JOB, {"join": 3}),
    WeightsChange(JOB, {"join": (1.0, 0.5)}),
    PlacementChange(JOB, {"join": ("m1", None)}),
    KeyGroupsChange(JOB, {"join": (0, 1, -1)}),
    AvoidedTasksChange(JOB, {"join": (2,)}),
    BatchingChange(JOB, {EdgeName("parse", "join"): 12.5}),
    InstanceRestart(JOB, "join", 1),
    JobRestart(JOB),
    MachinesAddition(2),
    MachinesRemoval(("m1",)),
    Alert(JOB, Severity.WARNING, "SKEW", "A sentence.", "Some advice."),
)


@pytest.fixture(scope="module")
def described() -> Document:
    return Document()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showcase]:
    """The showcase after four minutes, with something of everything that can be answered."""
    with showcase(tmp_path_factory.mktemp("answers"), 240.0) as made:
        daemon = made.daemon
        active = ActiveAlert("JOB_DOWN", Severity.CRITICAL, JOB, "It fell over.", 1.0)
        daemon.monitor.alerts._active[active.key] = active
        ended = ActiveAlert("HUNGRY", Severity.WARNING, None, "It was hungry.", 1.0, 2.0)
        daemon.monitor.alerts._recent.append(ended)
        daemon.monitor.tally.flush()
        made.journal.request(ScalingRequest("scale-out-1", ScalingKind.OUT, 1, JOB, 1.0))
        record = Record(0, 7, time.time(), "k", '{"a": [1]}', (("h", "x"), ("none", None)))
        daemon.read_latest = lambda _, n, __: [record.as_data()] * n
        passed = {"instance": 3, "time": record.time, "value": {"a": 1}}
        daemon.read_edge = lambda _, __, n: [passed] * n
        daemon.applications = lambda: [ApplicationStatus("ads", State.RUNNING, 1.0, (JOB,))]
        clip = {"code": "QUOTA", "operator": "join", "asked": 3, "granted": 1, "facet": "weights"}
        expects = {"metric": "latency.p95", "value": 250.0, "by_s": 160.0, "sense": "at_most"}
        for i, proposal in enumerate(PROPOSALS):
            changes = (proposal_to_json(proposal),)
            row = decision(
                f"made {i}",
                job=JOB if i else None,
                asked=changes,
                granted=changes,
                clips=({**clip, "job": None},),
                expects=expects,
                came={"time_s": 160.0, "value": None, "kept": None} if i else None,
                time_s=made.controller.clock.now_s(),
                last_s=made.controller.clock.now_s(),
            )
            write_decision(made.journal, row)
        yield made


@pytest.fixture(scope="module")
def client(shown: Showcase) -> TestClient:
    headers = {"Authorization": f"Bearer {shown.daemon.token}"}
    return TestClient(shown.app, base_url=BASE, headers=headers)


def test_no_answer_is_any_object_but_what_a_policy_publishes(described: Document) -> None:
    """27 of 40 operations said no more than that they answer with an object."""

    def free(schema: dict[str, Any]) -> bool:
        of = schema.get("items", schema) if schema.get("type") == "array" else schema
        return "$ref" not in of and "anyOf" not in of

    untyped = {
        (method, path)
        for path, operations in described.data["paths"].items()
        for method in operations
        for media, content in described.answers(method, path).items()
        if media == "application/json" and free(content["schema"])
    }
    assert untyped == FREE


def test_every_read_of_a_cluster_with_data_has_its_documented_shape(
    described: Document, client: TestClient, shown: Showcase
) -> None:
    client.put(f"{API}/jobs/{JOB}/priority", json={"priority": 2.0})  # for the audit log
    source = shown.controller.state.jobs[JOB].job.sources[0].name
    named = {"tenant": "ads", "name": "pageload", "place": source, "report": "crunch"}
    for path, operations in described.data["paths"].items():
        if "get" not in operations or "application/json" not in described.answers("get", path):
            continue
        answer = client.get(path.format(**named), params={"limit": 50, "job": JOB})
        # The rounds of this daemon are run by hand.
        assert answer.status_code == (503 if path == "/healthz" else 200), (path, answer.text)
        described.check_answer("get", path, answer.json(), answer.status_code)
        assert answer.json() or path == f"{API}/tokens", path


def test_lists_within_answers_are_not_empty(client: TestClient) -> None:
    """The comparison above says nothing about an empty list."""

    def get(path: str) -> Any:
        return client.get(f"{API}/{path}").json()

    cluster = get("cluster")
    alerts, history = get("alerts"), get(f"jobs/{JOB}/history")
    explained = get(f"jobs/{JOB}/explanation")
    assert all(cluster[name] for name in ("machine_details", "tenants", "applications"))
    assert cluster["policy_status"]
    assert alerts["active"]
    assert alerts["recent"]
    assert history["versions"]
    assert history["events"]
    assert get("snapshot")["jobs"]
    assert get(f"history?job={JOB}")["jobs"][JOB]["p95_ms"]
    assert any(machine["instances"] for machine in get("machines"))
    assert get(f"jobs/{JOB}/series")[-1]["operators"]
    assert get("figures")[0]["operators"]
    for name in ("asked", "granted", "clips", "sentences"):
        assert explained[-1][name], name


def test_every_kind_of_proposal_is_described(described: Document) -> None:
    assert {type(proposal) for proposal in PROPOSALS} == set(get_args(Proposal))
    schema = {"$ref": "#/components/schemas/DecisionExplanation/properties/asked"}
    for proposal in PROPOSALS:
        described.check(schema, [proposal_to_json(proposal)])
    with pytest.raises(Violation):
        described.check(schema, [{**proposal_to_json(PROPOSALS[0]), "parallelism": {"join": "3"}}])


def test_records_of_an_edge_inside_a_query_have_instances(
    described: Document, client: TestClient, shown: Showcase
) -> None:
    spec = shown.controller.state.jobs[JOB].job
    inner = {operator.name for operator in spec.operators}
    edge = next(e for e in spec.edges if {e.source, e.target} <= inner)
    answer = client.get(f"{API}/jobs/{JOB}/records/{edge.source}->{edge.target}").json()
    assert answer["records"][0]["instance"] == 3
    described.check_answer("get", f"{API}/jobs/{{tenant}}/{{name}}/records/{{place}}", answer)


def test_tokens_have_their_documented_shape(described: Document, client: TestClient) -> None:
    created = client.post(f"{API}/tokens", json={"name": "ci", "grants": {"ads": "viewer"}}).json()
    described.check_answer("post", f"{API}/tokens", created)
    described.check_answer("get", f"{API}/tokens", client.get(f"{API}/tokens").json())
    revoked = client.delete(f"{API}/tokens/{created['token']}").json()
    described.check_answer("delete", f"{API}/tokens/{{token}}", revoked)
    described.check_answer("get", f"{API}/audit", client.get(f"{API}/audit").json())


def test_events_of_the_stream_have_their_documented_shape(
    described: Document, shown: Showcase
) -> None:
    data = described.answers("get", f"{API}/events")["text/event-stream"]["x-event-data"]
    owner = Caller("", "owner", {}, cluster_admin=True)
    described.check(
        data["snapshot"], json.loads(RoundSnapshot(shown.daemon.monitor.last).text(owner))
    )
    rows = shown.journal.events()
    assert {"decision", "accepted"} <= {row.kind for row in rows}
    for row in rows:
        described.check(data["*"], event_data(row))


def test_an_answer_with_a_field_too_many_too_few_or_of_another_kind_is_found(
    described: Document, client: TestClient
) -> None:
    """The comparison is no formality."""
    for path, field in (("snapshot", "round"), ("cluster", "tenants"), ("alerts", "active")):
        answer = client.get(f"{API}/{path}").json()
        without = {name: value for name, value in answer.items() if name != field}
        for wrong in (without, {**answer, "more": 1}, {**answer, field: "text"}):
            with pytest.raises(Violation):
                described.check_answer("get", f"{API}/{path}", wrong)
