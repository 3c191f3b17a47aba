"""The cluster: its machines and tenants, its policy, requests for machines, and decisions."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import Field

from trilithon.control.explain import explain_cluster, explain_one
from trilithon.control.rules import DAY_S
from trilithon.policies.registry import POLICIES
from trilithon.policies.requests import ScalingKind
from trilithon.service import views
from trilithon.service.access.gate import AnyCaller, OperateCluster
from trilithon.service.access.roles import Caller
from trilithon.service.answers.cluster import (
    AlertLists,
    ClusterAnswer,
    MachineView,
    PolicyState,
    PolicyView,
    ScalingAccepted,
    ScalingPreview,
    ScalingRequestView,
    ServiceHealth,
    Usage,
)
from trilithon.service.answers.decisions import DecisionExplanation
from trilithon.service.answers.numbers import RecentRounds, SnapshotAnswer
from trilithon.service.daemon import Daemon
from trilithon.service.monitor.snapshots import RoundSnapshot
from trilithon.service.monitor.webhooks import alert_data
from trilithon.service.routes.common import JsonAnswer, Limit, Served, Since, redacted
from trilithon.service.visibility import sees_job, visible_cluster, visible_health, visible_rows

router = APIRouter(tags=["cluster"])
# As of every change of a job; the body has it as well.
DryRun = Annotated[bool, Query(alias="dry_run", description="check and plan, and change nothing")]
MachineName = Annotated[str, Field(min_length=1, max_length=300)]


@router.get("/health", response_model=ServiceHealth)
def health(daemon: Served, caller: AnyCaller) -> Response:
    """Whether the loop runs and reaches the engine, and which jobs do not run."""
    return JsonAnswer(visible_health(views.health(daemon), caller))


@router.get("/cluster", response_model=ClusterAnswer)
def cluster(daemon: Served, caller: AnyCaller) -> Response:
    """Slots, machines, the caller's tenants with their quotas, what the engine can do."""
    return JsonAnswer(visible_cluster(views.cluster(daemon), caller))


@router.get("/cluster/explanation", response_model=list[DecisionExplanation])
def cluster_explanation(daemon: Served, _: OperateCluster, limit: Limit = 20) -> Response:
    """The latest `limit` decisions about the whole cluster, and those they follow from."""
    return JsonAnswer(explain_cluster(daemon.journal, limit))


@router.get("/cluster/policy", response_model=PolicyState)
def policy(daemon: Served, caller: AnyCaller) -> Response:
    """The policy, its parameters and, for administrators, what it publishes about itself."""
    status = views.policy_status(daemon)
    return JsonAnswer(status if caller.cluster_admin else {**status, "status": None})


@router.get("/cluster/requests", response_model=list[ScalingRequestView])
def requests(daemon: Served, _: OperateCluster, limit: Limit = 20) -> Response:
    """The latest `limit` requests for machines, and how they ended."""
    return JsonAnswer([views.request(row) for row in daemon.journal.requests(limit)])


def _scale(
    daemon: Daemon,
    caller: Caller,
    kind: ScalingKind,
    machines: int | None,
    job: str | None,
    names: Sequence[str],
    dry_run: bool,
) -> Response:
    if dry_run:
        return JsonAnswer(daemon.cluster_commands.preview(kind, machines, job, names))
    with daemon.controller.lock:  # no round ends the request before it is in the audit log
        request = daemon.cluster_commands.scale(kind, machines, job, names)
        daemon.wake()
        daemon.scaling_audit.requested(caller, request)
    message = "Accepted; the policy stela carries it out."
    return JsonAnswer({"request": request.id, "told": message})


@router.post("/cluster/scale-out", response_model=ScalingAccepted | ScalingPreview)
def scale_out(
    daemon: Served,
    caller: OperateCluster,
    machines: Annotated[int, Body(ge=1, le=1000)],
    job: Annotated[str | None, Body()] = None,
    dry_run: Annotated[bool, Body()] = False,
    only_plan: DryRun = False,
) -> Response:
    """Adds `machines`, for `job` or all jobs; with `dry_run`, in the body or the query, only
    answers what that would do.
    """
    return _scale(daemon, caller, ScalingKind.OUT, machines, job, (), dry_run or only_plan)


