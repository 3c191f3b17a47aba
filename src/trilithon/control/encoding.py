"""Turns the controller's values into JSON and back, for the journal, recordings and the API."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from trilithon.contract import wire
from trilithon.contract.change_wire import proposal_from_json, proposal_to_json
from trilithon.model.action import Action
from trilithon.model.capability import Ability
from trilithon.model.mode import Mode
from trilithon.model.utility import Sense
from trilithon.policies.decision import Decision, Expectation
from trilithon.policies.feedback import Clip, Feedback
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Cluster, JobStatus, Span


def text(data: Any) -> str:
    """Canonical JSON: the same data gives the same bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def in_order(data: Any) -> str:
    """JSON that keeps the order of keys: in a job file the order of columns and options counts."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def kind_of(action: Action) -> str:
    return str(wire.action_to_json(action)["do"])


def decision_to_json(decision: Decision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "job": decision.job,
        "changes": [proposal_to_json(change) for change in decision.changes],
        "reason": decision.reason,
        "sentence": decision.sentence,
        "numbers": {name: _number(value) for name, value in decision.numbers.items()},
        "causes": list(decision.causes),
        "expects": None if decision.expects is None else asdict(decision.expects),
        "issuer": decision.issuer,
        # Left out where it is not so: rounds of earlier versions stay the same byte for byte.
        **({"on_demand": True} if decision.on_demand else {}),
    }


def decision_from_json(data: Mapping[str, Any]) -> Decision:
    return Decision(
        id=data["id"],
        job=data["job"],
        changes=tuple(proposal_from_json(change) for change in data["changes"]),
        reason=data["reason"],
        sentence=data["sentence"],
        numbers=dict(data["numbers"]),
        causes=tuple(data["causes"]),
        expects=None if data["expects"] is None else expectation_from_json(data["expects"]),
        issuer=data["issuer"],
        on_demand=data.get("on_demand", False),
    )


def expectation_from_json(data: Mapping[str, Any]) -> Expectation:
    sense = data.get("sense")
    if sense is None:  # in version 0.1 only latencies are better when lower
        sense = Sense.AT_MOST if data["metric"].startswith("latency") else Sense.AT_LEAST
    return Expectation(data["metric"], data["value"], data["by_s"], Sense(sense))


def feedback_to_json(feedback: Feedback) -> dict[str, Any]:
    return {
        **asdict(replace(feedback, granted=(), clips=(), outcomes=())),
        "granted": [proposal_to_json(change) for change in feedback.granted],
        "clips": [asdict(clip) for clip in feedback.clips],
        "outcomes": [wire.outcome_to_json(outcome) for outcome in feedback.outcomes],
    }


def feedback_from_json(data: Mapping[str, Any]) -> Feedback:
    return Feedback(
        **{
            **data,
            "granted": tuple(proposal_from_json(change) for change in data["granted"]),
            "clips": tuple(Clip(**clip) for clip in data["clips"]),
            "outcomes": tuple(wire.outcome_from_json(outcome) for outcome in data["outcomes"]),
        }
    )


def _number(value: float | None) -> float | None:
    """JSON has neither NaN nor infinity: both become null."""
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
        "hold_reason": status.hold_reason,
        "gap_s": {ability.value: gap_s for ability, gap_s in status.gap_s.items()},
        "fixed": sorted(status.fixed),
        "spans": {name: [span.min, span.max] for name, span in status.spans.items()},
    }


def status_from_json(data: Mapping[str, Any]) -> JobStatus:
    return JobStatus(
        **{
            **{key: value for key, value in data.items() if key != "held"},
            # Version 0.1 called it `held`.
            "hold_reason": data.get("hold_reason", data.get("held", "")),
            "allocation": wire.allocation_from_json(data["allocation"]),
            "mode": Mode(data["mode"]),
            "gap_s": {Ability(name): gap_s for name, gap_s in data["gap_s"].items()},
            "fixed": frozenset(data["fixed"]),
            "spans": {name: Span(*span) for name, span in data["spans"].items()},
        }
    )


def request_to_json(request: ScalingRequest) -> dict[str, Any]:
    return {**asdict(request), "kind": request.kind.value}


def request_from_json(data: Mapping[str, Any]) -> ScalingRequest:
    # Older recordings have no names of machines.
    names = tuple(data.get("machine_names", ()))
    return ScalingRequest(**{**data, "kind": ScalingKind(data["kind"]), "machine_names": names})


def cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    return {
        "capabilities": wire.capabilities_to_json(cluster.capabilities),
        "slots": cluster.slots,
        "slots_used": cluster.slots_used,
        "quotas": dict(cluster.quotas),
        "unseen": dict(cluster.unseen),
        "down_delay_s": cluster.down_delay_s,
        "mode": cluster.mode.value,
        "machines_changed_s": cluster.machines_changed_s,
    }


def cluster_from_json(data: Mapping[str, Any]) -> Cluster:
    return Cluster(
        wire.capabilities_from_json(data["capabilities"]),
        data["slots"],
        data["slots_used"],
        dict(data["quotas"]),
        # Older recordings do not have these.
        dict(data.get("unseen", {})),
        data.get("down_delay_s", 0.0),
        Mode(data.get("mode", "auto")),
        data.get("machines_changed_s"),
    )
