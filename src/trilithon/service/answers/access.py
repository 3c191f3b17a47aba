"""Defines the shapes of answers about access: callers, tokens, the audit log."""

from typing import Any

from pydantic import BaseModel, Field

from trilithon.service.access.roles import Role


class CallerView(BaseModel):
    """Who the caller is, and what it may do."""

    token: str
    name: str
    grants: dict[str, Role] = Field(description="its role in each tenant")
    cluster_admin: bool


class TokenView(CallerView):
    """A token without its secret."""

    created: str
    created_by: str
    expires: str | None
    revoked: str | None
    valid: bool


class CreatedToken(TokenView):
    """A new token. Its secret is answered this once."""

    secret: str


class AuditRecord(BaseModel):
    """Who changed what. `before` and `after` have the form of the thing that was changed."""

    id: int
    time_s: float
    time: str
    token: str
    name: str
    action: str
    tenant: str | None
    subject: str
    before: Any
    after: Any
