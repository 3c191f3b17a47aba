"""Finds out who sent a request, and checks what its route needs.

Every route declares its need by an argument of one of the types below, such as `job: ViewJobs`;
`undeclared` names routes that do not, and the API does not start with one.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.routing import iter_route_contexts
from starlette.staticfiles import StaticFiles

from trilithon import logs
from trilithon.errors import Forbidden, NotAllowed, NotFound
from trilithon.service.access.rates import RateLimiter
from trilithon.service.access.roles import Caller, Permission
from trilithon.service.access.sessions import COOKIE, CSRF_HEADER, Session, Sessions, same
from trilithon.service.access.store import AccessStore

LOCAL: Final = "local"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_log = logs.logger()


@dataclass
class Access:
    """The tokens, sessions and rates of a daemon.

    `local_token` is in a file that only the owner of the state folder can read; who shows it is the
    cluster's administrator. It is new each time the daemon starts.
    """

    store: AccessStore
    local_token: str
    clock: Callable[[], float] = time.time
    limiter: RateLimiter = field(default_factory=RateLimiter)
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.clock)

    def caller_of_token(self, secret: str) -> Caller | None:
        if same(secret, self.local_token):
            return Caller(LOCAL, "owner of this machine's state folder", {}, cluster_admin=True)
        return self.store.caller(secret)

    def log_in(self, secret: str) -> Session | None:
        """A session for who shows a valid token; None otherwise."""
        caller = self.caller_of_token(secret)
        return None if caller is None else self.sessions.start(caller)

    def caller_of_cookie(self, secret: str) -> Caller | None:
        session = self.sessions.find(secret)
        if session is None:
            return None
        if not self._has_valid_token(session.caller):
            self.sessions.end(secret)
            return None
        return session.caller

    def is_valid(self, caller: Caller) -> bool:
        """Whether a caller who was identified before would still be: event streams last longer
        than tokens and sessions. It costs no search.
        """
        if caller.csrf is not None and not self.sessions.is_open(caller.csrf):
            return False
        return self._has_valid_token(caller)

    def _has_valid_token(self, caller: Caller) -> bool:
        return caller.token == LOCAL or self.store.is_valid(caller.token)

    def identify(self, request: Request) -> Caller | None:
        """Who sent a request: by its token, else by the cookie of a browser."""
        given = request.headers.get("authorization")
        if given is not None:
            kind, _, secret = given.partition(" ")
            return self.caller_of_token(secret.strip()) if kind.lower() == "bearer" else None
        cookie = request.cookies.get(COOKIE)
        return None if cookie is None else self.caller_of_cookie(cookie)


@dataclass(frozen=True)
class Needs:
    """A dependency of a route: the caller, if they have a permission.

    On a route with `tenant` in its path, another tenant's object does not exist for the caller.
    """

    permission: Permission

    async def __call__(self, request: Request) -> Caller | None:
        access: Access = request.app.state.access
        caller = access.identify(request)
        source = request.client.host if request.client else ""
        access.limiter.count(caller.token if caller is not None else f"address {source}")
        if self.permission is Permission.NOTHING:
            return caller
        if caller is None:
            raise NotAllowed(
                "This needs a valid token.",
                "Send `Authorization: Bearer TOKEN`; `trilithon token create` creates one.",
            )
        tenant = request.path_params.get("tenant")
        if tenant is not None and not caller.sees(tenant):
            name = request.path_params.get("name")
            raise no_job(f"{tenant}/{name}") if name is not None else no_tenant(tenant)
        if not caller.may(self.permission, tenant):
            raise denied(caller, self.permission)
        check_csrf(request, caller)
        return caller


def no_job(job: str) -> NotFound:
    """The same answer for a job that does not exist and for another tenant's."""
    return NotFound(f"There is no job {job!r}.", "`trilithon job list` lists them.")


def no_tenant(tenant: str) -> NotFound:
    return NotFound(f"There is no tenant {tenant!r}.")


def denied(caller: Caller, permission: Permission) -> Forbidden:
    _log.info("request_denied", token=caller.token, permission=permission.value)
    return Forbidden(
        f"This token may not {permission.value}: it is {caller.role}.",
        "Ask an administrator for a role that may.",
    )


def check_csrf(request: Request, caller: Caller) -> None:
    """Refuses a change that a page of another site may have made the browser send."""
    if caller.csrf is None or request.method in SAFE_METHODS:
        return
    if not same(request.headers.get(CSRF_HEADER), caller.csrf):
        raise Forbidden(
            "The request does not come from a page of this service.",
            f"Send the session's {CSRF_HEADER}, or use a token.",
        )


def _needs(permission: Permission) -> Any:
    return Depends(Needs(permission))


Public = Annotated[Caller | None, _needs(Permission.NOTHING)]
AnyCaller = Annotated[Caller, _needs(Permission.LOOK)]
ViewJobs = Annotated[Caller, _needs(Permission.VIEW_JOBS)]
ChangeJobs = Annotated[Caller, _needs(Permission.CHANGE_JOBS)]
DeleteJobs = Annotated[Caller, _needs(Permission.DELETE_JOBS)]
ManageTokens = Annotated[Caller, _needs(Permission.MANAGE_TOKENS)]
ReadAudit = Annotated[Caller, _needs(Permission.READ_AUDIT)]
OperateCluster = Annotated[Caller, _needs(Permission.OPERATE_CLUSTER)]


@dataclass(frozen=True)
class RouteNeed:
    """A route, and what it needs; None if it does not say so."""

    path: str
    methods: frozenset[str]
    permission: Permission | None
    in_document: bool


def route_needs(app: FastAPI) -> Iterator[RouteNeed]:
    """Every route of an application, those of included routers among them."""
    for route in iter_route_contexts(app.routes):
        if isinstance(getattr(route.original_route, "app", None), StaticFiles):
            continue  # files of the package are nobody's secret
        dependant = getattr(route, "dependant", None)
        called = [] if dependant is None else [d.call for d in dependant.dependencies]
        needed = [call.permission for call in called if isinstance(call, Needs)]
        yield RouteNeed(
            route.path or "",
            frozenset(route.methods or ()),
            needed[0] if len(needed) == 1 else None,
            bool(getattr(route, "include_in_schema", False)),
        )


def undeclared(app: FastAPI) -> list[str]:
    """Routes that do not say what they need: nobody may call them."""
    return [route.path for route in route_needs(app) if route.permission is None]
