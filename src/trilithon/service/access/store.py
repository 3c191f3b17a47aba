"""Stores tokens and the audit log, in a database of their own beside the journal.

A token is shown once, when it is created; the database has its hash. All tokens are in memory,
so that a request costs no query.
"""

import hashlib
import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from trilithon import logs
from trilithon.control.explain import clock as clock_time
from trilithon.control.journal.database import Database, migrations
from trilithon.errors import InvalidSetting, NotAudited, NotFound
from trilithon.model.validation import NAME as TENANT
from trilithon.service.access.roles import Caller, Role

FILE: Final = "access.sqlite"
PREFIX: Final = "trl"
# 256 bits.
SECRET_BYTES: Final = 32
# Valid ones; those that have ended count for nothing.
MAX_TOKENS: Final = 10_000
MAX_TOKENS_OF_TENANT: Final = 1_000
# Tokens that have ended stay in the list for a while: this long, and so many of a tenant.
KEPT_ENDED_S: Final = 30 * 86_400.0
KEPT_ENDED: Final = 100
# Of the audit log, for each tenant, and as many that are about no tenant.
KEPT_ENTRIES: Final = 100_000
_log = logs.logger()
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")


@dataclass(frozen=True)
class Token:
    """A token without its secret."""

    id: str
    name: str
    grants: Mapping[str, Role]
    cluster_admin: bool
    created_s: float
    created_by: str
    expires_s: float | None = None
    revoked_s: float | None = None

    def valid(self, now_s: float) -> bool:
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)

    def ended_s(self, now_s: float) -> float | None:
        """Since when it is not valid; None if it is."""
        ends = [end for end in (self.revoked_s, self.expires_s) if end is not None and end <= now_s]
        return min(ends, default=None)

    @property
    def caller(self) -> Caller:
        return Caller(self.id, self.name, self.grants, self.cluster_admin)

    def shown(self, now_s: float) -> dict[str, Any]:
        """The token in answers and in the audit log."""
        return {
            "token": self.id,
            "name": self.name,
            "grants": dict(self.grants),
            "cluster_admin": self.cluster_admin,
            "created": clock_time(self.created_s),
            "created_by": self.created_by,
            "expires": None if self.expires_s is None else clock_time(self.expires_s),
            "revoked": None if self.revoked_s is None else clock_time(self.revoked_s),
            "valid": self.valid(now_s),
        }


@dataclass(frozen=True)
class AuditEntry:
    """Who changed what, when, from what to what."""

    id: int
    time_s: float
    token: str
    name: str
    action: str
    tenant: str | None
    subject: str
    before: Any
    after: Any


