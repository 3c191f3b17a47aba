"""Tokens: who am I, create, list, revoke; and the audit log."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from trilithon.control.explain import clock
from trilithon.errors import Forbidden, NotFound
from trilithon.service.access.gate import AnyCaller, ManageTokens, ReadAudit
from trilithon.service.access.roles import Caller, Permission, Role
from trilithon.service.access.store import Token
from trilithon.service.answers.access import AuditRecord, CallerView, CreatedToken, TokenView
from trilithon.service.routes.common import EventId, JsonAnswer, Limit, Served

router = APIRouter(tags=["tokens"])
YEAR_S = 366 * 86_400.0


class NewToken(BaseModel):
    """A token to create: roles in tenants, or the cluster's administrator."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=64)
    grants: dict[str, Role] = Field(default_factory=dict, max_length=100)
    cluster_admin: bool = False
    lifetime_s: float | None = Field(default=90 * 86_400.0, gt=0, le=YEAR_S)


@router.get("/whoami", response_model=CallerView)
async def who_am_i(caller: AnyCaller) -> dict[str, Any]:
    """The name and the roles of the token that is shown."""
    return {
        "token": caller.token,
        "name": caller.name,
        "grants": dict(caller.grants),
        "cluster_admin": caller.cluster_admin,
    }


@router.get("/tokens", response_model=list[TokenView])
def list_tokens(daemon: Served, caller: ManageTokens) -> list[dict[str, Any]]:
    """The tokens that the caller manages, without their secrets."""
    now_s = time.time()
    tokens = daemon.access.store.tokens()
    return [token.shown(now_s) for token in tokens if _manages(caller, token)]


@router.post("/tokens", response_model=CreatedToken)
def create_token(daemon: Served, caller: ManageTokens, new: NewToken) -> dict[str, Any]:
    """Creates a token and answers its secret: this once, and never again."""
    store = daemon.access.store
    wanted = Caller("", new.name, new.grants, new.cluster_admin)
    if not _may_give(caller, wanted):
        raise Forbidden(
            f"This token cannot give {wanted.role or 'no role'}: it is {caller.role}.",
            "An administrator of a tenant creates tokens for that tenant.",
        )
    expires_s = None if new.lifetime_s is None else time.time() + new.lifetime_s
    token, secret = store.create(
        new.name, new.grants, cluster_admin=new.cluster_admin, expires_s=expires_s, by=caller
    )
    return {**token.shown(time.time()), "secret": secret}


@router.delete("/tokens/{token}", response_model=TokenView)
def revoke_token(
    daemon: Served, caller: ManageTokens, token: Annotated[str, Path(max_length=64)]
) -> dict[str, Any]:
    """Revokes a token, from the next request on."""
    store = daemon.access.store
    known = store.find(token)
    if known is None or not _manages(caller, known):
        raise NotFound(f"There is no token {token!r}.", "`trilithon token list` lists them.")
    return store.revoke(token, caller).shown(time.time())


@router.get("/audit", response_model=list[AuditRecord])
def audit(daemon: Served, caller: ReadAudit, limit: Limit = 100, after: EventId = 0) -> Response:
    """Who changed what: the latest `limit` entries after an id, of the caller's tenants."""
    own = None
    if not caller.cluster_admin:
        own = [tenant for tenant in caller.grants if caller.may(Permission.READ_AUDIT, tenant)]
    entries = [
        {
            "id": entry.id,
            "time_s": entry.time_s,
            "time": clock(entry.time_s),
            "token": entry.token,
            "name": entry.name,
            "action": entry.action,
            "tenant": entry.tenant,
            "subject": entry.subject,
            "before": entry.before,
            "after": entry.after,
        }
        for entry in daemon.access.store.audited(limit, after, own)
    ]
    return JsonAnswer(entries)


def _may_give(caller: Caller, wanted: Caller) -> bool:
    if caller.cluster_admin:
        return True
    return not wanted.cluster_admin and all(
        caller.may(Permission.MANAGE_TOKENS, tenant) for tenant in wanted.grants
    )


def _manages(caller: Caller, token: Token) -> bool:
    """Whether all that a token may do lies within what the caller administers."""
    return _may_give(caller, token.caller)
