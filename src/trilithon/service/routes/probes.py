"""Probes of supervisors and load balancers: whether the daemon lives, and whether it controls."""

from typing import Any

from fastapi import APIRouter, Response

from trilithon.service import views
from trilithon.service.access.gate import AnyCaller, Public
from trilithon.service.answers.cluster import Liveness, Readiness
from trilithon.service.monitor.metrics import CONTENT_TYPE, exposition
from trilithon.service.routes.common import Served

router = APIRouter(tags=["probes"])
EXPOSITION: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the text format of Prometheus",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}


@router.get("/metrics", response_class=Response, responses=EXPOSITION)
def metrics(daemon: Served, caller: AnyCaller) -> Response:
    """What Prometheus scrapes: the caller's jobs and, for administrators, the whole daemon."""
    return Response(exposition(daemon.monitor, caller), media_type=CONTENT_TYPE)


@router.get("/healthz", response_model=Liveness, responses={503: {"model": Liveness}})
async def healthz(daemon: Served, _: Public, response: Response) -> dict[str, Any]:
    """Whether the control loop lives: 503 if it has ended. Says nothing about jobs."""
    response.status_code = 200 if daemon.loop_alive else 503
    return {"status": "ok" if daemon.loop_alive else "dead"}


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
def readyz(daemon: Served, _: Public, response: Response) -> dict[str, Any]:
    """Whether the controller reaches the engine: 503 while it starts, waits for it or is blind."""
    status = views.health(daemon)["status"]
    ready = status in {"ok", "degraded"}
    response.status_code = 200 if ready else 503
    return {"status": "ok" if ready else status}
