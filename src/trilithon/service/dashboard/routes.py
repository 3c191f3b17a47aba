"""Serves the dashboard: its pages and the data of its plots. Pages follow the API's events."""

import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.staticfiles import StaticFiles

from trilithon.errors import Forbidden, NotAllowed, NotFound, TrilithonError
from trilithon.measures.what_if import predict
from trilithon.model.job import Job
from trilithon.service.access.gate import AnyCaller, Public, ViewJobs
from trilithon.service.access.roles import Permission
from trilithon.service.daemon import Daemon
from trilithon.service.dashboard import ledger, log_in
from trilithon.service.dashboard.cluster_page import cluster_page
from trilithon.service.dashboard.error_budget import ErrorBudgets
from trilithon.service.dashboard.job_page import job_page
from trilithon.service.dashboard.log_in import LOG_IN, LoginCodes
from trilithon.service.dashboard.operator_page import operator_page
from trilithon.service.dashboard.pages import HEADERS, ROOT, STATIC, VENDOR, live_page, page
from trilithon.service.dashboard.plots import cluster_plot, job_plot
from trilithon.service.dashboard.reading import Reading
from trilithon.service.routes.common import Served
from trilithon.service.visibility import sees_job, visible_rows

MOST_LOAD: Final = 10.0
MOST_MARKS: Final = 200
# Those that lose the most; a link leads to all of them.
FIRST: Final = 25
_OPERATOR: Final = re.compile(r"op\.(.+)")
router = APIRouter(prefix=ROOT, include_in_schema=False)


def add_dashboard(app: FastAPI) -> None:
    """Adds the pages to an application, with their files and their answers to errors."""
    app.include_router(router)
    app.include_router(log_in.router)
    app.mount(f"{ROOT}/static", StaticFiles(directory=STATIC), name="static")
    app.mount(f"{ROOT}/vendor", StaticFiles(directory=VENDOR), name="vendor")

    @app.get("/", include_in_schema=False)
    def front(_: Public) -> Response:
        return RedirectResponse(ROOT, 303, HEADERS)

    _answer_with_pages(app)


def attach_daemon(app: FastAPI, daemon: Daemon) -> None:
    """Gives the pages what they keep between requests."""
    app.state.error_budgets = ErrorBudgets(daemon)
    app.state.login_codes = LoginCodes(daemon.access.clock)


def _answer_with_pages(app: FastAPI) -> None:
    """A browser that may not see a page is sent to the log-in, or gets a page that says why."""
    problem_document: Any = app.exception_handlers[TrilithonError]

    async def answer(request: Request, error: Exception) -> Response:
        is_page = request.url.path.startswith(ROOT) and request.method == "GET"
        wants_page = "text/html" in request.headers.get("accept", "")
        if not isinstance(error, TrilithonError) or not (is_page and wants_page):
            document: Response = await problem_document(request, error)
            return document
        if isinstance(error, NotAllowed):
            return RedirectResponse(f"{LOG_IN}?to={request.url.path}", 303, HEADERS)
        return page("error.html", None, error.http_status, error=error)

    for kind in (NotAllowed, Forbidden, NotFound):
        app.add_exception_handler(kind, answer)


@router.get("")
def show_cluster(
    daemon: Served,
    caller: AnyCaller,
    everything: Annotated[bool, Query(alias="all")] = False,
) -> Response:
    reading = Reading(daemon, caller)
    view = cluster_page(reading, None if everything else FIRST)
    return live_page("cluster.html", reading, view=view)


@router.get("/jobs/{tenant}/{name}")
def show_job(
    request: Request, daemon: Served, caller: ViewJobs, tenant: str, name: str
) -> Response:
    reading = Reading(daemon, caller)
    view = job_page(reading, request.app.state.error_budgets, f"{tenant}/{name}")
    may_change = caller.may(Permission.CHANGE_JOBS, tenant)
    return live_page("job.html", reading, view=view, may_change=may_change)


@router.get("/jobs/{tenant}/{name}/operators/{operator}")
def show_operator(
    daemon: Served, caller: ViewJobs, tenant: str, name: str, operator: str
) -> Response:
    reading, job = Reading(daemon, caller), f"{tenant}/{name}"
    return live_page("operator.html", reading, job=job, view=operator_page(reading, job, operator))


@router.get("/jobs/{tenant}/{name}/what-if")
def show_what_if(
    request: Request,
    daemon: Served,
    caller: ViewJobs,
    tenant: str,
    name: str,
    load: Annotated[float, Query(ge=0, le=MOST_LOAD)] = 1.0,
) -> Response:
    """Instances per operator are in the query, as `op.NAME=COUNT`."""
    reading, job = Reading(daemon, caller), f"{tenant}/{name}"
    record, assessment = reading.record(job), reading.assessment
    counts = _counts(request, record.job)
    now = then = None
    if assessment is not None and reading.measured(job):
        now = predict(assessment, record.job, {})
        then = predict(assessment, record.job, counts, load)
    return live_page(
        "what_if.html", reading, job=record.job, now=now, then=then, counts=counts, load=load
    )


def _counts(request: Request, job: Job) -> dict[str, int]:
    """The asked-for instances, within the bounds of each operator."""
    spans = {operator.name: operator.parallelism for operator in job.operators}
    counts = {}
    for key, value in request.query_params.items():
        match = _OPERATOR.fullmatch(key)
        if match and match[1] in spans and value.isdigit():
            counts[match[1]] = max(1, min(spans[match[1]].max, int(value)))
    return counts


@router.get("/decisions")
def show_decision(daemon: Served, caller: AnyCaller, id: str) -> Response:  # noqa: A002 - as in the URL
    reading = Reading(daemon, caller)
    explained = ledger.explanation(daemon.journal, reading.decision(id), reading.redact)
    return live_page("decision.html", reading, explained=explained)


@router.get("/plots/cluster")
def cluster_lines(
    daemon: Served, caller: AnyCaller, since_s: float | None = None
) -> dict[str, Any]:
    """Total utility and its maximum, after a time, and when something was changed."""
    points = daemon.monitor.history.points(since_s)
    rows = visible_rows(daemon.journal, caller, MOST_MARKS, since_s or 0.0)
    lines = cluster_plot(points, lambda job: sees_job(caller, job))
    return {**lines, "marks": ledger.acted_s(rows)}


@router.get("/plots/jobs/{tenant}/{name}")
def job_lines(
    daemon: Served,
    _: ViewJobs,
    tenant: str,
    name: str,
    since_s: float | None = None,
) -> dict[str, Any]:
    """The percentiles, juice, throughput, lag and utility of a job, after a time, and when it was
    changed.
    """
    job = f"{tenant}/{name}"
    rows = daemon.journal.decisions(job, MOST_MARKS, since_s or 0.0)
    lines = job_plot(daemon.monitor.history.points(since_s), job)
    return {**lines, "marks": ledger.acted_s(rows)}
