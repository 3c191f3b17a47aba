"""Makes the plan for a request from a scene, by the strategy of the parameters.

The policy and the dry run of the command make their plans here, so that they are the same.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trilithon.measures.group import sum_by_job
from trilithon.model.capability import Ability, How
from trilithon.model.layout import Layout
from trilithon.model.snapshot import present
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Scene
from trilithon.policies.stela import alternatives
from trilithon.policies.stela.scale_in import (
    etp_sums,
    remove_at_random,
    remove_by_etp,
    remove_named,
)
from trilithon.policies.stela.scale_out import Division, by_etp, divide, in_turn
from trilithon.policies.stela.scaling_plan import ScalingPlan
from trilithon.policies.stela.scaling_view import ScalingView, can_add, new_machine_names
from trilithon.policies.stela.stela_parameters import (
    DEFAULT,
    ROUND_ROBIN,
    STELA,
    StelaParameters,
)

# Why a request cannot be carried out at all.
NO_NEW_MACHINES: Final = "NO_NEW_MACHINES"
NOT_ENOUGH_MACHINES: Final = "NOT_ENOUGH_MACHINES"
NO_SUCH_JOB: Final = "NO_SUCH_JOB"
UNKNOWN_MACHINE: Final = "UNKNOWN_MACHINE"
DOES_NOT_FIT: Final = "DOES_NOT_FIT"
# So that groups with neighbouring seeds differ.
_APART: Final = 1_000_003
# Why it has to wait.
NOT_MEASURED: Final = "NOT_MEASURED"
JOBS_HELD: Final = "JOBS_HELD"


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why there is no plan now: a code and a sentence. One that does not pass ends the request."""

    code: str
    sentence: str
    passes: bool


def jobs_of(scene: Scene, request: ScalingRequest) -> tuple[str, ...]:
    """The jobs that a request may change."""
    if request.kind is ScalingKind.OUT and request.job is not None:
        return (request.job,) if request.job in scene.statuses else ()
    return tuple(scene.statuses)


def hindrance(
    scene: Scene,
    request: ScalingRequest,
    parameters: StelaParameters,
    newer: tuple[str, ...] = (),
) -> Hindrance | None:
    """Why the request cannot be planned now; None if it can. `newer` are the machines that have
    come since the last action.
    """
    jobs = jobs_of(scene, request)
    if not jobs:
        what = f"No job {request.job!r} runs." if request.job else "No job runs."
        return Hindrance(NO_SUCH_JOB, what, passes=False)
    if (reason := _removal_hindrance(scene, request)) is not None:
        return reason
    new = len(new_machine_names(scene, newer))
    if request.kind is ScalingKind.OUT and new < request.machines and not can_add(scene):
        return Hindrance(
            NO_NEW_MACHINES,
            f"{request.machines} new machines are needed, {new} have come since the last action or "
            "run no instance, and this engine cannot start machines: start them, then repeat the "
            "command.",
            passes=False,
        )
    if held := [name for name in jobs if not scene.statuses[name].open]:
        status = scene.statuses[held[0]]
        why = status.hold_reason or ("IN_FLIGHT" if status.in_flight else f"mode {status.mode}")
        return Hindrance(JOBS_HELD, f"{held[0]} may not be changed now: {why}.", passes=True)
    window = scene.series.window(parameters.window_s)
    since_s = max((scene.statuses[name].changed_s or 0.0 for name in jobs), default=0.0)
    if window is None or scene.now_s - max(since_s, window.start_s) < parameters.window_s * 0.99:
        sentence = f"{parameters.window_s:g} s of measurements since the last change are needed."
        return Hindrance(NOT_MEASURED, sentence, passes=True)
    unmeasured = _unmeasured(window.layout, window, jobs)
    if unmeasured:
        sentence = f"Not measured completely: {', '.join(unmeasured)}."
        return Hindrance(NOT_MEASURED, sentence, passes=True)
    return None


def _removal_hindrance(scene: Scene, request: ScalingRequest) -> Hindrance | None:
    """Why so many machines, or those that are named, cannot go."""
    if request.kind is not ScalingKind.IN:
        return None
    if unknown := unknown_machines(scene, request.machine_names):
        return Hindrance(UNKNOWN_MACHINE, unknown, passes=False)
    if request.machines >= len(scene.machine_names):
        sentence = f"The cluster has {len(scene.machine_names)} machines; one must stay."
        return Hindrance(NOT_ENOUGH_MACHINES, sentence, passes=False)
    tasks = scene.cluster.capabilities.machine_tasks
    fewest = sorted(tasks, key=lambda name: (tasks[name], name))[: request.machines]
    return tasks_hindrance(scene, request.machine_names or fewest)


