"""Turns the values of the contract into JSON and back, for sockets and the journal."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trilithon.contract.condition import Cause
from trilithon.contract.engine import (
    Ability,
    Accepted,
    Action,
    AddMachines,
    Capabilities,
    Condition,
    Health,
    How,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.errors import NotUnderstood
from trilithon.model.allocation import Allocation
from trilithon.model.intent import EdgeName
from trilithon.model.job import Job
from trilithon.recording.snapshots import job_from_json, job_to_json

ONE_SHOT = {
    "restart_instance": RestartInstance,
    "restart_job": RestartJob,
    "add_machines": AddMachines,
    "remove_machines": RemoveMachines,
}


def allocation_to_json(allocation: Allocation) -> dict[str, Any]:
    return {
        "job": allocation.job,
        "generation": allocation.generation,
        "parallelism": dict(allocation.parallelism),
        "weights": {name: list(weights) for name, weights in allocation.weights.items()},
        "placement": {name: list(machines) for name, machines in allocation.placement.items()},
        "batching_ms": {str(edge): wait for edge, wait in allocation.batching_ms.items()},
        # A thousand numbers per operator: only where they are set.
        **(
            {"groups": {n: list(g) for n, g in allocation.groups.items()}}
            if allocation.groups
            else {}
        ),
        **(
            {"avoided": {n: list(t) for n, t in allocation.avoided.items()}}
            if allocation.avoided
            else {}
        ),
    }


def edge_from_json(name: str) -> EdgeName:
    source, _, target = name.partition("->")
    return EdgeName(source, target)


def allocation_from_json(data: Mapping[str, Any]) -> Allocation:
    try:
        return Allocation(
            job=data["job"],
            generation=int(data["generation"]),
            parallelism={name: int(count) for name, count in data["parallelism"].items()},
            weights={name: tuple(map(float, w)) for name, w in data["weights"].items()},
            placement={name: tuple(machines) for name, machines in data["placement"].items()},
            batching_ms={
                edge_from_json(name): float(wait) for name, wait in data["batching_ms"].items()
            },
            groups={name: tuple(map(int, g)) for name, g in data.get("groups", {}).items()},
            avoided={name: tuple(map(int, t)) for name, t in data.get("avoided", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotUnderstood(f"This is not an allocation: {error}.") from error


def action_to_json(action: Action) -> dict[str, Any]:
    if isinstance(action, Reallocate):
        return {"do": "reallocate", "allocation": allocation_to_json(action.allocation)}
    name = next(name for name, kind in ONE_SHOT.items() if isinstance(action, kind))
    if isinstance(action, RestartJob):
        data: dict[str, Any] = {"do": name, "id": action.id, "job": action.job}
        if action.spec is not None:
            data["spec"] = job_to_json(action.spec)
        if action.allocation is not None:
            data["allocation"] = allocation_to_json(action.allocation)
        if action.checkpoint is not None:
            data["checkpoint"] = action.checkpoint
        return data
    return {"do": name, **asdict(action)}


def action_from_json(data: Mapping[str, Any]) -> Action:
    given = dict(data)
    name = given.pop("do", None)
    if name == "reallocate":
        return Reallocate(allocation_from_json(given.get("allocation", {})))
    if name not in ONE_SHOT:
        raise NotUnderstood(f"There is no action {name!r}.", f"There are: {', '.join(ONE_SHOT)}.")
    if name == "remove_machines":
        given["machines"] = tuple(given.get("machines", ()))
    if name == "restart_job" and "spec" in given:
        given["spec"] = job_from_json(given["spec"])
    if name == "restart_job" and "allocation" in given:
        given["allocation"] = allocation_from_json(given["allocation"])
    try:
        action: Action = ONE_SHOT[name](**given)
    except TypeError as error:
        raise NotUnderstood(f"This is not a {name}: {error}.") from error
    return action


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    try:
        return Outcome(**{**data, "status": Status(data["status"])})
    except (KeyError, TypeError, ValueError) as error:
        raise NotUnderstood(f"This is not an outcome: {error}.") from error


def accepted_to_json(accepted: Accepted) -> dict[str, Any]:
    return {
        "job": job_to_json(accepted.job),
        "allocation": allocation_to_json(accepted.allocation),
        **condition_to_json(accepted.condition),
        "checkpoint": accepted.checkpoint,
        "edge_topics": dict(accepted.edge_topics),
    }


def accepted_from_json(data: Mapping[str, Any], known: Job | None = None) -> Accepted:
    """An accepted job. A caller that has the job already passes it as `known`."""
    try:
        return Accepted(
            known or job_from_json(data["job"]),
            allocation_from_json(data["allocation"]),
            condition_from_json(data),
            str(data["checkpoint"]),
            dict(data.get("edge_topics", {})),  # hosts of 0.2 send none
        )
    except (KeyError, TypeError) as error:
        raise NotUnderstood(f"This is not an accepted job: {error}.") from error


def condition_to_json(condition: Condition) -> dict[str, Any]:
    return asdict(condition)


def condition_from_json(data: Mapping[str, Any]) -> Condition:
    try:
        # Hosts of 0.2 send the health and the reason only.
        cause, since_s, next_s = (data.get(key) for key in ("cause", "since_s", "next_try_s"))
        return Condition(
            Health(data["health"]),
            str(data["reason"]),
            None if cause is None else Cause(cause),
            None if since_s is None else float(since_s),
            None if next_s is None else float(next_s),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotUnderstood(f"This is not a condition: {error}.") from error


def capabilities_to_json(capabilities: Capabilities) -> dict[str, Any]:
    data = asdict(capabilities)
    # Only where operators follow their use.
    return data if data["tasks_held"] else {k: v for k, v in data.items() if k != "tasks_held"}


def capabilities_from_json(data: Mapping[str, Any]) -> Capabilities:
    try:
        return Capabilities(
            how={Ability(name): How(how) for name, how in data["how"].items()},
            slots=data["slots"],
            tasks=data["tasks"],
            fixed={job: tuple(operators) for job, operators in data["fixed"].items()},
            # Recordings and hosts of 0.1 do not have these.
            machine_slots=dict(data.get("machine_slots", {})),
            machine_tasks=dict(data.get("machine_tasks", {})),
            tasks_used=data.get("tasks_used"),
            tasks_spread=bool(data.get("tasks_spread", False)),
            tasks_held={job: dict(held) for job, held in data.get("tasks_held", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotUnderstood(f"These are not capabilities: {error}.") from error
