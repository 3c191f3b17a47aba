"""The authorisation matrix: every operation of the OpenAPI document, for every role."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cluster import chain
from tests.service.conftest import RULES
from tests.service.test_access import client_of, token_for
from tests.service.test_job_api import DRY_RUNS
from trilithon.service.access.rates import RateLimiter
from trilithon.service.access.roles import Role
from trilithon.service.api import document, routed_app
from trilithon.service.daemon import Daemon
from trilithon.spec.dump import dump_job

OPERATIONS = [
    (method.upper(), path, operation["x-permission"])
    for path, methods in document(routed_app())["paths"].items()
    for method, operation in methods.items()
]
# Who may do what, written down once more: a change of the roles shows here.
ROLES = ("nobody", "wrong", "viewer", "editor", "admin", "stranger", "cluster")
ALLOWED = {
    "nothing": set(ROLES),
    "look": {"viewer", "editor", "admin", "stranger", "cluster"},
    "view jobs": {"viewer", "editor", "admin", "cluster"},
    "change jobs": {"editor", "admin", "cluster"},
    "delete jobs": {"admin", "cluster"},
    # Those of their own tenant.
    "manage tokens": {"admin", "stranger", "cluster"},
    "read the audit log": {"admin", "stranger", "cluster"},
    "operate the cluster": {"cluster"},
}
MINE = chain("mine", "ads")
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/api/v1/tokens"): {"name": "new", "grants": {}},
}


@pytest.fixture
def callers(running: Daemon) -> dict[str, TestClient]:
    """One client per role in the tenant ads; the stranger is an administrator of another."""
    running.access.limiter = RateLimiter(per_s=1e6, burst=1e6)
    running.commands.apply(MINE)
    running.stop()
    return {
        "nobody": client_of(running, None),
        "wrong": client_of(running, "trl_00000000_" + "0" * 64),
        "viewer": client_of(running, token_for(running, ads="viewer")),
        "editor": client_of(running, token_for(running, ads="editor")),
        "admin": client_of(running, token_for(running, ads="admin")),
        "stranger": client_of(running, token_for(running, shop="admin")),
        "cluster": client_of(running, running.token),
    }


def expected(role: str, path: str, permission: str) -> set[int]:
    """The statuses with which a role may be refused; empty if it is let through."""
    if role in ALLOWED[permission]:
        return set()
    if role in {"nobody", "wrong"}:
        return {401}
    if role == "stranger" and "{tenant}" in path:
        return {404}
    return {403}


def test_every_operation_is_open_to_exactly_the_roles_that_have_its_permission(
    callers: dict[str, TestClient], running: Daemon
) -> None:
    assert len(OPERATIONS) > 30
    assert {permission for _, _, permission in OPERATIONS} <= set(ALLOWED)
    wrong = []
    for method, path, permission in OPERATIONS:
        if path == "/api/v1/events":
            continue  # endless; below
        for role, client in callers.items():
            # A token of the stranger's own tenant, or of ads.
            token, _ = running.access.store.create("other", {"ads": Role.VIEWER})
            url = path.format(
                tenant="ads", name="mine", place="in", report="hungry", token=token.id
            )
            body = BODIES.get((method, path), DRY_RUNS.get((method, path)))
            if body == {"spec": {}}:
                body = {"spec": dump_job(MINE)}
            if path.startswith("/api/v1/cluster/scale"):
                body = {**(body or {}), "dry_run": True}
            params = {"dry_run": "true"} if (method, path) in DRY_RUNS else {}
            answer = client.request(method, f"http://127.0.0.1{url}", json=body, params=params)
            refused = expected(role, path, permission)
            if refused:
                right = answer.status_code in refused
            else:
                right = answer.status_code not in {401, 403, 500}
                if "{tenant}" in path:
                    right = right and answer.status_code != 404
            if not right:
                wrong.append((method, path, role, answer.status_code, answer.text[:100]))
    assert wrong == []


@pytest.mark.parametrize("role", ["nobody", "wrong"])
def test_the_event_stream_needs_a_token(callers: dict[str, TestClient], role: str) -> None:
    assert callers[role].get("/events").status_code == 401


def test_a_tenant_without_jobs_learns_nothing_of_others(callers: dict[str, TestClient]) -> None:
    """Every read that a stranger is let through to, searched for the tenant's names."""
    for method, path, permission in OPERATIONS:
        if method != "GET" or "{" in path or path == "/api/v1/events":
            continue
        if "stranger" in ALLOWED[permission]:
            text = callers["stranger"].get(f"http://127.0.0.1{path}").text
            assert "mine" not in text, path
            assert '"ads' not in text, path
    assert RULES.quotas == {"ads": 12}  # a quota has the tenant's name, too