def unknown_machines(scene: Scene, names: Sequence[str]) -> str:
    """Which of these are no machines of the cluster, as a sentence; empty if all are."""
    there = scene.machine_names
    unknown = [repr(name) for name in names if name not in there]
    if not unknown:
        return ""
    known = ", ".join(sorted(there)) or "no machine"
    return f"The cluster has no machine {', '.join(unknown)}. It has: {known}."


def tasks_hindrance(scene: Scene, removed: Sequence[str]) -> Hindrance | None:
    """Why these machines cannot go: the others would have too few tasks for the jobs. The engine
    refuses it, too, but only after instances have moved.
    """
    capabilities = scene.cluster.capabilities
    tasks, used = capabilities.machine_tasks, capabilities.tasks_used
    if used is None or not removed or any(name not in tasks for name in scene.machine_names):
        return None
    left = sum(count for name, count in tasks.items() if name not in removed)
    if used <= left:
        return None
    sentence = (
        f"Without {', '.join(removed)} the machines run {left} tasks; jobs hold {used}, used or "
        "idle. End a job, lower `parallelism.max` of one, or remove fewer machines."
    )
    return Hindrance(DOES_NOT_FIT, sentence, passes=False)


def _unmeasured(layout: Layout, window: Any, jobs: tuple[str, ...]) -> list[str]:
    taken = sum_by_job(layout, window.instances.taken)
    return [
        name
        for name in jobs
        if name not in layout.job_row or present(taken[layout.job_row[name]]) is None
    ]


def view_of(
    scene: Scene,
    request: ScalingRequest,
    parameters: StelaParameters,
    newer: tuple[str, ...] = (),
) -> ScalingView:
    window = scene.series.window(parameters.window_s)
    assert window is not None  # noqa: S101 - `hindrance` has looked
    jobs = tuple(name for name in jobs_of(scene, request) if name in window.layout.job_row)
    return ScalingView(scene, window, parameters, jobs, newer)


def new_machines(
    scene: Scene, request: ScalingRequest, newer: tuple[str, ...] = ()
) -> tuple[list[str], int]:
    """The machines for a scale-out, and how many of them are not there yet (they have no name)."""
    there = new_machine_names(scene, newer)[: request.machines]
    missing = request.machines - len(there)
    return [*there, *(f"new machine {i + 1}" for i in range(missing))], missing


def make_plan(view: ScalingView, request: ScalingRequest, seed: int) -> ScalingPlan:
    strategy = view.parameters.strategy
    if request.kind is ScalingKind.IN:
        if request.machine_names:
            return remove_named(view, request.machine_names)
        if strategy == STELA:
            return remove_by_etp(view, request.machines)
        return remove_at_random(view, request.machines, seed + _APART * view.parameters.group)
    machines, missing = new_machines(view.scene, request, view.newer)
    if strategy in {STELA, ROUND_ROBIN}:
        return divide(view, machines, by_etp if strategy == STELA else in_turn, missing)
    if strategy == DEFAULT:
        return alternatives.all_anew(view, [*view.old_machines, *machines])
    return alternatives.migrate(view, machines, strategy)


