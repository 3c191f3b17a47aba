"""Owns what the controller knows as JSON: for the journal, for recordings and for whoever asks."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trilithon.contract import wire
from trilithon.model.action import Action, Reallocate
from trilithon.model.capability import Ability
from trilithon.policies.policy import Decision, Expectation
from trilithon.policies.scene import Cluster, JobStatus, Mode, Span


def text(data: Any) -> str:
    """JSON in one form only: the same data gives the same bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def in_order(data: Any) -> str:
    """JSON that keeps the order of names: in a job's file the order of columns and options counts."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def kind_of(action: Action) -> str:
    return str(wire.action_to_json(action)["do"])


def ability_of(action: Action) -> Ability:
    """What an engine must be able to do for an action; of wanted state its first part."""
    if isinstance(action, Reallocate):
        return Ability.PARALLELISM
    return Ability(kind_of(action))


def decision_to_json(decision: Decision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "job": decision.job,
        "actions": [wire.action_to_json(action) for action in decision.actions],
        "reason": decision.reason,
        "sentence": decision.sentence,
        "numbers": {name: _number(value) for name, value in decision.numbers.items()},
        "causes": list(decision.causes),
        "expects": None if decision.expects is None else asdict(decision.expects),
    }


def decision_from_json(data: Mapping[str, Any]) -> Decision:
    return Decision(
        id=data["id"],
        job=data["job"],
        actions=tuple(wire.action_from_json(action) for action in data["actions"]),
        reason=data["reason"],
        sentence=data["sentence"],
        numbers=dict(data["numbers"]),
        causes=tuple(data["causes"]),
        expects=None if data["expects"] is None else Expectation(**data["expects"]),
    )


def _number(value: float | None) -> float | None:
    """JSON knows neither NaN nor infinity: both are missing."""
    return value if value is not None and math.isfinite(value) else None


def status_to_json(status: JobStatus) -> dict[str, Any]:
    return {
        "job": status.job,
        "tenant": status.tenant,
        "allocation": wire.allocation_to_json(status.allocation),
        "accepted_s": status.accepted_s,
        "changed_s": status.changed_s,
        "mode": status.mode.value,
        "in_flight": status.in_flight,
        "held": status.hold_reason,
        "gap_s": {ability.value: gap_s for ability, gap_s in status.gap_s.items()},
        "fixed": sorted(status.fixed),
        "spans": {name: [span.min, span.max] for name, span in status.spans.items()},
    }


def status_from_json(data: Mapping[str, Any]) -> JobStatus:
    return JobStatus(
        **{
            **{key: value for key, value in data.items() if key != "held"},
            "hold_reason": data["held"],
            "allocation": wire.allocation_from_json(data["allocation"]),
            "mode": Mode(data["mode"]),
            "gap_s": {Ability(name): gap_s for name, gap_s in data["gap_s"].items()},
            "fixed": frozenset(data["fixed"]),
            "spans": {name: Span(*span) for name, span in data["spans"].items()},
        }
    )


def cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    return {
        "capabilities": wire.capabilities_to_json(cluster.capabilities),
        "slots": cluster.slots,
        "slots_used": cluster.slots_used,
        "quotas": dict(cluster.quotas),
        "machines": list(cluster.machines),
        "unseen": dict(cluster.unseen),
        "down_delay_s": cluster.down_delay_s,
    }


def cluster_from_json(data: Mapping[str, Any]) -> Cluster:
    return Cluster(
        wire.capabilities_from_json(data["capabilities"]),
        data["slots"],
        data["slots_used"],
        dict(data["quotas"]),
        tuple(data["machines"]),
        # Older recordings do not have these.
        dict(data.get("unseen", {})),
        data.get("down_delay_s", 0.0),
    )
