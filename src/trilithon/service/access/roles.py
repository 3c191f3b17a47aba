"""Defines roles, permissions and callers, and the one function that decides what a caller may do.

A token has a role per tenant, or it is the cluster's administrator. What no line of `_LEAST` allows
is denied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a token may do within a tenant. Each includes those before it."""

    VIEWER = "viewer"
    EDITOR = "editor"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return list(Role).index(self)


class Permission(StrEnum):
    """What a route needs. The first group is per tenant, the second for the whole cluster."""

    VIEW_JOBS = "view jobs"
    CHANGE_JOBS = "change jobs"
    DELETE_JOBS = "delete jobs"
    MANAGE_TOKENS = "manage tokens"
    READ_AUDIT = "read the audit log"

    # Everybody with a token; the answer holds only what the caller may see.
    LOOK = "look"
    OPERATE_CLUSTER = "operate the cluster"
    # Nobody needs a token for it.
    NOTHING = "nothing"


# The least role in a tenant that has a permission there.
_LEAST: Final[Mapping[Permission, Role]] = {
    Permission.VIEW_JOBS: Role.VIEWER,
    Permission.CHANGE_JOBS: Role.EDITOR,
    Permission.DELETE_JOBS: Role.ADMIN,
    Permission.MANAGE_TOKENS: Role.ADMIN,
    Permission.READ_AUDIT: Role.ADMIN,
}


@dataclass(frozen=True)
class Caller:
    """Who sent a request. `token` identifies what they showed, not its secret."""

    token: str
    name: str
    grants: Mapping[str, Role] = field(default_factory=dict)
    cluster_admin: bool = False
    # Of a session in a browser: what its pages must send along with every change.
    csrf: str | None = None

    def may(self, permission: Permission, tenant: str | None = None) -> bool:
        return allows(self, permission, tenant)

    def sees(self, tenant: str) -> bool:
        return allows(self, Permission.VIEW_JOBS, tenant)

    @property
    def role(self) -> str:
        """In words, for pages and the audit log."""
        if self.cluster_admin:
            return "cluster admin"
        return ", ".join(f"{role} of {tenant}" for tenant, role in sorted(self.grants.items()))


def allows(caller: Caller | None, permission: Permission, tenant: str | None = None) -> bool:
    """Whether a caller may do something, in a tenant or with the cluster. Without a tenant, a
    permission of tenants means: in at least one of them.
    """
    if permission is Permission.NOTHING:
        return True
    if caller is None:
        return False
    if caller.cluster_admin or permission is Permission.LOOK:
        return True
    if (least := _LEAST.get(permission)) is None:
        return False
    held = caller.grants.values() if tenant is None else (caller.grants.get(tenant),)
    return any(role is not None and role.rank >= least.rank for role in held)
