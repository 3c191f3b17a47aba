"""Turns changes and alerts into JSON and back, for the journal, recordings and the API."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from trilithon.contract.wire import edge_from_json
from trilithon.errors import NotUnderstood
from trilithon.model.change import (
    ALERT,
    Alert,
    AvoidedTasksChange,
    BatchingChange,
    InstanceRestart,
    JobRestart,
    KeyGroupsChange,
    MachinesAddition,
    MachinesRemoval,
    ParallelismChange,
    PlacementChange,
    Proposal,
    Severity,
    WeightsChange,
    facet_name,
)

Data = Mapping[str, Any]


def proposal_to_json(proposal: Proposal) -> dict[str, Any]:
    """One form per facet; `change` names it."""
    return {"change": facet_name(proposal), **_body(proposal)}


def _body(proposal: Proposal) -> dict[str, Any]:
    match proposal:
        case ParallelismChange(job, counts):
            return {"job": job, "parallelism": dict(counts)}
        case WeightsChange(job, weights):
            return {"job": job, "weights": {name: list(w) for name, w in weights.items()}}
        case PlacementChange(job, placement):
            return {"job": job, "placement": {name: list(m) for name, m in placement.items()}}
        case KeyGroupsChange(job, groups):
            return {"job": job, "groups": {name: list(g) for name, g in groups.items()}}
        case AvoidedTasksChange(job, avoided):
            return {"job": job, "avoided": {name: list(t) for name, t in avoided.items()}}
        case BatchingChange(job, waits):
            return {"job": job, "batching_ms": {str(edge): ms for edge, ms in waits.items()}}
        case InstanceRestart(job, operator, index):
            return {"job": job, "operator": operator, "index": index}
        case JobRestart(job):
            return {"job": job}
        case MachinesAddition(count):
            return {"count": count}
        case MachinesRemoval(machines):
            return {"machines": list(machines)}
        case Alert(job, severity, code, sentence, advice, operator):
            return {
                "job": job,
                "severity": severity.value,
                "code": code,
                "sentence": sentence,
                "advice": advice,
                "operator": operator,
            }


_READERS: Final[dict[str, Callable[[Data], Proposal]]] = {
    "parallelism": lambda d: ParallelismChange(
        d["job"], {name: int(count) for name, count in d["parallelism"].items()}
    ),
    "weights": lambda d: WeightsChange(
        d["job"], {name: tuple(map(float, w)) for name, w in d["weights"].items()}
    ),
    "placement": lambda d: PlacementChange(
        d["job"], {name: tuple(machines) for name, machines in d["placement"].items()}
    ),
    "key_groups": lambda d: KeyGroupsChange(
        d["job"], {name: tuple(map(int, g)) for name, g in d["groups"].items()}
    ),
    "avoided_tasks": lambda d: AvoidedTasksChange(
        d["job"], {name: tuple(map(int, t)) for name, t in d["avoided"].items()}
    ),
    "batching": lambda d: BatchingChange(
        d["job"], {edge_from_json(name): float(ms) for name, ms in d["batching_ms"].items()}
    ),
    "restart_instance": lambda d: InstanceRestart(d["job"], d["operator"], int(d["index"])),
    "restart_job": lambda d: JobRestart(d["job"]),
    "add_machines": lambda d: MachinesAddition(int(d["count"])),
    "remove_machines": lambda d: MachinesRemoval(tuple(d["machines"])),
    ALERT: lambda d: Alert(
        d["job"], Severity(d["severity"]), d["code"], d["sentence"], d["advice"], d["operator"]
    ),
}


def proposal_from_json(data: Data) -> Proposal:
    if (read := _READERS.get(data.get("change", ""))) is None:
        raise NotUnderstood(
            f"There is no change {data.get('change')!r}.", f"There are: {', '.join(_READERS)}."
        )
    try:
        return read(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotUnderstood(f"This is not a change of {data['change']}: {error}.") from error
