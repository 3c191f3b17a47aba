"""The cluster: its machines and tenants, its policy, requests for machines, and decisions."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from fastapi.responses import JSONResponse

from trilithon.control.explain import explain_cluster, explain_one
from trilithon.control.rules import DAY_S
from trilithon.policies.registry import POLICIES
from trilithon.policies.requests import ScalingKind
from trilithon.service import views
from trilithon.service.access.gate import AnyCaller, OperateCluster
from trilithon.service.access.roles import Caller
from trilithon.service.daemon import Daemon
from trilithon.service.monitor.snapshots import RoundSnapshot
from trilithon.service.monitor.webhooks import alert_data
from trilithon.service.routes.common import Limit, Served, Since, redacted
from trilithon.service.visibility import sees_job, visible_cluster, visible_health, visible_rows

router = APIRouter(tags=["cluster"])
# As of every change of a job; the body has it as well.
DryRun = Annotated[bool, Query(alias="dry_run", description="check and plan, and change nothing")]


@router.get("/health")
def health(daemon: Served, caller: AnyCaller) -> dict[str, Any]:
    """Whether the loop runs and reaches the engine, and which jobs do not run."""
    return visible_health(views.health(daemon), caller)


@router.get("/cluster")
def cluster(daemon: Served, caller: AnyCaller) -> dict[str, Any]:
    """Slots, machines, the caller's tenants with their quotas, what the engine can do."""
    return visible_cluster(views.cluster(daemon), caller)


@router.get("/cluster/explanation")
def cluster_explanation(
    daemon: Served, _: OperateCluster, limit: Limit = 20
) -> list[dict[str, Any]]:
    """The latest `limit` decisions about the whole cluster, and those they follow from."""
    return explain_cluster(daemon.journal, limit)


@router.get("/cluster/policy")
def policy(daemon: Served, caller: AnyCaller) -> dict[str, Any]:
    """The policy, its parameters and, for administrators, what it publishes about itself."""
    status = views.policy_status(daemon)
    return status if caller.cluster_admin else {**status, "status": None}


@router.get("/cluster/requests")
def requests(daemon: Served, _: OperateCluster, limit: Limit = 20) -> list[dict[str, Any]]:
    """The latest `limit` requests for machines, and how they ended."""
    return [views.request(row) for row in daemon.journal.requests(limit)]


def _scale(
    daemon: Daemon,
    caller: Caller,
    kind: ScalingKind,
    machines: int,
    job: str | None,
    dry_run: bool,
) -> dict[str, Any]:
    if dry_run:
        return daemon.cluster_commands.preview(kind, machines, job)
    with daemon.controller.lock:  # no round ends the request before it is in the audit log
        request = daemon.cluster_commands.scale(kind, machines, job)
        daemon.wake()
        daemon.scaling_audit.requested(caller, request)
    return {"request": request.id, "told": "Accepted; the policy stela carries it out."}


@router.post("/cluster/scale-out")
def scale_out(
    daemon: Served,
    caller: OperateCluster,
    machines: Annotated[int, Body(ge=1, le=1000)],
    job: Annotated[str | None, Body()] = None,
    dry_run: Annotated[bool, Body()] = False,
    only_plan: DryRun = False,
) -> dict[str, Any]:
    """Adds `machines`, for `job` or all jobs; with `dry_run`, in the body or the query, only
    answers what that would do.
    """
    return _scale(daemon, caller, ScalingKind.OUT, machines, job, dry_run or only_plan)


@router.post("/cluster/scale-in")
def scale_in(
    daemon: Served,
    caller: OperateCluster,
    machines: Annotated[int, Body(ge=1, le=1000)],
    dry_run: Annotated[bool, Body()] = False,
    only_plan: DryRun = False,
) -> dict[str, Any]:
    """Gives back `machines`; with `dry_run`, in the body or the query, only answers what that
    would do.
    """
    return _scale(daemon, caller, ScalingKind.IN, machines, None, dry_run or only_plan)


@router.get("/cluster/{report}")
def policy_report(
    daemon: Served, _: OperateCluster, report: Annotated[str, Path(max_length=64)]
) -> dict[str, Any]:
    """A report of a policy; `crunch`: whether all intents fit, and who needs how much."""
    return views.policy_report(daemon, report)


@router.get("/history", response_model=dict[str, Any])
async def history(
    daemon: Served,
    caller: AnyCaller,
    since_s: Since = 0.0,
    points: Annotated[int, Query(ge=2, le=2000)] = 500,
    job: Annotated[list[str] | None, Query(max_length=50)] = None,
) -> Response:
    """Total utility and slots of the caller's jobs over the last rounds, and columns per `job`."""
    data = daemon.monitor.history.read(caller.sees, since_s, points, job)
    return JSONResponse(data)  # hundreds of numbers: checking each costs more than they do


@router.get("/snapshot", response_model=dict[str, Any])
async def snapshot(daemon: Served, caller: AnyCaller) -> Response:
    """The last round in short: what the event `snapshot` holds."""
    return JSONResponse(RoundSnapshot(daemon.monitor.last).data(caller))


@router.get("/alerts")
def alerts(daemon: Served, caller: AnyCaller) -> dict[str, Any]:
    """Alerts whose cause lasts, those that ended lately, and what policies alerted of."""
    active, recent = daemon.monitor.alerts.active(), daemon.monitor.alerts.recent()
    shown = {
        "active": [alert_data(one) for one in active if sees_job(caller, one.job)],
        "recent": [alert_data(one) for one in recent if sees_job(caller, one.job)],
    }
    return dict(redacted(daemon, caller, shown))


@router.get("/usage")
def usage(
    daemon: Served, caller: AnyCaller, days: Annotated[int, Query(ge=1, le=3660)] = 31
) -> list[dict[str, Any]]:
    """Slot-hours of the caller's tenants by day (UTC); the present minute comes with the next."""
    since = time.strftime("%Y-%m-%d", time.gmtime(daemon.controller.clock.now_s() - days * DAY_S))
    return [
        {"tenant": tenant, "day": day, "slot_hours": slot_s / 3600}
        for tenant, day, slot_s in daemon.access.store.usage(since)
        if caller.sees(tenant)
    ]


@router.get("/policies")
def policies(_: AnyCaller) -> list[dict[str, Any]]:
    """All policies that a rules file can name, with their parameters."""
    return [
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


@router.get("/machines")
def machines(daemon: Served, caller: AnyCaller) -> list[dict[str, Any]]:
    """The machines of the cluster, with the caller's instances on them."""
    return list(visible_cluster(views.cluster(daemon), caller)["machine_details"])


@router.get("/decisions")
def decisions(
    daemon: Served, caller: AnyCaller, limit: Limit = 100, since_s: Since = 0.0
) -> list[dict[str, Any]]:
    """The latest `limit` decisions about the caller's jobs, and for administrators the cluster."""
    rows = visible_rows(daemon.journal, caller, limit, since_s)
    explained = [explain_one(row, daemon.journal.actions(row.id)) for row in rows]
    return list(redacted(daemon, caller, explained))
