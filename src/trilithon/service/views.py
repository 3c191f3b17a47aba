"""Owns what the API shows of a controller: jobs, the cluster, live figures, as data."""

from typing import Any

import trilithon
from trilithon.contract.engine import Accepted
from trilithon.contract.figures import summary
from trilithon.control.compact import CompactSeries
from trilithon.control.explain import clock
from trilithon.control.journal import Journal
from trilithon.control.rows import DesiredState, EventRow
from trilithon.control.state import JobRecord
from trilithon.errors import NotFound
from trilithon.policies.henge.crunch import crunch
from trilithon.policies.henge.parameters import HengeParameters
from trilithon.recording.snapshots import job_to_json
from trilithon.service.daemon import Daemon


def health(daemon: Daemon) -> dict[str, Any]:
    controller, last = daemon.controller, daemon.controller.last
    problem = daemon.failure or (last.blind if last else "")
    return {
        "status": "ok" if last is not None and not problem else "starting" if last is None and not problem else "blind",
        "problem": problem,
        "version": trilithon.__version__,
        "policy": controller.policy.name,
        "round": controller.books.round,
        "round_s": controller.rules.limits.round_s,
        "last_round_s": None if last is None else last.time_s,
    }  # fmt: skip


def job_line(name: str, record: JobRecord) -> dict[str, Any]:
    return {
        "job": name,
        "tenant": record.job.tenant,
        "state": _state(record),
        "mode": record.mode.value,
        "generation": record.version.generation,
        "standing": record.version.standing.value,
        "instances": record.wanted.instances,
        "parallelism": dict(record.wanted.parallelism),
        "in_flight": record.in_flight and record.wish is DesiredState.RUN,
        "problem": record.problem,
    }


def _state(record: JobRecord) -> str:
    if record.wish is DesiredState.DELETE:
        return "ending"
    if record.wish is DesiredState.PAUSE:
        return "pausing" if record.running else "paused"
    if not record.running:
        return "not started" if record.tries else "starting"
    return record.health or "running"


def jobs(daemon: Daemon) -> list[dict[str, Any]]:
    with daemon.controller.lock:
        return [job_line(name, record) for name, record in daemon.controller.books.jobs.items()]


def job(daemon: Daemon, name: str) -> dict[str, Any]:
    with daemon.controller.lock:
        record = daemon.commands.record(name)
        found = job_line(name, record)
        gaps = {ability.value: gap_s for ability, (gap_s, _) in record.gap_s.items()}
        return {
            **found,
            "accepted_s": record.accepted_s,
            "changed_s": record.changed_s,
            "allocation_generation": record.wanted.generation,
            "learned_gap_s": gaps,
            "spec": job_to_json(record.job)["spec"],
            "figures": next(iter(figures(daemon, [name])), None),
        }


def figures(daemon: Daemon, names: list[str] | None = None) -> list[dict[str, Any]]:
    """The live figures of the jobs that run."""
    controller = daemon.controller
    with controller.lock:
        accepted = {
            name: Accepted(record.job, record.wanted, record.health or "running", record.problem)
            for name, record in controller.books.jobs.items()
            if record.running and (names is None or name in names)
        }
        return summary(controller.assessment(), accepted)


def crunch_of(daemon: Daemon) -> dict[str, Any]:
    """Whether the cluster is large enough, by what the last round saw."""
    controller = daemon.controller
    scene, state = controller.scene, controller.books.state
    given = controller.policy.parameters
    parameters = given if isinstance(given, HengeParameters) else None
    found = None if scene is None else crunch(scene, state, parameters)
    if found is None:
        raise NotFound("Nothing was measured yet.", "Ask again after a few rounds.")
    return {
        "feasible": found.feasible,
        "oversubscribed": found.oversubscribed,
        "congested": found.congested,
        "slots": found.slots,
        "slots_needed": found.slots_needed,
        "slots_missing": found.slots_missing,
        "cores": found.cores,
        "cores_needed": found.cores_needed,
        "missed": list(found.missed),
        "hungry": list(found.hungry),
        "impossible": list(found.impossible),
        "unknown": list(found.unknown),
        "jobs": [
            {
                "job": need.job,
                "has": need.has,
                "needs": None if need.instances is None else need.slots,
                "instances": None if need.instances is None else dict(need.instances),
                "possible": need.possible,
                "latency_ms": need.latency_ms,
            }
            for need in found.needs
        ],
    }


def cluster(daemon: Daemon) -> dict[str, Any]:
    controller = daemon.controller
    with controller.lock:
        record = list(controller.books.jobs.values())
        found = controller.cluster
        tenants = sorted({one.job.tenant for one in record} | set(controller.rules.quotas))
        return {
            **health(daemon),
            "jobs": len(record),
            "running": sum(one.running for one in record),
            "slots": found.slots,
            "slots_used": sum(one.wanted.instances for one in record if one.running),
            "tasks": found.capabilities.tasks,
            "machines": list(found.machines),
            "abilities": {
                str(ability): str(how) for ability, how in found.capabilities.how.items()
            },
            "tenants": [
                {
                    "tenant": tenant,
                    "jobs": sum(one.job.tenant == tenant for one in record),
                    "slots_used": sum(
                        one.wanted.instances
                        for one in record
                        if one.job.tenant == tenant and one.running
                    ),
                    "quota": controller.rules.quotas.get(tenant),
                }
                for tenant in tenants
            ],
        }


def event(row: EventRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "time_s": row.time_s,
        "time": clock(row.time_s),
        "kind": row.kind,
        "job": row.job,
        "text": row.text,
    }


def history(journal: Journal, name: str, limit: int) -> dict[str, Any]:
    """The versions of a job's spec, and what happened to it, the oldest first."""
    rows = journal.database.all(
        "SELECT * FROM (SELECT * FROM event WHERE job = ? ORDER BY id DESC LIMIT ?) ORDER BY id",
        name, limit,
    )  # fmt: skip
    return {
        "job": name,
        "versions": [
            {
                "generation": spec.generation,
                "standing": spec.standing.value,
                "accepted_s": spec.accepted_s,
                "accepted": clock(spec.accepted_s),
                "checkpoint": spec.checkpoint,
                "told": spec.told,
            }
            for spec in journal.specs(name)
        ],
        "events": [event(EventRow(**dict(row))) for row in rows],
    }


def series(journal: Journal, name: str, since_s: float) -> list[dict[str, Any]]:
    return [
        {"time_s": point.time_s, **point.numbers, "operators": point.operators}
        for point in CompactSeries(journal).read(name, since_s)
    ]
