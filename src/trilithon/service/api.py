"""Serves the HTTP API: its addresses, the check of the token, and one shape for every error."""

import asyncio
import hmac
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import Body, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

import trilithon
from trilithon import logs
from trilithon.control.explain import explain, explain_cluster, explain_one
from trilithon.errors import (
    InvalidJob,
    JournalUnusable,
    NotAllowed,
    NotFound,
    NotUnderstood,
    TrilithonError,
)
from trilithon.model.mode import Mode
from trilithon.policies.requests import ScalingKind
from trilithon.service import address, views
from trilithon.service.daemon import Daemon
from trilithon.spec.job_builder import build_job

# Every address, for the reference; a test compares it with the routes.
ADDRESSES: Final = (
    ("GET", "/health", "whether the loop runs and reaches the engine; needs no token"),
    ("GET", "/cluster", "slots, machines, tenants with their quotas, what the engine can do"),
    ("GET", "/cluster/explanation", "the latest `limit` decisions about the whole cluster"),
    ("GET", "/cluster/policy", "the policy, its parameters, and what it publishes about itself"),
    ("GET", "/cluster/requests", "the latest `limit` requests for machines, and how they ended"),
    (
        "POST",
        "/cluster/scale-out",
        "`machines` more, for `job` or all jobs; with `dry_run` only what that would do",
    ),
    (
        "POST",
        "/cluster/scale-in",
        "gives back `machines`; with `dry_run` only what that would do",
    ),
    (
        "GET",
        "/cluster/{report}",
        "a report of a policy; `crunch`: whether all intents fit, and who needs how much",
    ),
    ("GET", "/figures", "the live figures of all jobs"),
    ("GET", "/jobs", "all jobs, in short"),
    ("POST", "/jobs", "accepts `spec`; options: `mode`, `anew`, `dry_run` (changes nothing)"),
    ("GET", "/jobs/{tenant}/{name}", "everything about a job"),
    ("DELETE", "/jobs/{tenant}/{name}", "stops a job and deletes its checkpoints"),
    ("POST", "/jobs/{tenant}/{name}/pause", "stops a job and keeps its checkpoint"),
    ("POST", "/jobs/{tenant}/{name}/resume", "starts a paused job from its checkpoint"),
    ("PUT", "/jobs/{tenant}/{name}/mode", "sets its `mode`"),
    ("GET", "/jobs/{tenant}/{name}/history", "its versions, and the latest `limit` events"),
    ("GET", "/jobs/{tenant}/{name}/explanation", "its latest `limit` decisions, in sentences"),
    ("GET", "/jobs/{tenant}/{name}/series", "its compact series from `since_s` on"),
    ("GET", "/decisions", "the latest `limit` decisions about all jobs"),
    ("GET", "/events", "events as they happen, as server-sent events, `after` an id"),
)
EVENTS_EVERY_S: Final = 0.5
_log = logs.logger()
Limit = Annotated[int, Query(ge=1, le=10_000)]
Next = Callable[[Request], Awaitable[Response]]


def api(daemon: Daemon) -> FastAPI:
    """The API of a daemon. It needs the daemon's token, and answers this machine only."""
    app = FastAPI(title="Trilithon", version=trilithon.__version__, docs_url=None, redoc_url=None)
    _protect(app, daemon)
    _answer_errors(app)
    _jobs(app, daemon)
    _explanations(app, daemon)
    _cluster(app, daemon)
    return app


def _protect(app: FastAPI, daemon: Daemon) -> None:
    @app.middleware("http")
    async def _token(request: Request, follow: Next) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if request.url.path != "/health" and not hmac.compare_digest(
            given.encode(), daemon.token.encode()
        ):
            return _refusal(
                NotAllowed(
                    "This needs the daemon's token.",
                    f"It is in {address.FILE} in the daemon's folder.",
                )
            )
        try:
            return await follow(request)
        except Exception:  # noqa: BLE001 - logged, and the client gets an answer
            _log.exception("request_failed", method=request.method, path=request.url.path)
            return _refusal(TrilithonError("The daemon failed.", "Its log has the traceback."))

    # A page in a browser must not reach the daemon by DNS rebinding.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])


