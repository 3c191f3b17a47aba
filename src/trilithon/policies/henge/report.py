"""Publishes what Henge knows as JSON data: its own status, and the crunch indicator as a report."""

from collections.abc import Mapping
from typing import Any

from trilithon.policies.henge.crunch import Crunch, Need, crunch
from trilithon.policies.henge.memory import Memory
from trilithon.policies.henge.parameters import HengeParameters
from trilithon.policies.policy import State
from trilithon.policies.scene import Scene


def crunch_report(
    scene: Scene, state: State | None, parameters: HengeParameters | None
) -> dict[str, Any] | None:
    """Whether the cluster is large enough for all intents, and who needs how much. It can be asked for
    under any policy: what Henge remembers only adds who is overly hungry.
    """
    found = crunch(scene, state or {}, parameters)
    return None if found is None else crunch_to_json(found)


def crunch_to_json(found: Crunch) -> dict[str, Any]:
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
        "jobs": [_need(need) for need in found.needs],
    }


def _need(need: Need) -> dict[str, Any]:
    return {
        "job": need.job,
        "has": need.has,
        "needs": None if need.instances is None else need.slots,
        "instances": None if need.instances is None else dict(need.instances),
        "possible": need.possible,
        "latency_ms": need.latency_ms,
    }


def status(scene: Scene, memory: Memory) -> Mapping[str, Any]:
    """Where the search is: its phase, the step whose effect it waits for, and who is skipped."""
    step = memory.step
    return {
        "phase": memory.phase.value,
        "step": None
        if step is None
        else {"kind": step.kind.value, "since_s": step.at_s, "jobs": sorted(step.jobs)},
        "blacklisted": {
            job: until_s
            for job, until_s in sorted(memory.blacklist.items())
            if until_s > scene.now_s
        },
        "waits_for_metrics": memory.held,
    }