def preview(
    scene: Scene,
    request: ScalingRequest,
    parameters: StelaParameters,
    seed: int = 0,
    newer: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The ranking, the projected throughput and the plan of a request, as JSON; nothing is done."""
    if (reason := hindrance(scene, request, parameters, newer)) is not None:
        return {"hindrance": {"code": reason.code, "sentence": reason.sentence}}
    view = view_of(scene, request, parameters, newer)
    plan = make_plan(view, request, seed)
    if (reason := tasks_hindrance(scene, plan.removed)) is not None:
        return {"hindrance": {"code": reason.code, "sentence": reason.sentence}}
    return {
        "hindrance": None,
        "strategy": parameters.strategy,
        "machines_to_add": new_machines(scene, request, newer)[1]
        if request.kind is ScalingKind.OUT
        else 0,
        "machines_to_remove": list(plan.removed),
        "ranking": _machine_ranking(view) if request.kind is ScalingKind.IN else _ranking(view),
        "steps": [step.to_json() for step in plan.steps],
        "throughput_per_s": plan.throughput,
        "projected_throughput_per_s": plan.projected,
        "projected_before_exchange_per_s": plan.before_exchange,
        "parallelism": {
            job: {name: [view.counts(job)[name], count] for name, count in sorted(counts.items())}
            for job, counts in sorted(plan.counts.items())
        },
        "placement": {job: dict(sorted(by.items())) for job, by in sorted(plan.places.items())},
        "moves": _moves(view, plan),
        "notes": [*plan.notes, *_engine_notes(view, request, plan)],
    }


def _ranking(view: ScalingView) -> list[dict[str, Any]]:
    """All operators that may get instances, the first to get one first."""
    layout, now = view.layout, Division(view, 0).ranking()
    nodes = [n for n in layout.operator_nodes if layout.jobs[layout.node_job[n]] in view.jobs]
    ordered = sorted(nodes, key=lambda n: (not now.congested[n], -now.rank[n], n))
    return [
        {
            "job": layout.jobs[layout.node_job[node]],
            "operator": layout.node_names[node],
            "congested": bool(now.congested[node]),
            "etp": present(now.etp[node]),
            "input_per_s": present(now.input[node]),
            "could_take_per_s": present(now.could_take[node]),
            "instances": int(layout.parallelism[node]),
            "most": int(view.most[node]),
            "share_of_own_maximum": present(now.share[layout.node_job[node]]),
        }
        for node in ordered
    ]


def _machine_ranking(view: ScalingView) -> list[dict[str, Any]]:
    sums = etp_sums(view, {name: list(keys) for name, keys in view.placement.items()})
    return [
        {"machine": name, "etp_sum": sums[name], "instances": len(view.placement[name])}
        for name in sorted(sums, key=lambda name: (sums[name], name))
    ]


def _moves(view: ScalingView, plan: ScalingPlan) -> list[dict[str, Any]]:
    """How many instances of which operator go from which machine to which other one."""
    moves = Counter(
        (job, name, before, then)
        for job, by_operator in plan.places.items()
        for name, machines in by_operator.items()
        # Those that are new come from nowhere.
        for before, then in zip(view.machines_of(job, name), machines, strict=False)
        if before is not None and then is not None and before != then
    )
    return [
        {"job": job, "operator": name, "instances": count, "from": before, "to": then}
        for (job, name, before, then), count in sorted(moves.items())
    ]


def _engine_notes(view: ScalingView, request: ScalingRequest, plan: ScalingPlan) -> list[str]:
    """What this engine does not let us do as planned."""
    of, notes = view.scene.cluster.capabilities.of, []
    if plan.places and of(Ability.PLACEMENT) is How.NOT_AT_ALL:
        notes.append("This engine places instances itself: they may not run where the plan says.")
    if request.kind is ScalingKind.IN and of(Ability.REMOVE_MACHINES) is How.NOT_AT_ALL:
        notes.append(
            "This engine cannot remove machines: their instances move away, then stop them."
        )
    if view.scene.cluster.capabilities.tasks_spread:
        notes += _spread_notes(view, request, plan)
    return notes


def _spread_notes(view: ScalingView, request: ScalingRequest, plan: ScalingPlan) -> list[str]:
    """Where tasks are spread over all machines when a batch begins, a machine may have fewer of an
    operator than a plan places there.
    """
    scene, scales_out = view.scene, request.kind is ScalingKind.OUT
    new, missing = new_machines(scene, request, view.newer) if scales_out else ([], 0)
    count = len(scene.machine_names) + missing - len(plan.removed)
    # A machine that goes runs idle tasks of every job, so the engine ends the batches of all.
    ending = sorted(plan.places if scales_out else scene.statuses)
    said = [f"The batch of {', '.join(ending)} ends once: tasks are placed then."] if ending else []
    for job, by_operator in sorted(plan.places.items()):
        for name, machines in sorted(by_operator.items()):
            if (span := scene.statuses[job].spans.get(name)) is None:
                continue
            share = math.ceil(span.max / count)
            wanted = Counter(place for place in machines if place in new or not new)
            said += [
                f"Of the {span.max} tasks of {job} {name}, {machine} gets about {share}: "
                f"{instances - share} of the {instances} instances there may run elsewhere."
                for machine, instances in sorted(wanted.items(), key=str)
                if machine is not None and instances > share
            ]
    return said