def _refusal(error: TrilithonError, status: int | None = None) -> JSONResponse:
    """The one shape of an error, with the status of its class."""
    problems = error.problems if isinstance(error, InvalidJob) else ()
    body = {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "problems": [
            {"code": p.code, "path": p.path, "message": p.message, "hint": p.hint} for p in problems
        ],
    }
    return JSONResponse({"error": body}, status or error.http_status)


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(TrilithonError)
    async def _ours(request: Request, error: TrilithonError) -> JSONResponse:
        write = _log.error if error.http_status >= 500 else _log.info
        where = {"method": request.method, "path": request.url.path}
        write("request_refused", **where, code=error.code, message=error.message)
        return _refusal(error)

    @app.exception_handler(sqlite3.Error)
    async def _unwritten(request: Request, error: sqlite3.Error) -> JSONResponse:
        where = {"method": request.method, "path": request.url.path}
        _log.error("request_failed", **where, exc_info=error)
        message = f"The journal cannot be written: {error}."
        return _refusal(JournalUnusable(message, "Nothing was changed; try again."))

    @app.exception_handler(RequestValidationError)
    async def _malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return _refusal(NotUnderstood(f"{place}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> JSONResponse:
        kind = NotFound if error.status_code == NotFound.http_status else NotUnderstood
        return _refusal(kind(str(error.detail)), error.status_code)


def _jobs(app: FastAPI, daemon: Daemon) -> None:
    commands = daemon.commands

    @app.get("/jobs")
    def list_jobs() -> list[dict[str, Any]]:
        return views.jobs(daemon)

    @app.get("/jobs/{tenant}/{name}")
    def get_job(tenant: str, name: str) -> dict[str, Any]:
        return views.job(daemon, f"{tenant}/{name}")

    @app.post("/jobs")
    def apply_job(
        spec: Annotated[dict[str, Any], Body(embed=True)],
        mode: Annotated[Mode | None, Body()] = None,
        anew: Annotated[bool, Body()] = False,
        dry_run: Annotated[bool, Body()] = False,
    ) -> dict[str, Any]:
        """Accepts a job, or a new version; with `dry_run` only answers what that would do."""
        job = build_job(spec)
        if problems := tuple(daemon.unsupported(job)):
            raise InvalidJob(problems, job.id, " on this engine")
        if dry_run:
            plan = commands.plan(job)
            return {"job": job.id, "impact": plan.impact.value, "told": str(plan)}
        accepted = commands.apply(job, mode, anew=anew)
        daemon.wake()
        return {
            "job": accepted.job,
            "generation": accepted.generation,
            "impact": accepted.plan.impact.value,
            "told": accepted.message,
        }

    @app.delete("/jobs/{tenant}/{name}")
    def delete_job(tenant: str, name: str) -> dict[str, Any]:
        return _wished(commands.delete, f"{tenant}/{name}")

    @app.post("/jobs/{tenant}/{name}/pause")
    def pause_job(tenant: str, name: str) -> dict[str, Any]:
        return _wished(commands.pause, f"{tenant}/{name}")

    @app.post("/jobs/{tenant}/{name}/resume")
    def resume_job(tenant: str, name: str) -> dict[str, Any]:
        return _wished(commands.resume, f"{tenant}/{name}")

    @app.put("/jobs/{tenant}/{name}/mode")
    def set_mode(tenant: str, name: str, mode: Annotated[Mode, Body(embed=True)]) -> dict[str, Any]:
        return _wished(lambda job: commands.mode(job, mode), f"{tenant}/{name}")

    def _wished(wish: Callable[[str], None], job: str) -> dict[str, Any]:
        # The next round may be so fast that the job is gone before it can be shown.
        with daemon.controller.lock:
            wish(job)
            line = views.job_line(job, commands.record(job))
        daemon.wake()
        return line


def _explanations(app: FastAPI, daemon: Daemon) -> None:
    journal = daemon.journal

    def known(name: str) -> str:
        if not journal.specs(name):
            raise NotFound(f"There is no job {name!r} in the journal.")
        return name

    @app.get("/jobs/{tenant}/{name}/history")
    def history(tenant: str, name: str, limit: Limit = 100) -> dict[str, Any]:
        return views.history(journal, known(f"{tenant}/{name}"), limit)

    @app.get("/jobs/{tenant}/{name}/explanation")
    def explanation(tenant: str, name: str, limit: Limit = 20) -> list[dict[str, Any]]:
        return explain(journal, f"{tenant}/{name}", limit)

    @app.get("/jobs/{tenant}/{name}/series")
    def series(tenant: str, name: str, since_s: float = 0.0) -> list[dict[str, Any]]:
        return views.series(journal, known(f"{tenant}/{name}"), since_s)

    @app.get("/decisions")
    def decisions(limit: Limit = 100, since_s: float = 0.0) -> list[dict[str, Any]]:
        rows = journal.decisions(None, limit, since_s)
        return [explain_one(row, journal.actions(row.id)) for row in rows]

    @app.get("/events", response_class=EventSourceResponse)
    async def events(
        after: int | None = None, last_event_id: Annotated[str | None, Header()] = None
    ) -> AsyncIterator[ServerSentEvent]:
        """Events as they happen, from `after` on, or from the header of a reconnecting client."""
        upto = after
        if upto is None and last_event_id and last_event_id.isdigit():
            upto = int(last_event_id)
        if upto is None:
            upto = await run_in_threadpool(journal.last_event)
        while not daemon.stopping:
            for row in await run_in_threadpool(journal.events, upto):
                upto = row.id
                yield ServerSentEvent(data=views.event(row), event=row.kind, id=str(row.id))
            await asyncio.sleep(EVENTS_EVERY_S)


def _cluster(app: FastAPI, daemon: Daemon) -> None:
    @app.get("/health")
    def health() -> dict[str, Any]:
        return views.health(daemon)

    @app.get("/cluster")
    def cluster() -> dict[str, Any]:
        return views.cluster(daemon)

    @app.get("/cluster/explanation")
    def cluster_explanation(limit: Limit = 20) -> list[dict[str, Any]]:
        return explain_cluster(daemon.journal, limit)

    @app.get("/cluster/policy")
    def policy() -> dict[str, Any]:
        return views.policy_status(daemon)

    @app.get("/cluster/requests")
    def requests(limit: Limit = 20) -> list[dict[str, Any]]:
        return [views.request(row) for row in daemon.journal.requests(limit)]

    def scale(kind: ScalingKind, machines: int, job: str | None, dry_run: bool) -> dict[str, Any]:
        if dry_run:
            return daemon.cluster_commands.preview(kind, machines, job)
        request = daemon.cluster_commands.scale(kind, machines, job)
        daemon.wake()
        return {"request": request.id, "told": "Accepted; the policy stela carries it out."}

    @app.post("/cluster/scale-out")
    def scale_out(
        machines: Annotated[int, Body(ge=1, le=1000)],
        job: Annotated[str | None, Body()] = None,
        dry_run: Annotated[bool, Body()] = False,
    ) -> dict[str, Any]:
        return scale(ScalingKind.OUT, machines, job, dry_run)

    @app.post("/cluster/scale-in")
    def scale_in(
        machines: Annotated[int, Body(ge=1, le=1000)],
        dry_run: Annotated[bool, Body()] = False,
    ) -> dict[str, Any]:
        return scale(ScalingKind.IN, machines, None, dry_run)

    @app.get("/cluster/{report}")
    def policy_report(report: str) -> dict[str, Any]:
        return views.policy_report(daemon, report)

    @app.get("/figures")
    def figures() -> list[dict[str, Any]]:
        return views.figures(daemon)
