"""Jobs: list, show, apply, pause, resume, delete; mode, priority and intent; their past."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from trilithon.control.explain import explain
from trilithon.errors import NotObservable
from trilithon.model.mode import Mode
from trilithon.service import resources, views
from trilithon.service.access.gate import AnyCaller, ChangeJobs, DeleteJobs, ViewJobs, no_job
from trilithon.service.answers.decisions import DecisionExplanation
from trilithon.service.answers.numbers import JobHistory, LatestFigures, RecordsAnswer, SeriesPoint
from trilithon.service.changes import JobChanges, Precondition
from trilithon.service.daemon import Daemon
from trilithon.service.peek import topics_at
from trilithon.service.resources import JobChange, JobResource, JobSummary
from trilithon.service.routes.common import (
    JobName,
    JsonAnswer,
    Limit,
    Lists,
    Served,
    Since,
    Tenant,
    redacted,
)
from trilithon.service.tenant_rules import check_readable
from trilithon.spec.fields import IntentSpec

router = APIRouter(tags=["jobs"])
IfMatch = Annotated[
    str | None, Header(description="the ETag of the job, or * for any that exists", max_length=200)
]
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match", description="* accepts the job only if it is new", pattern=r"^\*$"
    ),
]
DryRun = Annotated[bool, Query(description="check and plan, and change nothing")]
CREATED: dict[int | str, dict[str, Any]] = {
    201: {"model": JobChange, "description": "the job is new"}
}


@dataclass(frozen=True)
class ChangeRequest:
    """What every change of a job is asked with: the job, and whether and when to make it."""

    daemon: Daemon
    tenant: str
    name: str
    dry_run: bool
    if_match: str | None

    @property
    def job(self) -> str:
        return f"{self.tenant}/{self.name}"

    @property
    def expected(self) -> Precondition:
        return Precondition(self.if_match)


async def _change(
    daemon: Served, tenant: Tenant, name: JobName, dry_run: DryRun = False, if_match: IfMatch = None
) -> ChangeRequest:
    return ChangeRequest(daemon, tenant, name, dry_run, if_match)


Change = Annotated[ChangeRequest, Depends(_change)]


class _Applied(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: Mode | None = None
    anew: bool = Field(
        default=False, description="start with a new checkpoint if the old one cannot be used"
    )


class Apply(_Applied):
    """A job to accept. `spec` is the job file; its tenant and name may be left out."""

    spec: dict[str, Any]


class ApplyPython(_Applied):
    """A job to accept, of a Python file."""

    file: str = Field(
        max_length=1000, description="the full name of the file on the engine host's machine"
    )


@router.get("/jobs", response_model=list[JobSummary])
async def list_jobs(lists: Lists, caller: AnyCaller) -> Response:
    """All jobs of the caller's tenants, without their specs."""
    return Response(lists.of(caller), media_type="application/json")


@router.get("/jobs/{tenant}/{name}", response_model=JobResource)
async def get_job(daemon: Served, _: ViewJobs, tenant: Tenant, name: JobName) -> JSONResponse:
    """A job: metadata, spec, status with conditions, figures. The ETag is its generation."""
    data = resources.resource(daemon, f"{tenant}/{name}")
    return JSONResponse(data, headers={"ETag": f'"{data["metadata"]["generation"]}"'})


@router.put("/jobs/{tenant}/{name}", response_model=JobChange, responses=CREATED)
def apply_job(
    change: Change,
    caller: ChangeJobs,
    response: Response,
    wanted: Apply,
    if_new: IfNoneMatch = None,
) -> dict[str, Any]:
    """Accepts a job, or a new version of it. The same spec again changes nothing."""
    return _applied(change, caller, response, wanted, wanted.spec, if_new, "job applied")


@router.put("/jobs/{tenant}/{name}/python", response_model=JobChange, responses=CREATED)
def apply_python_job(
    change: Change,
    caller: ChangeJobs,
    response: Response,
    wanted: ApplyPython,
    if_new: IfNoneMatch = None,
) -> dict[str, Any]:
    """Accepts a job of a Python file in one of the administrator's folders. The engine host runs
    the file, never the daemon; what is accepted is the spec that comes out of it.
    """
    spec = change.daemon.python_jobs.spec(change.tenant, change.name, wanted.file)
    action = f"job applied from {wanted.file}"
    return _applied(change, caller, response, wanted, spec, if_new, action)


def _applied(
    change: ChangeRequest,
    caller: ChangeJobs,
    response: Response,
    wanted: Apply | ApplyPython,
    spec: Mapping[str, Any],
    if_new: str | None,
    action: str,
) -> dict[str, Any]:
    applied = JobChanges(change.daemon, caller).apply(
        change.tenant,
        change.name,
        spec,
        mode=wanted.mode,
        anew=wanted.anew,
        expected=Precondition(change.if_match, if_new),
        dry_run=change.dry_run,
        action=action,
    )
    if applied["impact"] == "new" and not change.dry_run:
        response.status_code = 201
    return applied


@router.delete("/jobs/{tenant}/{name}", response_model=JobSummary)
def delete_job(change: Change, caller: DeleteJobs) -> dict[str, Any]:
    """Stops a job and deletes its checkpoints. Its history stays."""
    return _commanded(change, caller, "delete")


@router.post("/jobs/{tenant}/{name}/pause", response_model=JobSummary)
def pause_job(change: Change, caller: ChangeJobs) -> dict[str, Any]:
    """Stops a job and keeps its checkpoint."""
    return _commanded(change, caller, "pause")


@router.post("/jobs/{tenant}/{name}/resume", response_model=JobSummary)
def resume_job(change: Change, caller: ChangeJobs) -> dict[str, Any]:
    """Starts a job that was paused or has failed, from its checkpoint."""
    return _commanded(change, caller, "resume")