@router.post("/cluster/scale-in", response_model=ScalingAccepted | ScalingPreview)
def scale_in(
    daemon: Served,
    caller: OperateCluster,
    machines: Annotated[int | None, Body(ge=1, le=1000)] = None,
    machine_names: Annotated[tuple[MachineName, ...], Body(max_length=1000)] = (),
    dry_run: Annotated[bool, Body()] = False,
    only_plan: DryRun = False,
) -> Response:
    """Gives back so many `machines`, or those in `machine_names`; with `dry_run`, in the body or
    the query, only answers what that would do.
    """
    dry_run = dry_run or only_plan
    return _scale(daemon, caller, ScalingKind.IN, machines, None, machine_names, dry_run)


@router.get("/cluster/{report}", response_model=dict[str, Any])
def policy_report(
    daemon: Served, _: OperateCluster, report: Annotated[str, Path(max_length=64)]
) -> Response:
    """A report of a policy, in its own form; `crunch`: whether all intents fit, and who needs how
    much.
    """
    return JsonAnswer(views.policy_report(daemon, report))


@router.get("/history", response_model=RecentRounds)
async def history(
    daemon: Served,
    caller: AnyCaller,
    since_s: Since = 0.0,
    points: Annotated[int, Query(ge=2, le=2000)] = 500,
    job: Annotated[list[str] | None, Query(max_length=50)] = None,
) -> Response:
    """Total utility and slots of the caller's jobs over the last rounds, and columns per `job`."""
    return JsonAnswer(daemon.monitor.history.read(caller.sees, since_s, points, job))


@router.get("/snapshot", response_model=SnapshotAnswer)
async def snapshot(daemon: Served, caller: AnyCaller) -> Response:
    """The last round in short: what the event `snapshot` holds."""
    return JsonAnswer(RoundSnapshot(daemon.monitor.last).data(caller))


@router.get("/alerts", response_model=AlertLists)
def alerts(daemon: Served, caller: AnyCaller) -> Response:
    """Alerts whose cause lasts, those that ended lately, and what policies alerted of."""
    active, recent = daemon.monitor.alerts.active(), daemon.monitor.alerts.recent()
    shown = {
        "active": [alert_data(one) for one in active if sees_job(caller, one.job)],
        "recent": [alert_data(one) for one in recent if sees_job(caller, one.job)],
    }
    return JsonAnswer(redacted(daemon, caller, shown))


@router.get("/usage", response_model=list[Usage])
def usage(
    daemon: Served, caller: AnyCaller, days: Annotated[int, Query(ge=1, le=3660)] = 31
) -> Response:
    """Slot-hours of the caller's tenants by day (UTC); the present minute comes with the next."""
    since = time.strftime("%Y-%m-%d", time.gmtime(daemon.controller.clock.now_s() - days * DAY_S))
    rows = [
        {"tenant": tenant, "day": day, "slot_hours": slot_s / 3600}
        for tenant, day, slot_s in daemon.access.store.usage(since)
        if caller.sees(tenant)
    ]
    return JsonAnswer(rows)


@router.get("/policies", response_model=list[PolicyView])
def policies(_: AnyCaller) -> Response:
    """All policies that a rules file can name, with their parameters."""
    listed = [
        {
            "policy": name,
            "summary": entry.summary,
            "parameters": [
                {
                    "name": one.name,
                    "default": one.default,
                    "unit": one.unit,
                    "meaning": one.meaning,
                }
                for one in entry.parameters.describe()
            ],
        }
        for name, entry in POLICIES.items()
    ]
    return JsonAnswer(listed)


@router.get("/machines", response_model=list[MachineView])
def machines(daemon: Served, caller: AnyCaller) -> Response:
    """The machines of the cluster, with the caller's instances on them."""
    return JsonAnswer(visible_cluster(views.cluster(daemon), caller)["machine_details"])


@router.get("/decisions", response_model=list[DecisionExplanation])
def decisions(
    daemon: Served, caller: AnyCaller, limit: Limit = 100, since_s: Since = 0.0
) -> Response:
    """The latest `limit` decisions about the caller's jobs, and for administrators the cluster."""
    rows = visible_rows(daemon.journal, caller, limit, since_s)
    explained = [explain_one(row, daemon.journal.actions(row.id)) for row in rows]
    return JsonAnswer(redacted(daemon, caller, explained))
