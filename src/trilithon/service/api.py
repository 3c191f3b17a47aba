"""Assembles the HTTP API of a daemon: its routes, who may call them, and its OpenAPI document."""

from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

import trilithon
from trilithon.service.access.gate import Public, route_needs, undeclared
from trilithon.service.access.roles import Permission
from trilithon.service.border import Border, KnownHosts
from trilithon.service.daemon import Daemon
from trilithon.service.dashboard.log_in import codes_router
from trilithon.service.dashboard.routes import add_dashboard, attach_daemon
from trilithon.service.problems import MEDIA_TYPE, ProblemDocument, answer_errors
from trilithon.service.resources import JobLists
from trilithon.service.routes import cluster, events, jobs, probes, tokens
from trilithon.service.routes.common import API

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
DOCUMENT: Final = "/openapi.json"
LOOPBACK: Final = ("127.0.0.1", "localhost")
ROUTERS: Final = (jobs.router, cluster.router, events.router, tokens.router, codes_router)
# By what every route may answer instead of its own.
_PROBLEMS: Final = {
    400: "a host that is not served",
    401: "no valid token",
    403: "the token's role does not allow it",
    404: "it does not exist, or belongs to another tenant",
    409: "it contradicts the present state",
    412: "the job is not the one that `If-Match` names",
    413: "the body is too large",
    422: "the request, or the job, breaks a rule",
    429: "too many requests",
    503: "the journal or the engine cannot be reached",
}


def api(daemon: Daemon, hosts: tuple[str, ...] = LOOPBACK) -> FastAPI:
    """The API of a daemon. It answers to the names in `hosts` only: a page in a browser must not
    reach it by DNS rebinding.
    """
    app = routed_app()
    app.state.daemon, app.state.access = daemon, daemon.access
    app.state.job_lists = JobLists(daemon)
    app.add_middleware(
        Border,
        max_body_bytes=daemon.settings.requests.body_bytes,
        observe=_observer(daemon),
    )
    attach_daemon(app, daemon)
    app.add_middleware(KnownHosts, hosts=hosts)
    return app


def _observer(daemon: Daemon) -> Callable[[str, int, float], None]:
    seconds = daemon.monitor.tally.request_seconds

    def observe(method: str, status: int, took_s: float) -> None:
        # A method is whatever a client sends: only known ones may become a label.
        seconds.labels(method if method in METHODS else "other", str(status)).observe(took_s)

    return observe


def routed_app() -> FastAPI:
    """All routes without a daemon behind them: enough for the document."""
    app = FastAPI(
        title="Trilithon",
        version=trilithon.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    answer_errors(app)
    served = APIRouter(prefix=API)
    for router in ROUTERS:
        served.include_router(router)

    @served.get(DOCUMENT, include_in_schema=False)
    def openapi(_: Public) -> dict[str, Any]:
        return document(app)

    app.include_router(served)
    app.include_router(probes.router)
    add_dashboard(app)
    if silent := undeclared(app):
        raise AssertionError(f"routes that do not say what they need: {', '.join(silent)}")
    return app


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with what each operation needs as `x-permission`."""
    if app.openapi_schema is None:
        data = get_openapi(
            title=app.title, version=app.version, openapi_version="3.1.0", routes=app.routes
        )
        components = data.setdefault("components", {})
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        components.setdefault("schemas", {})["ProblemDocument"] = ProblemDocument.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        for definition in components["schemas"]["ProblemDocument"].pop("$defs", {}).items():
            components["schemas"].setdefault(*definition)
        for route in route_needs(app):
            for method in route.methods if route.in_document else ():
                _complete(data["paths"][route.path][method.lower()], route.permission)
        app.openapi_schema = data
    return app.openapi_schema


def _complete(operation: dict[str, Any], needed: Permission | None) -> None:
    operation["x-permission"] = None if needed is None else needed.value
    operation["security"] = [] if needed is Permission.NOTHING else [{"token": []}]
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    for status, meaning in _PROBLEMS.items():
        # FastAPI has a 422 of its own; what else is declared, such as a probe's 503, stays.
        if status != 422 and str(status) in operation["responses"]:
            continue
        operation["responses"][str(status)] = {
            "description": meaning,
            "content": {MEDIA_TYPE: {"schema": schema}},
        }


def addresses() -> list[tuple[str, str, str, str]]:
    """Every operation, for the reference: method, path, what it needs, and what it does."""
    return [
        (method.upper(), path, operation["x-permission"], operation["description"])
        for path, operations in document(routed_app())["paths"].items()
        for method, operation in operations.items()
    ]
