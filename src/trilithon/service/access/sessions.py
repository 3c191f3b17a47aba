"""Keeps the sessions of browsers in memory: they end with the daemon, with their token, by log-out
or after half a day.
"""

import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from trilithon.service.access.roles import Caller

COOKIE: Final = "trilithon_session"
CSRF_HEADER: Final = "X-CSRF-Token"
LIFETIME_S: Final = 12 * 3600.0
MAX_SESSIONS: Final = 10_000


@dataclass(frozen=True)
class Session:
    """A log-in. `secret` is the value of the cookie; pages send `csrf` along with changes."""

    secret: str
    csrf: str
    caller: Caller
    ends_s: float


class Sessions:
    """All log-ins of a daemon; the oldest ends when there are too many."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._secret_by_csrf: dict[str, str] = {}

    def start(self, caller: Caller) -> Session:
        now_s, csrf = self._clock(), secrets.token_urlsafe(32)
        caller = Caller(caller.token, caller.name, caller.grants, caller.cluster_admin, csrf)
        session = Session(secrets.token_urlsafe(32), csrf, caller, now_s + LIFETIME_S)
        with self._lock:
            for secret in [s for s, one in self._sessions.items() if one.ends_s <= now_s]:
                self._remove(secret)
            if len(self._sessions) >= MAX_SESSIONS:
                self._remove(next(iter(self._sessions)))
            self._sessions[session.secret] = session
            self._secret_by_csrf[csrf] = session.secret
        return session

    def find(self, secret: str) -> Session | None:
        session = self._sessions.get(secret)
        return session if session is not None and self._clock() < session.ends_s else None

    def is_open(self, csrf: str) -> bool:
        """Whether the session whose pages send `csrf` has not ended."""
        secret = self._secret_by_csrf.get(csrf)
        return secret is not None and self.find(secret) is not None

    def end(self, secret: str) -> None:
        with self._lock:
            self._remove(secret)

    def _remove(self, secret: str) -> None:
        session = self._sessions.pop(secret, None)
        if session is not None:
            self._secret_by_csrf.pop(session.csrf, None)


def set_cookie(response: Response, session: Session, *, secure: bool) -> None:
    """Gives the browser its session. No script can read it, and no other site sends it."""
    response.set_cookie(
        COOKIE,
        session.secret,
        max_age=int(LIFETIME_S),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def delete_cookie(response: Response, *, secure: bool) -> None:
    response.delete_cookie(COOKIE, path="/", secure=secure, httponly=True, samesite="strict")


def same(given: str | None, wanted: str) -> bool:
    """Whether two secrets are equal, in a time that does not depend on where they differ."""
    return given is not None and hmac.compare_digest(
        given.encode("utf-8", "surrogateescape"), wanted.encode()
    )
