"""Publishes Henge's status and its crunch report as JSON data, for the API and the command line."""

from collections.abc import Mapping
from typing import Any

from trilithon.policies.henge.crunch import Crunch, SlotNeed, compute_crunch, hungry_jobs
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.memory import Memory
from trilithon.policies.policy import State
from trilithon.policies.scene import Scene


def crunch_report(
    scene: Scene, state: State | None, parameters: HengeParameters | None
) -> dict[str, Any] | None:
    """Whether the cluster is large enough for all intents, and how many slots each job needs.

    The report works under any policy. Henge's memory only adds which jobs are overly hungry.
    """
    crunch = compute_crunch(scene, state or {}, parameters)
    return None if crunch is None else crunch_to_json(crunch)


def hungry_report(
    scene: Scene, state: State | None, parameters: HengeParameters | None
) -> dict[str, Any] | None:
    """The overly hungry jobs, the hungriest first. None if Henge does not decide: then nobody
    counts how often a job was scaled up in vain.
    """
    if state is None:
        return None
    jobs = hungry_jobs(scene, state, parameters)
    return None if jobs is None else {"jobs": list(jobs)}


def crunch_to_json(crunch: Crunch) -> dict[str, Any]:
    return {
        "feasible": crunch.feasible,
        "oversubscribed": crunch.oversubscribed,
        "congested": crunch.congested,
        "slots": crunch.slots,
        "slots_needed": crunch.slots_needed,
        "slots_missing": crunch.slots_missing,
        "cores": crunch.cores,
        "cores_needed": crunch.cores_needed,
        "missed": list(crunch.missed),
        "hungry": list(crunch.hungry),
        "impossible": list(crunch.impossible),
        "unknown": list(crunch.unknown),
        "jobs": [_need_to_json(need) for need in crunch.needs],
    }


def _need_to_json(need: SlotNeed) -> dict[str, Any]:
    return {
        "job": need.job,
        "has": need.current,
        "needs": None if need.instances is None else need.slots,
        "instances": None if need.instances is None else dict(need.instances),
        "possible": need.possible,
        "latency_ms": need.latency_ms,
    }


def status(scene: Scene, memory: Memory) -> Mapping[str, Any]:
    """The phase of the search, the step whose effect it waits for, and the blacklisted jobs."""
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
