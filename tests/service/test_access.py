"""Who calls and what they may do: tokens, roles, sessions, rates."""

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from tests.cluster import FakeCluster, chain
from tests.service.test_api import until
from trilithon.control.journal.database import Database
from trilithon.errors import HostUnreachable, InvalidSetting, NotFound, TooManyRequests
from trilithon.model.mode import Mode
from trilithon.service import api as api_module
from trilithon.service.access import store as store_module
from trilithon.service.access.gate import Access, route_needs
from trilithon.service.access.rates import RateLimiter
from trilithon.service.access.roles import Caller, Permission, Role, allows
from trilithon.service.access.sessions import COOKIE, CSRF_HEADER, LIFETIME_S, set_cookie
from trilithon.service.access.store import AccessStore
from trilithon.service.api import api, routed_app
from trilithon.service.daemon import Daemon
from trilithon.service.monitor.snapshots import RoundSnapshot
from trilithon.spec.dump import dump_job


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[AccessStore]:
    opened = AccessStore(tmp_path / "access.sqlite", clock)
    yield opened
    opened.close()


def test_a_token_is_stored_as_a_hash_and_found_by_a_daemon_that_starts_later(
    store: AccessStore, tmp_path: Path, clock: Clock
) -> None:
    token, secret = store.create("ci", {"ads": Role.EDITOR}, by=Caller("t", "owner"))
    assert len(bytes.fromhex(secret.rpartition("_")[2])) == 32
    store.close()
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert secret.encode() not in written
    assert secret.rpartition("_")[2].encode() not in written
    assert (tmp_path / "access.sqlite").stat().st_mode & 0o777 == 0o600
    later = AccessStore(tmp_path / "access.sqlite", clock)
    assert later.caller(secret) == Caller(token.id, "ci", {"ads": Role.EDITOR})
    assert later.caller(secret[:-1] + "x") is None
    later.close()


def test_a_token_ends_when_it_expires_or_is_revoked(store: AccessStore, clock: Clock) -> None:
    _, short = store.create("short", {"ads": Role.VIEWER}, expires_s=1010.0)
    token, lasting = store.create("lasting", {"ads": Role.VIEWER})
    clock.now_s = 1009.9
    assert store.caller(short)
    clock.now_s = 1010.0
    assert store.caller(short) is None
    assert store.caller(lasting)
    assert store.revoke(token.id).revoked_s == 1010.0
    assert store.caller(lasting) is None
    assert not store.has_tokens()
    with pytest.raises(NotFound):
        store.revoke("nobody")