@router.put("/jobs/{tenant}/{name}/mode", response_model=JobSummary)
def set_mode(
    change: Change,
    caller: ChangeJobs,
    mode: Annotated[Mode, Body(embed=True)],
) -> dict[str, Any]:
    """Sets what the controller may do with a job: `auto`, `advise` or `off`."""
    return _commanded(change, caller, "mode", mode)


@router.put("/jobs/{tenant}/{name}/priority", response_model=JobChange)
def set_priority(
    change: Change,
    caller: ChangeJobs,
    priority: Annotated[float, Body(embed=True, ge=0, le=1e9, allow_inf_nan=False)],
) -> dict[str, Any]:
    """Sets the job's priority, its maximum utility, while it runs. A new version of the spec."""
    return _set_intent(
        change, caller, lambda intent: {**intent, "priority": priority}, "priority set"
    )


@router.put("/jobs/{tenant}/{name}/intent", response_model=JobChange)
def set_intent(
    change: Change,
    caller: ChangeJobs,
    intent: Annotated[IntentSpec, Body(embed=True)],
) -> dict[str, Any]:
    """Replaces the job's intent while it runs: priority, thresholds, constraints."""
    given = intent.model_dump(exclude_unset=True, exclude_none=True, mode="json", by_alias=True)
    return _set_intent(change, caller, lambda _: given, "intent set")


def _set_intent(
    change: ChangeRequest,
    caller: ChangeJobs,
    edit: Callable[[dict[str, Any]], dict[str, Any]],
    action: str,
) -> dict[str, Any]:
    return JobChanges(change.daemon, caller).set_intent(
        change.job, edit, action, expected=change.expected, dry_run=change.dry_run
    )


def _commanded(
    change: ChangeRequest, caller: ChangeJobs, what: str, mode: Mode = Mode.AUTO
) -> dict[str, Any]:
    daemon, commands = change.daemon, change.daemon.commands
    action, command = {
        "delete": ("job deleted", commands.delete),
        "pause": ("job paused", commands.pause),
        "resume": ("job resumed", commands.resume),
        "mode": ("mode set", lambda job: commands.mode(job, mode)),
    }[what]
    # The next round may be so fast that the job is gone before it can be shown.
    with daemon.controller.lock:
        JobChanges(daemon, caller).command(
            change.job, action, command, expected=change.expected, dry_run=change.dry_run
        )
        record = commands.record(change.job)
        return resources.summary(daemon, daemon.monitor.job_now(change.job, record), record)


@router.get("/jobs/{tenant}/{name}/history", response_model=JobHistory)
def history(
    daemon: Served, caller: ViewJobs, tenant: Tenant, name: JobName, limit: Limit = 100
) -> Response:
    """The versions of a job, and its latest `limit` events. A deleted job has them, too."""
    past = views.history(daemon.journal, _known(daemon, f"{tenant}/{name}"), limit)
    return JsonAnswer(redacted(daemon, caller, past))


@router.get("/jobs/{tenant}/{name}/explanation", response_model=list[DecisionExplanation])
def explanation(
    daemon: Served, caller: ViewJobs, tenant: Tenant, name: JobName, limit: Limit = 20
) -> Response:
    """The latest `limit` decisions about a job and those they follow from, in sentences."""
    explained = explain(daemon.journal, f"{tenant}/{name}", limit)
    return JsonAnswer(redacted(daemon, caller, explained))


@router.get("/jobs/{tenant}/{name}/series", response_model=list[SeriesPoint])
def series(
    daemon: Served, _: ViewJobs, tenant: Tenant, name: JobName, since_s: Since = 0.0
) -> Response:
    """The compact series of a job in the journal, from `since_s` on."""
    points = views.series(daemon.journal, _known(daemon, f"{tenant}/{name}"), since_s)
    return JsonAnswer(points)


@router.get("/jobs/{tenant}/{name}/records/{place}", response_model=RecordsAnswer)
def peek(
    daemon: Served,
    _: ViewJobs,
    tenant: Tenant,
    name: JobName,
    place: Annotated[
        str, Path(max_length=200, description="a source, a sink, `dead_letters`, or `from->to`")
    ],
    limit: Annotated[int, Query(ge=1, le=50)] = 5,
) -> Response:
    """The latest records at a source, a sink, an edge or of the dead letters. An edge between two
    operators of one query is watched for a moment: what passes then is shown, with the instance.
    A topic that the tenant may not read, such as one that the job only writes, is refused.
    """
    job = f"{tenant}/{name}"
    with daemon.controller.lock:
        spec = daemon.commands.record(job).job
    topics = topics_at(spec, place, lambda: daemon.edge_topics(job))
    check_readable(spec, topics, daemon.settings)
    if not topics and daemon.read_edge is not None:
        passed = daemon.read_edge(job, place, limit)
        return JsonAnswer({"place": place, "topics": [], "records": passed})
    if not topics or daemon.read_latest is None:
        raise NotObservable("This engine has no topics: its records are simulated.")
    records = [
        {"topic": topic, **record}
        for topic in topics
        for record in daemon.read_latest(topic, limit, tenant)
    ]
    return JsonAnswer({"place": place, "topics": topics, "records": records})


@router.get("/figures", response_model=list[LatestFigures])
def figures(daemon: Served, caller: AnyCaller) -> Response:
    """The live figures of the caller's jobs that run."""
    names = [row["job"] for row in views.jobs(daemon) if caller.sees(row["tenant"])]
    return JsonAnswer(views.figures(daemon, names))


def _known(daemon: Daemon, name: str) -> str:
    if not daemon.journal.specs(name):
        raise no_job(name)
    return name
