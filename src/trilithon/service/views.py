"""Builds the answers of the API from a controller: jobs, the cluster, live figures."""

from collections import Counter
from dataclasses import asdict
from typing import Any

import trilithon
from trilithon.contract.condition import RUNNING, Health
from trilithon.contract.engine import Accepted
from trilithon.contract.figures import summary
from trilithon.control.compact import CompactSeries
from trilithon.control.conditions import next_try
from trilithon.control.explain import clock
from trilithon.control.journal import Journal
from trilithon.control.journal.rows import DesiredState, RequestRow
from trilithon.control.state import JobRecord
from trilithon.errors import NotFound
from trilithon.policies.registry import report
from trilithon.policies.scene import Machine
from trilithon.recording.snapshots import job_to_json
from trilithon.service.daemon import Daemon
from trilithon.service.monitor.facts import has_slots, state_of
from trilithon.service.monitor.monitor import event_data
from trilithon.service.visibility import BLIND


def health(daemon: Daemon) -> dict[str, Any]:
    controller, last = daemon.controller, daemon.controller.last
    problem = daemon.failure or (last.blind if last else "")
    status = BLIND if problem else "starting" if last is None else "ok"
    if daemon.starting:
        status, problem = daemon.status_before_start, daemon.starting
    if status == "ok" and (problem := _unhealthy(daemon)):
        status = "degraded"
    return {
        "status": status,
        "problem": problem,
        "version": trilithon.__version__,
        "policy": controller.policy.name,
        "round": controller.state.round,
        "round_s": controller.rules.limits.round_s,
        "last_round_s": None if last is None else last.time_s,
    }


def _unhealthy(daemon: Daemon) -> str:
    """How many jobs do not run, and why the first of them does not."""
    with daemon.controller.lock:
        problems = [
            f"{name} {record.health}: {record.problem}"
            for name, record in daemon.controller.state.jobs.items()
            if record.desired is DesiredState.RUN and record.health not in {"", Health.RUNNING}
        ]
        total = len(daemon.controller.state.jobs)
    return f"{len(problems)} of {total} jobs do not run. {problems[0]}" if problems else ""


def job_line(name: str, record: JobRecord) -> dict[str, Any]:
    return {
        "job": name,
        "tenant": record.job.tenant,
        "state": state_of(record),
        "mode": record.mode.value,
        "generation": record.version.generation,
        "standing": record.version.status.value,
        "instances": record.wanted.instances,
        "parallelism": dict(record.wanted.parallelism),
        "in_flight": record.in_flight and record.desired is DesiredState.RUN,
        "problem": record.problem + (next_try(record.condition) if record.problem else ""),
        "since_s": None if record.condition is None else record.condition.since_s,
        "next_try_s": None if record.condition is None else record.condition.next_try_s,
    }


def jobs(daemon: Daemon) -> list[dict[str, Any]]:
    with daemon.controller.lock:
        return [job_line(name, record) for name, record in daemon.controller.state.jobs.items()]


def job(daemon: Daemon, name: str) -> dict[str, Any]:
    with daemon.controller.lock:
        record = daemon.commands.record(name)
        line = job_line(name, record)
        gaps = {ability.value: gap_s for ability, (gap_s, _) in record.gap_s.items()}
        return {
            **line,
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
            name: Accepted(record.job, record.wanted, record.condition or RUNNING)
            for name, record in controller.state.jobs.items()
            if record.running and (names is None or name in names)
        }
        clock_set_s = controller.freshness.observer.clock_set_s
        return summary(controller.assessment(), accepted, clock_set_s)


def policy_report(daemon: Daemon, name: str) -> dict[str, Any]:
    """A report of a policy, from what the last round saw."""
    controller = daemon.controller
    scene, state = controller.scene, controller.state.policy_state
    data = None if scene is None else report(name, scene, controller.policy, state)
    if data is None:
        raise NotFound("There are no measurements yet.", "Ask again after a few rounds.")
    return dict(data)


def policy_status(daemon: Daemon) -> dict[str, Any]:
    """What the policy publishes about itself."""
    controller = daemon.controller
    scene, state = controller.scene, controller.state.policy_state
    return {
        "policy": controller.policy.name,
        "parameters": controller.policy.parameters.given(),
        "status": None if scene is None else dict(controller.policy.status(scene, state)),
    }


def cluster(daemon: Daemon) -> dict[str, Any]:
    controller = daemon.controller
    with controller.lock:
        records, shared = list(controller.state.jobs.values()), controller.cluster
        states = Counter(map(state_of, records))
        machines = () if controller.scene is None else controller.scene.machines
        tenants = sorted({record.job.tenant for record in records} | set(controller.rules.quotas))
        return {
            **health(daemon),
            "jobs": len(records),
            "running": states["running"],
            "degraded": states["degraded"],
            "failed": states["failed"],
            "slots": shared.slots,
            "slots_used": sum(record.wanted.instances for record in records if has_slots(record)),
            "tasks": shared.capabilities.tasks,
            "mode": controller.state.mode.value,
            "machines": [machine.name for machine in machines],
            "machine_details": [_machine(machine) for machine in machines],
            "policy_status": policy_status(daemon)["status"],
            "abilities": {
                str(ability): str(how) for ability, how in shared.capabilities.how.items()
            },
            "applications": [
                {
                    "application": application.name,
                    "state": application.state.value,
                    "since_s": application.since_s,
                    "jobs": list(application.jobs),
                }
                for application in daemon.applications()
            ],
            "tenants": [
                {
                    "tenant": tenant,
                    "jobs": sum(record.job.tenant == tenant for record in records),
                    "slots_used": sum(
                        record.wanted.instances
                        for record in records
                        if record.job.tenant == tenant and has_slots(record)
                    ),
                    "quota": controller.rules.quotas.get(tenant),
                }
                for tenant in tenants
            ],
        }


def _machine(machine: Machine) -> dict[str, Any]:
    return {**asdict(machine), "instances": [f"{j} {o}[{i}]" for j, o, i in machine.instances]}


def request(row: RequestRow) -> dict[str, Any]:
    asked = row.request
    return {
        "request": asked.id,
        "kind": asked.kind.value,
        "machines": asked.machines,
        "machine_names": list(asked.machine_names),
        "job": asked.job,
        "asked_s": asked.asked_s,
        "ended_s": row.ended_s,
        "done": row.done,
        "told": row.message,
    }


def history(journal: Journal, name: str, limit: int) -> dict[str, Any]:
    """The versions of a job's spec, and what happened to it, the oldest first."""
    return {
        "job": name,
        "versions": [
            {
                "generation": spec.generation,
                "standing": spec.status.value,
                "accepted_s": spec.accepted_s,
                "accepted": clock(spec.accepted_s),
                "checkpoint": spec.checkpoint,
                "told": spec.message,
            }
            for spec in journal.specs(name)
        ],
        "events": [event_data(row) for row in journal.job_events(name, limit)],
    }


def series(journal: Journal, name: str, since_s: float) -> list[dict[str, Any]]:
    return [
        {"time_s": point.time_s, **point.numbers, "operators": point.operators}
        for point in CompactSeries(journal).read(name, since_s)
    ]