def test_the_audit_log_keeps_the_latest_entries_of_each_tenant(
    store: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant that changed its jobs often enough used to erase everybody's entries."""
    monkeypatch.setattr(store_module, "KEPT_ENTRIES", 3)
    caller = Caller("t", "ci")
    store.audit(caller, "machines added", None, "cluster")
    store.audit(caller, "job deleted", "shop", "shop/orders")
    for i in range(5):
        store.audit(caller, "job paused", "ads", f"ads/{i}", {"i": i}, None)
    assert [(entry.id, entry.subject, entry.before) for entry in store.audited()] == [
        (1, "cluster", None),
        (2, "shop/orders", None),
        *((i + 3, f"ads/{i}", {"i": i}) for i in (2, 3, 4)),
    ]
    for i in range(4):
        store.audit(caller, "machines added", None, f"cluster {i}")
    assert [entry.subject for entry in store.audited() if entry.tenant is None] == [
        f"cluster {i}" for i in (1, 2, 3)
    ]


def test_a_tenant_with_too_many_tokens_hinders_no_other_and_can_revoke_some(
    store: AccessStore, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Every token counted for ever, also one that was revoked, and for all tenants together."""
    monkeypatch.setattr(store_module, "MAX_TOKENS_OF_TENANT", 2)
    first, _ = store.create("first", {"ads": Role.VIEWER})
    store.create("both", {"ads": Role.VIEWER, "shop": Role.VIEWER}, expires_s=2000.0)
    with pytest.raises(InvalidSetting, match="'ads' has 2 valid tokens") as refused:
        store.create("third", {"shop": Role.VIEWER, "ads": Role.EDITOR})
    assert "token list" in refused.value.hint
    store.create("shop", {"shop": Role.VIEWER})
    store.create("admin", {}, cluster_admin=True)
    store.revoke(first.id)
    store.create("third", {"ads": Role.EDITOR})
    clock.now_s = 2000.0
    store.create("fourth", {"ads": Role.EDITOR})
    monkeypatch.setattr(store_module, "MAX_TOKENS", 4)
    with pytest.raises(InvalidSetting, match="There are 4 valid tokens"):
        store.create("more", {"geo": Role.VIEWER})
    assert len(store.tokens()) == 6  # those that ended among them


def test_tokens_that_ended_leave_the_list_in_time_or_when_there_are_many_of_their_tenant(
    store: AccessStore, monkeypatch: pytest.MonkeyPatch, clock: Clock, tmp_path: Path
) -> None:
    monkeypatch.setattr(store_module, "KEPT_ENDED", 2)

    def names() -> set[str]:
        return {token.name for token in store.tokens()}

    lasting, secret = store.create("lasting", {"ads": Role.VIEWER})
    store.create("shop", {"shop": Role.VIEWER}, expires_s=1001.0)
    for i in range(4):
        clock.now_s += 1
        token, old_secret = store.create(f"ads {i}", {"ads": Role.VIEWER})
        store.revoke(token.id)
    store.create("new", {"ads": Role.VIEWER})
    assert names() == {"lasting", "shop", "ads 2", "ads 3", "new"}
    assert store.caller(old_secret) is None
    clock.now_s = 1001.0 + store_module.KEPT_ENDED_S
    store.create("newer", {"geo": Role.VIEWER})
    assert names() == {"lasting", "ads 2", "ads 3", "new", "newer"}
    clock.now_s += 10
    store.create("newest", {"geo": Role.VIEWER})
    assert names() == {"lasting", "new", "newer", "newest"}
    assert store.find(token.id) is None
    with pytest.raises(NotFound):
        store.revoke(token.id)
    store.close()
    later = AccessStore(tmp_path / "access.sqlite", clock)
    assert {token.name for token in later.tokens()} == {"lasting", "new", "newer", "newest"}
    assert later.caller(secret) == lasting.caller
    later.close()


@pytest.mark.parametrize(
    ("name", "grants", "admin"),
    [
        ("", {"ads": Role.VIEWER}, False),
        ("a\nb", {"ads": Role.VIEWER}, False),
        ("ok", {}, False),
        ("ok", {"ads": Role.VIEWER}, True),
        ("ok", {"../x": Role.VIEWER}, False),
    ],
)
def test_an_impossible_token_is_refused(
    store: AccessStore, name: str, grants: dict[str, Role], admin: bool
) -> None:
    with pytest.raises(InvalidSetting):
        store.create(name, grants, cluster_admin=admin)
    assert store.tokens() == ()


def test_roles_include_those_below_and_end_at_their_tenant() -> None:
    """The whole table, so that a change of it is seen."""
    tenants = [p for p in Permission if p.name.isupper() and p.name.split("_")[0] != "OPERATE"]
    table = {
        (role.value, permission.value): allows(
            Caller("t", "t", {"ads": role}), permission, tenant="ads"
        )
        for role, permission in itertools.product(Role, tenants)
    }
    allowed = {key for key, value in table.items() if value}
    look = {(role.value, p.value) for role in Role for p in (Permission.LOOK, Permission.NOTHING)}
    assert allowed - look == {
        ("viewer", "view jobs"),
        ("editor", "view jobs"),
        ("editor", "change jobs"),
        ("admin", "view jobs"),
        ("admin", "change jobs"),
        ("admin", "delete jobs"),
        ("admin", "manage tokens"),
        ("admin", "read the audit log"),
    }
    for role in Role:
        assert not allows(Caller("t", "t", {"ads": role}), Permission.OPERATE_CLUSTER)


@given(
    st.dictionaries(st.sampled_from(["ads", "shop", "geo"]), st.sampled_from(Role)),
    st.sampled_from(Permission),
    st.sampled_from(["ads", "shop", "geo", "other"]),
)
def test_nobody_gains_anything_in_a_tenant_without_a_role_there(
    grants: dict[str, Role], permission: Permission, tenant: str
) -> None:
    caller = Caller("t", "t", grants)
    if tenant not in grants and permission not in {Permission.LOOK, Permission.NOTHING}:
        assert not allows(caller, permission, tenant)
    assert not allows(None, permission, tenant) or permission is Permission.NOTHING
    assert allows(Caller("t", "t", {}, cluster_admin=True), permission, tenant)


def test_more_requests_than_a_caller_may_send_are_refused_and_the_rest_of_them_wait() -> None:
    clock = Clock()
    limiter = RateLimiter(per_s=2.0, burst=3.0, clock=clock)
    for _ in range(3):
        limiter.count("ci")
    with pytest.raises(TooManyRequests) as refused:
        limiter.count("ci")
    assert 0 < refused.value.retry_after_s <= 0.5
    limiter.count("another")
    clock.now_s += 0.5
    limiter.count("ci")
    with pytest.raises(TooManyRequests):
        limiter.count("ci")


def test_the_api_does_not_start_with_a_route_that_says_no_permission(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_to_all = APIRouter()

    @open_to_all.get("/secrets/{tenant}")
    def secrets(tenant: str) -> str:
        return tenant

    assert sum(1 for _ in route_needs(routed_app())) > 20
    monkeypatch.setattr(api_module, "ROUTERS", (*api_module.ROUTERS, open_to_all))
    with pytest.raises(AssertionError, match="/api/v1/secrets/"):
        routed_app()


# Over HTTP.


def client_of(running: Daemon, secret: str | None, **headers: str) -> TestClient:
    if secret is not None:
        headers["Authorization"] = f"Bearer {secret}"
    return TestClient(api(running), base_url="http://127.0.0.1/api/v1", headers=headers)


def token_for(running: Daemon, **grants: str) -> str:
    roles = {tenant: Role(role) for tenant, role in grants.items()}
    return running.access.store.create("test", roles)[1]


@pytest.fixture
def jobs(running: Daemon, client: TestClient, cluster: FakeCluster) -> dict[str, Any]:
    """A job of ads and one of shop, about both of which something is decided."""
    mine, other = chain("mine", "ads"), chain("secret-plans", "shop")
    cluster.rates[mine.id] = cluster.rates[other.id] = 250.0
    for job in (mine, other):
        assert client.put(f"/jobs/{job.id}", json={"spec": dump_job(job)}).status_code == 201
    until(lambda: [row["status"]["state"] for row in client.get("/jobs").json()] == ["running"] * 2)
    until(lambda: {row.job for row in running.journal.decisions()} == {mine.id, other.id})
    return {"mine": mine, "other": other}


def test_a_tenants_audit_log_is_not_crowded_out_by_others(running: Daemon) -> None:
    """The latest entries of all tenants were read, and then those of others left out."""
    store, caller = running.access.store, Caller("t", "ci")
    for i in range(3):
        store.audit(caller, "job paused", "ads", f"ads/{i}")
    for i in range(20):
        store.audit(caller, "job paused", "shop", f"shop/{i}")
    ads = client_of(running, token_for(running, ads="admin", shop="viewer"))
    entries = ads.get("/audit", params={"limit": 2}).json()
    assert [entry["subject"] for entry in entries] == ["ads/1", "ads/2"]
    later = ads.get("/audit", params={"after": entries[0]["id"]}).json()
    assert [entry["subject"] for entry in later] == ["ads/2"]
    assert len(client_of(running, running.token).get("/audit").json()) == 23


def test_another_tenants_jobs_do_not_exist_for_a_caller(
    running: Daemon, jobs: dict[str, Any]
) -> None:
    ads = client_of(running, token_for(running, ads="admin"))
    running.read_edge = lambda *_: pytest.fail("somebody else's records were read")
    assert [row["metadata"]["id"] for row in ads.get("/jobs").json()] == ["ads/mine"]
    assert [row["job"] for row in ads.get("/figures").json()] == ["ads/mine"]
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("GET", "/history"),
        ("GET", "/explanation"),
        ("GET", "/series"),
        ("GET", "/records/o0->o1"),
    ):
        theirs = ads.request(method, f"/jobs/shop/secret-plans{path}")
        absent = ads.request(method, f"/jobs/shop/nothing-here{path}")
        assert theirs.status_code == absent.status_code == 404
        assert theirs.text.replace("secret-plans", "X") == absent.text.replace("nothing-here", "X")
    assert ads.get("/jobs/ads/mine").status_code == 200
    for path in (
        "/cluster /health /decisions /jobs /figures /whoami /audit /snapshot /machines /policies"
        " /history?job=ads/mine&job=shop/secret-plans"
    ).split():
        assert "secret-plans" not in ads.get(path).text
        assert "shop" not in ads.get(path).text
    missing = ads.get("/jobs/ads/absent")
    assert missing.status_code == 404
    assert "shop" not in missing.text


DETAILS = "shop/secret-plans at kafka-7.internal:9094"


@pytest.mark.parametrize("happens", ["round fails", "engine away", "engine starts"])
def test_only_the_administrator_reads_why_the_daemon_does_not_control(
    running: Daemon, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    """The text of an exception, or of an engine that does not answer, was for everybody."""

    def fail() -> Any:
        raise (ValueError if happens == "round fails" else HostUnreachable)(DETAILS)

    if happens == "round fails":
        monkeypatch.setattr(running.controller, "round", fail)
    else:
        monkeypatch.setattr(cluster, "reports", fail)
    running.starting = DETAILS if happens == "engine starts" else ""
    owner = client_of(running, running.token)
    viewer = client_of(running, token_for(running, ads="viewer"))
    until(lambda: DETAILS in owner.get("/health").json()["problem"])
    if happens == "engine away":
        until(lambda: DETAILS in owner.get("/snapshot").json()["problem"])
    status = owner.get("/health").json()["status"]
    assert status == ("starting" if happens == "engine starts" else "blind")
    for path in ("/health", "/cluster", "/snapshot"):
        answer = viewer.get(path)
        assert "secret-plans" not in answer.text, path
        assert "kafka-7" not in answer.text, path
        assert answer.json().get("status", status) == status
    assert viewer.get("/health").json()["problem"]
    streamed = RoundSnapshot(running.monitor.last).text(Caller("v", "v", {"ads": Role.VIEWER}))
    assert "kafka-7" not in streamed


def test_a_viewer_changes_nothing_and_an_editor_deletes_nothing(
    running: Daemon, jobs: dict[str, Any]
) -> None:
    viewer = client_of(running, token_for(running, ads="viewer"))
    editor = client_of(running, token_for(running, ads="editor"))
    before = running.journal.last_event()
    refused = [
        viewer.post("/jobs/ads/mine/pause"),
        viewer.put("/jobs/ads/mine/mode", json={"mode": "off"}),
        viewer.put("/jobs/ads/mine", json={"spec": dump_job(jobs["mine"])}),
        editor.delete("/jobs/ads/mine"),
        editor.post("/cluster/scale-out", json={"machines": 1}),
        editor.get("/cluster/crunch"),
        editor.get("/tokens"),
    ]
    assert [(r.status_code, r.json()["code"]) for r in refused] == [(403, "FORBIDDEN")] * 7
    kinds = {row.kind for row in running.journal.events(before)}
    assert not kinds & {"accepted", "paused", "pause", "mode", "delete", "gone"}
    theirs = editor.put("/jobs/shop/secret-plans", json={"spec": dump_job(jobs["other"])})
    assert theirs.status_code == 404
    changed = editor.put("/jobs/ads/mine/mode", json={"mode": "advise"})
    assert changed.json()["metadata"]["mode"] == "advise"


def test_tokens_are_made_listed_and_revoked_by_those_who_administer_all_they_give(
    running: Daemon, client: TestClient
) -> None:
    made = client.post("/tokens", json={"name": "ads admin", "grants": {"ads": "admin"}}).json()
    ads = client_of(running, made["secret"])
    assert ads.get("/whoami").json()["grants"] == {"ads": "admin"}
    for wanted in (
        {"cluster_admin": True},
        {"grants": {"shop": "viewer"}},
        {"grants": {"ads": "viewer", "shop": "viewer"}},
    ):
        assert ads.post("/tokens", json={"name": "more", **wanted}).status_code == 403
    viewer = ads.post("/tokens", json={"name": "eyes", "grants": {"ads": "viewer"}}).json()
    shop = client.post("/tokens", json={"name": "shop", "grants": {"shop": "viewer"}}).json()
    assert {row["name"] for row in ads.get("/tokens").json()} == {"ads admin", "eyes"}
    assert "secret" not in ads.get("/tokens").text
    assert ads.delete(f"/tokens/{shop['token']}").status_code == 404
    assert client_of(running, viewer["secret"]).get("/jobs").status_code == 200
    assert ads.delete(f"/tokens/{viewer['token']}").json()["valid"] is False
    assert client_of(running, viewer["secret"]).get("/jobs").status_code == 401
    actions = [(row["action"], row["subject"]) for row in ads.get("/audit").json()]
    assert actions == [
        ("token created", made["token"]),
        ("token created", viewer["token"]),
        ("token revoked", viewer["token"]),
    ]
    assert len(client.get("/audit").json()) == 4
    assert all(one["secret"] not in client.get("/audit").text for one in (made, viewer, shop))


def test_a_token_of_several_tenants_is_audited_in_each(running: Daemon, client: TestClient) -> None:
    """Its entry was about no tenant, so that no tenant's administrator saw it."""
    grants = {"ads": "viewer", "shop": "editor"}
    made = client.post("/tokens", json={"name": "both", "grants": grants}).json()
    assert client.delete(f"/tokens/{made['token']}").is_success
    for tenant, role in grants.items():
        admin = client_of(running, token_for(running, **{tenant: "admin"}))
        entries = admin.get("/audit").json()
        assert [entry["action"] for entry in entries] == ["token created", "token revoked"]
        assert {entry["tenant"] for entry in entries} == {tenant}
        assert [entry["after"]["grants"] for entry in entries] == [{tenant: role}] * 2
        assert entries[1]["before"]["grants"] == {tenant: role}


def failing_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every write of an audit entry fail, as on a full disk."""
    insert = Database.insert

    def fail(db: Database, table: str, *given: Any, **row: Any) -> None:
        if table == "audit":
            raise sqlite3.OperationalError("database or disk is full")
        insert(db, table, *given, **row)

    monkeypatch.setattr(Database, "insert", fail)


def test_a_token_that_is_not_audited_is_neither_created_nor_revoked(
    running: Daemon, client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The token was made, its secret was lost, and the answer was that nothing was changed."""
    store = running.access.store
    kept, secret = store.create("kept", {"ads": Role.VIEWER})
    failing_audit(monkeypatch)
    for answer in (
        client.post("/tokens", json={"name": "new", "grants": {"ads": "viewer"}}),
        client.delete(f"/tokens/{kept.id}"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "JOURNAL_UNUSABLE")
    assert store.tokens() == (kept,)
    assert store.caller(secret) is not None
    again = AccessStore(tmp_path / "daemon" / store_module.FILE, time.time)
    assert again.tokens() == (kept,)
    again.close()


def test_a_change_that_is_not_audited_is_carried_out_and_the_answer_says_so(
    running: Daemon, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was that nothing had changed, and the loop was not woken."""
    job = chain("mine", "ads")
    failing_audit(monkeypatch)

    def state() -> tuple[int, Mode] | None:
        record = running.controller.state.jobs.get(job.id)
        return None if record is None else (record.version.generation, record.mode)

    for method, path, body, expected in (
        ("PUT", "", {"spec": dump_job(job)}, (1, Mode.AUTO)),
        ("PUT", "/mode", {"mode": "advise"}, (1, Mode.ADVISE)),
        ("PUT", "/priority", {"priority": 7}, (2, Mode.ADVISE)),
        ("DELETE", "", None, None),
    ):
        changes = running.changes
        with capture_logs() as events:
            answer = client.request(method, f"/jobs/{job.id}{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (500, "NOT_AUDITED")
        assert "The change was made" in answer.json()["detail"]
        assert running.changes == changes + 1
        (logged,) = (event for event in events if event["event"] == "change_not_audited")
        assert (logged["token"], logged["subject"]) == ("local", job.id)
        until(partial(lambda wanted: state() == wanted, expected))
    assert client.get("/audit").json() == []


def test_a_journal_that_fails_within_a_change_does_not_claim_that_nothing_changed(
    running: Daemon, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(running.journal, "accept", fail)
    job = chain("mine", "ads")
    answer = client.put(f"/jobs/{job.id}", json={"spec": dump_job(job)})
    assert (answer.status_code, answer.json()["code"]) == (503, "JOURNAL_UNUSABLE")
    assert "may have been made" in answer.json()["hint"]


def test_a_session_is_a_cookie_and_changes_need_the_token_of_its_pages(
    running: Daemon, jobs: dict[str, Any]
) -> None:
    access = running.access
    token, secret = access.store.create("browser", {"ads": Role.EDITOR})
    assert access.log_in("wrong") is None
    session = access.log_in(secret)
    assert session is not None
    response = Response()
    set_cookie(response, session, secure=True)
    cookie = response.headers["set-cookie"]
    for part in ("HttpOnly", "Secure", "SameSite=strict", "Path=/"):
        assert part in cookie
    browser = client_of(running, None)
    browser.cookies.set(COOKIE, session.secret)
    assert [row["metadata"]["id"] for row in browser.get("/jobs").json()] == ["ads/mine"]
    forged = browser.post("/jobs/ads/mine/pause")
    assert (forged.status_code, forged.json()["code"]) == (403, "FORBIDDEN")
    own = browser.post("/jobs/ads/mine/pause", headers={CSRF_HEADER: session.csrf})
    assert own.status_code == 200
    access.store.revoke(token.id)
    assert browser.get("/jobs").status_code == 401


def test_a_session_ends_in_time_and_by_log_out(store: AccessStore, clock: Clock) -> None:
    access = Access(store, "local secret", clock)
    _, secret = store.create("browser", {"ads": Role.VIEWER})
    first, second = access.log_in(secret), access.log_in("local secret")
    assert first is not None
    assert second is not None
    assert access.caller_of_cookie(second.secret) == second.caller
    assert second.caller.cluster_admin
    access.sessions.end(first.secret)
    assert access.caller_of_cookie(first.secret) is None
    clock.now_s += LIFETIME_S
    assert access.caller_of_cookie(second.secret) is None


def test_a_large_body_is_refused_before_it_is_read(running: Daemon) -> None:
    """Also one that does not say how long it is."""
    admin = client_of(running, running.token)

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100_000

    for answer in (
        admin.put("/jobs/a/b", content=b"x" * 2_000_000),
        admin.put("/jobs/a/b", content=endless()),
    ):
        assert (answer.status_code, answer.json()["code"]) == (413, "BODY_TOO_LARGE")
    for length in ("many", "9" * 5000):
        nonsense = admin.put("/jobs/a/b", headers={"Content-Length": length}, content=b"x")
        assert nonsense.status_code == 400
    counted = client_of(running, running.token).get("http://127.0.0.1/metrics").text
    assert 'duration_seconds_count{method="PUT",status="413"} 2.0' in counted


@pytest.mark.parametrize(("length", "parts"), [(b"2000000", 0), (None, 11)])
def test_of_a_large_body_no_more_is_taken_than_is_allowed(
    running: Daemon, length: bytes | None, parts: int
) -> None:
    """By a server that counts what the application takes from it."""
    taken, sent = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {running.token}".encode())]
    headers += [(b"content-type", b"application/json")]
    headers += [] if length is None else [(b"content-length", length)]
    path = "/api/v1/jobs/a/b"
    scope = {"type": "http", "method": "PUT", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "scheme": "http"}
    scope |= {"server": ("127.0.0.1", 80), "http_version": "1.1", "root_path": ""}
    asyncio.run(api(running)(scope, receive, send))
    assert sent[0]["status"] == 413
    assert taken == parts


def test_too_many_requests_are_refused_per_token(running: Daemon) -> None:
    running.access.limiter = RateLimiter(per_s=0.001, burst=5.0)
    busy = client_of(running, token_for(running, ads="viewer"))
    another = client_of(running, token_for(running, ads="viewer"))
    answers = [busy.get("/jobs") for _ in range(7)]
    assert [a.status_code for a in answers] == [200] * 5 + [429] * 2
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert another.get("/jobs").status_code == 200