class AccessStore:
    """The tokens and the audit log of a daemon."""

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._database = Database(path, _migrations())
        if path is not None:
            path.chmod(0o600)
        self._clock = clock
        self._by_hash: dict[str, Token] = {
            row["hash"]: _token(row) for row in self._database.all("SELECT * FROM token")
        }
        # Event streams ask for tokens by id, all of them each second.
        self._hash_by_id = {token.id: hash_ for hash_, token in self._by_hash.items()}

    def create(
        self,
        name: str,
        grants: Mapping[str, Role],
        *,
        cluster_admin: bool = False,
        expires_s: float | None = None,
        by: Caller | None = None,
    ) -> tuple[Token, str]:
        """Creates a token; returns it with its secret form, which cannot be read again. What a
        caller creates is audited in the same transaction.
        """
        now_s = self._clock()
        _check(name, grants, cluster_admin=cluster_admin)
        if expires_s is not None and expires_s <= now_s:
            raise InvalidSetting("The token would have expired already.", "Choose a later time.")
        id_ = secrets.token_hex(4)
        secret = f"{PREFIX}_{id_}_{secrets.token_hex(SECRET_BYTES)}"
        creator = "" if by is None else by.name
        token = Token(id_, name, dict(grants), cluster_admin, now_s, creator, expires_s)
        with self._database.transaction("token") as db:
            self._check_number(grants, now_s)
            purged = self._superfluous(now_s)
            for ended in purged:
                db.write("DELETE FROM token WHERE id = ?", ended.id)
            db.insert(
                "token",
                id=token.id,
                name=token.name,
                hash=_hash(secret),
                grants=json.dumps(token.grants, sort_keys=True),
                cluster_admin=int(cluster_admin),
                created_s=now_s,
                created_by=creator,
                expires_s=expires_s,
            )
            self._audit_token(db, by, "token created", None, token)
        for ended in purged:
            self._by_hash.pop(self._hash_by_id.pop(ended.id, ""), None)
        self._by_hash[_hash(secret)] = token
        self._hash_by_id[token.id] = _hash(secret)
        return token, secret

    def _check_number(self, tenants: Collection[str], now_s: float) -> None:
        valid = [token for token in self.tokens() if token.valid(now_s)]
        hint = "Revoke tokens that nobody needs: `trilithon token list` lists them."
        if len(valid) >= MAX_TOKENS:
            raise InvalidSetting(f"There are {MAX_TOKENS} valid tokens.", hint)
        for tenant in tenants:
            if sum(tenant in token.grants for token in valid) >= MAX_TOKENS_OF_TENANT:
                message = f"The tenant {tenant!r} has {MAX_TOKENS_OF_TENANT} valid tokens."
                raise InvalidSetting(message, hint)

    def _superfluous(self, now_s: float) -> list[Token]:
        """Tokens that ended long ago, or before many others of the same tenant. They are counted
        with the first of their tenants.
        """
        by_tenant: dict[str, list[tuple[float, Token]]] = {}
        for token in self.tokens():
            if (ended_s := token.ended_s(now_s)) is not None:
                by_tenant.setdefault(min(token.grants, default=""), []).append((ended_s, token))
        purged = []
        for ended in by_tenant.values():
            ended.sort(key=itemgetter(0), reverse=True)
            for i, (ended_s, token) in enumerate(ended):
                if i >= KEPT_ENDED or now_s - ended_s >= KEPT_ENDED_S:
                    purged.append(token)
        return purged

    def revoke(self, id_: str, by: Caller | None = None) -> Token:
        """Revokes a token, from the next request on. It stays in the list for a while. What a
        caller revokes is audited in the same transaction.
        """
        token = self.find(id_)
        if token is None:
            raise NotFound(f"There is no token {id_!r}.", "`trilithon token list` lists them.")
        if token.revoked_s is not None:
            return token
        revoked = replace(token, revoked_s=self._clock())
        with self._database.transaction("token") as db:
            db.write("UPDATE token SET revoked_s = ? WHERE id = ?", revoked.revoked_s, id_)
            self._audit_token(db, by, "token revoked", token, revoked)
        self._by_hash[self._hash_by_id[id_]] = revoked
        return revoked

    def _audit_token(
        self, db: Database, by: Caller | None, action: str, before: Token | None, after: Token
    ) -> None:
        """An entry for each tenant of the token: its administrators see their own part only."""
        if by is None:
            return
        now_s = self._clock()

        def part(token: Token | None, tenant: str | None) -> dict[str, Any] | None:
            if token is None or tenant is None:
                return None if token is None else token.shown(now_s)
            return replace(token, grants={tenant: token.grants[tenant]}).shown(now_s)

        for tenant in sorted(after.grants) or (None,):
            self._write_entry(
                db, by, action, tenant, after.id, part(before, tenant), part(after, tenant)
            )

    def tokens(self) -> tuple[Token, ...]:
        """All tokens, the oldest first."""
        # A copy: other threads create and revoke tokens meanwhile.
        tokens = list(self._by_hash.values())
        return tuple(sorted(tokens, key=lambda token: (token.created_s, token.id)))

    def find(self, id_: str) -> Token | None:
        hash_ = self._hash_by_id.get(id_)
        return None if hash_ is None else self._by_hash.get(hash_)

    def caller(self, secret: str) -> Caller | None:
        """Whom a token belongs to; None if it is unknown, expired or revoked."""
        token = self._by_hash.get(_hash(secret))
        return token.caller if token is not None and token.valid(self._clock()) else None

    def is_valid(self, id_: str) -> bool:
        token = self.find(id_)
        return token is not None and token.valid(self._clock())

    def has_tokens(self) -> bool:
        """Whether anybody but this machine's owner could log in."""
        return any(token.valid(self._clock()) for token in list(self._by_hash.values()))

    # The audit log.

    def audit(
        self,
        caller: Caller,
        action: str,
        tenant: str | None,
        subject: str,
        before: Any = None,
        after: Any = None,
    ) -> None:
        """Writes the entry of a change that was made. The change is in another database, so if this
        fails, the caller is told both.
        """
        try:
            with self._database.transaction("audit") as db:
                self._write_entry(db, caller, action, tenant, subject, before, after)
        except sqlite3.Error as error:
            entry = {"token": caller.token, "name": caller.name, "action": action}
            _log.error("change_not_audited", **entry, subject=subject, exc_info=error)
            raise NotAudited(
                f"The change was made ({action}: {subject}), but the audit log cannot be written: "
                f"{error}.",
                "Do not repeat it. Tell the administrator; the daemon's log says who changed what.",
            ) from error

    def _write_entry(
        self,
        db: Database,
        caller: Caller,
        action: str,
        tenant: str | None,
        subject: str,
        before: Any,
        after: Any,
    ) -> None:
        db.insert(
            "audit",
            time_s=self._clock(),
            token=caller.token,
            name=caller.name,
            action=action,
            tenant=tenant,
            subject=subject,
            before=None if before is None else json.dumps(before, sort_keys=True),
            after=None if after is None else json.dumps(after, sort_keys=True),
        )
        # By tenant: nobody makes room in the log of others.
        db.write(
            "DELETE FROM audit WHERE tenant IS ? AND id <= (SELECT id FROM audit "
            "WHERE tenant IS ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
            tenant,
            tenant,
            KEPT_ENTRIES,
        )

    def audited(
        self, limit: int = 100, after: int = 0, tenants: Collection[str] | None = None
    ) -> tuple[AuditEntry, ...]:
        """The latest entries after an id, the oldest first; with `tenants`, those of these."""
        own, names = "", () if tenants is None else tuple(tenants)
        if tenants is not None:
            own = f"AND tenant IN ({', '.join('?' for _ in names)})"
        rows = self._database.all(
            f"SELECT * FROM audit WHERE id > ? {own} ORDER BY id DESC LIMIT ?",  # noqa: S608 - marks
            after,
            *names,
            limit,
        )
        return tuple(
            AuditEntry(
                **{
                    **dict(row),
                    "before": row["before"] and json.loads(row["before"]),
                    "after": row["after"] and json.loads(row["after"]),
                }
            )
            for row in reversed(rows)
        )

    # What tenants have used.

    def add_usage(self, slot_s: Mapping[tuple[str, str], float]) -> None:
        """Adds slot-seconds, by tenant and day."""
        with self._database.transaction("usage") as db:
            for (tenant, day), amount in slot_s.items():
                db.write(
                    "INSERT INTO usage (tenant, day, slot_s) VALUES (?, ?, ?) "
                    "ON CONFLICT (tenant, day) DO UPDATE SET slot_s = slot_s + excluded.slot_s",
                    tenant,
                    day,
                    amount,
                )

    def usage(self, since_day: str) -> list[tuple[str, str, float]]:
        """Tenant, day and slot-seconds, from a day on."""
        rows = self._database.all(
            "SELECT tenant, day, slot_s FROM usage WHERE day >= ? ORDER BY tenant, day", since_day
        )
        return [(row["tenant"], row["day"], row["slot_s"]) for row in rows]

    def close(self) -> None:
        self._database.close()


def _migrations() -> dict[int, str]:
    return migrations("trilithon.service.access")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _token(row: Any) -> Token:
    grants = {tenant: Role(role) for tenant, role in json.loads(row["grants"]).items()}
    return Token(
        row["id"],
        row["name"],
        grants,
        bool(row["cluster_admin"]),
        row["created_s"],
        row["created_by"],
        row["expires_s"],
        row["revoked_s"],
    )


def _check(name: str, grants: Mapping[str, Role], *, cluster_admin: bool) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidSetting(
            f"A token cannot be named {name!r}.",
            "Use up to 64 letters, digits, spaces and `._@-`, a letter or digit first.",
        )
    for tenant in grants:
        if not TENANT.fullmatch(tenant):
            raise InvalidSetting(f"{tenant!r} cannot be a tenant.", "Write TENANT=ROLE.")
    if cluster_admin == bool(grants):
        raise InvalidSetting(
            "A token has roles in tenants, or it is the cluster's administrator.",
            "Write one or more grants, or cluster_admin.",
        )
