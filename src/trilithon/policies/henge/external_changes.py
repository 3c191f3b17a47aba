"""Detects changes that Henge did not make: jobs, intents, loads, machines; and missing metrics.

SoCC'18, section 5.2: a new Reduction is possible after external factors (jobs, input rates)
changed. Section 5.3: past actions do not apply to another workload. Section 5.5: priorities may
change.

Section 8.4.2: no action while metrics are missing, nor before there are five minutes of new ones.
Chosen: this holds for each job by itself, so that a job with flickering metrics does not hold up
the others; when half of the jobs have no metrics, Henge takes no action at all. After a gap
shorter than the measuring window no five minutes are needed.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from trilithon.model.intent import Intent
from trilithon.model.mode import Mode
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.memory import Counts, JobMemory, Memory, Phase
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.view import ClusterView, jobs_without_metrics
from trilithon.policies.scene import Scene


@dataclass(slots=True)
class _ExternalChanges:
    """The changes of a round, described for people, and what they mean for the memory."""

    descriptions: list[str] = field(default_factory=list)
    clears_blacklist: bool = False  # not only single jobs changed
    rescaled_s: float | None = None
    load_only: bool = True

    def __bool__(self) -> bool:
        return bool(self.descriptions)


def detect_external_changes(
    scene: Scene, view: ClusterView, memory: Memory, parameters: HengeParameters, log: DecisionLog
) -> None:
    """Updates the memory to the scene, and clears what no longer applies."""
    first_round = memory.cluster is None
    changes = _ExternalChanges()
    _detect_cluster(scene, memory, changes)
    _detect_allocations(scene, memory, changes)
    _detect_intents(view, memory, changes)
    _detect_modes(scene, memory, changes)
    _detect_loads(scene, view, memory, parameters, changes)
    _update_metrics_gaps(scene, view, memory, parameters)
    if first_round or not changes:
        return
    if memory.step is not None:
        # The step's own effect can no longer be told apart, but utility still has to become steady.
        memory.hold_until_s = max(memory.hold_until_s, memory.step.at_s + parameters.settle_s)
    memory.forget_search()
    if changes.clears_blacklist:
        memory.blacklist.clear()
    if changes.rescaled_s is not None:
        memory.hold_until_s = max(memory.hold_until_s, changes.rescaled_s + parameters.settle_s)
    # A changed load alone does not end Converged: only the drop that it may bring does (5.3).
    if not changes.load_only:
        memory.phase = Phase.NOT_CONVERGED
        memory.baseline = None
        memory.missed_s.clear()
    memory.cause = log.add(
        None,
        messages.EXTERNAL,
        f"External change: {messages.name_list(changes.descriptions)}. Henge clears its history.",
        {"jobs": len(scene.statuses)},
        [memory.cause],
    )


def _detect_cluster(scene: Scene, memory: Memory, changes: _ExternalChanges) -> None:
    cluster: list[Any] = [scene.cluster.slots, sorted(scene.machine_names)]
    if memory.cluster not in (None, cluster):
        changes.descriptions.append("the cluster's slots or machines changed")
        changes.clears_blacklist, changes.load_only = True, False
    memory.cluster = cluster


def _detect_allocations(scene: Scene, memory: Memory, changes: _ExternalChanges) -> None:
    added = sorted(set(scene.statuses) - set(memory.jobs))
    removed = sorted(set(memory.jobs) - set(scene.statuses))
    for name in removed:
        memory.forget_job(name)
    _note_feedback(scene, memory)
    for name in sorted(scene.statuses):
        status = scene.statuses[name]
        counts = dict(sorted(status.allocation.parallelism.items()))
        if (job := memory.jobs.get(name)) is None:
            memory.jobs[name] = JobMemory(counts)
            continue
        if job.counts != counts:
            if _made_by_step(scene, memory, name, counts):
                memory.note_parallelism(name, job.counts, counts)
            else:
                changes.descriptions.append(f"{name} was rescaled by others")
                changes.load_only = False
                changed_s = scene.now_s if status.changed_s is None else status.changed_s
                changes.rescaled_s = max(changes.rescaled_s or 0.0, changed_s)
        job.counts = counts
    for names, verb in ((added, "added"), (removed, "removed")):
        if names:
            changes.descriptions.append(f"{messages.name_list(names)} {verb}")
            changes.clears_blacklist, changes.load_only = True, False


def _note_feedback(scene: Scene, memory: Memory) -> None:
    """Notes what became of the step's decisions: which jobs were changed, and which got less."""
    if (step := memory.step) is None:
        return
    applied, clipped = set(step.applied), set(step.clipped)
    for job, ids in step.decisions.items():
        feedbacks = [scene.feedback[id_] for id_ in ids if id_ in scene.feedback]
        if any(feedback.applied or feedback.pending for feedback in feedbacks):
            applied.add(job)
        elif feedbacks:
            applied.discard(job)
        if feedbacks and not feedbacks[-1].in_full:
            clipped.add(job)
        # The feedback of older decisions is final, and noted above: their ids can go.
        step.decisions[job] = [feedback.decision for feedback in feedbacks]
    step.applied, step.clipped = sorted(applied), sorted(clipped)


def _made_by_step(scene: Scene, memory: Memory, job: str, counts: Counts) -> bool:
    """Whether a job's parallelism is what the step's decisions were granted."""
    if memory.step is None:
        return False
    return any(
        granted.items() <= counts.items()
        for id_ in memory.step.decisions.get(job, ())
        if id_ in scene.feedback and (granted := scene.feedback[id_].parallelism(job))
    )


def _detect_intents(view: ClusterView, memory: Memory, changes: _ExternalChanges) -> None:
    for name, job in view.jobs.items():
        known, digest = memory.jobs[name], _digest(job.intent)
        if known.intent and known.intent != digest:
            changes.descriptions.append(f"the intent of {name} changed")
            changes.load_only = False
            memory.blacklist.pop(name, None)
        known.intent = digest


def _detect_modes(scene: Scene, memory: Memory, changes: _ExternalChanges) -> None:
    """A job that enters mode `auto` makes actions possible that were not before."""
    unlocked = []
    for name, status in sorted(scene.statuses.items()):
        job = memory.jobs[name]
        if job.mode not in {"", str(Mode.AUTO)} and status.mode is Mode.AUTO:
            unlocked.append(name)
            memory.blacklist.pop(name, None)
        job.mode = str(status.mode)
    if unlocked:
        changes.descriptions.append(f"{messages.name_list(unlocked)} entered mode auto")
        changes.load_only = False


def _digest(intent: Intent) -> list[Any]:
    thresholds = [
        f"{threshold} {threshold.utility.function} {sorted(threshold.utility.params.items())}"
        for threshold in intent.thresholds
    ]
    return [float(intent.priority), thresholds]


def _detect_loads(
    scene: Scene,
    view: ClusterView,
    memory: Memory,
    parameters: HengeParameters,
    changes: _ExternalChanges,
) -> None:
    """Reports a changed load once; the new load is known when a whole window shows it."""
    for name, job in view.jobs.items():
        known, load_per_s = memory.jobs[name], job.load_per_s
        since_s = max(job.status.accepted_s, known.load_s or -math.inf)
        if load_per_s is None or job.metrics_missing or view.window.start_s < since_s:
            continue
        before = known.load_per_s
        if before is None:
            known.load_per_s = load_per_s
        elif _load_changed(before, load_per_s, view.window.span_s, parameters.load_change):
            changes.descriptions.append(
                f"the load of {name} went from {before:.4g} to {load_per_s:.4g} records/s"
            )
            known.load_per_s, known.load_s = None, scene.now_s
            memory.blacklist.pop(name, None)


def _load_changed(before: float, after: float, span_s: float, share: float) -> bool:
    """Whether a load moved by more than a share, and by more than chance would move it: five
    standard deviations of a Poisson stream over the window.
    """
    larger = max(before, after)
    gap = abs(after - before)
    return gap > share * larger and gap * span_s > 5 * math.sqrt(larger * span_s)


def _update_metrics_gaps(
    scene: Scene, view: ClusterView, memory: Memory, parameters: HengeParameters
) -> None:
    missing = jobs_without_metrics(scene)
    for name in sorted(memory.jobs):
        job = memory.jobs[name]
        if name in missing:
            # A job that never had metrics is new; its metrics were not lost.
            if job.known and job.blind_s is None:
                job.blind_s = scene.now_s
            continue
        if job.blind_s is not None and scene.now_s - job.blind_s >= parameters.window_s:
            job.back_s = scene.now_s
        job.blind_s = None
        if job.back_s is not None and scene.now_s - job.back_s >= parameters.recover_s:
            job.back_s = None
        job.known = job.known or name in view.jobs


@dataclass(frozen=True, slots=True)
class JobSelection:
    """The jobs that count in this round, and those that Henge waits for before it converges."""

    counted: frozenset[str]
    awaited: frozenset[str]
    half_without_metrics: bool


def select_jobs(
    scene: Scene, view: ClusterView, memory: Memory, parameters: HengeParameters
) -> JobSelection:
    """A job counts once it is warm, and its metrics have been there for long enough."""
    counted, lost, warming = set(), set(), set()
    for name, job in view.jobs.items():
        known = memory.jobs[name]
        if known.blind_s is not None or known.back_s is not None:
            lost.add(name)
        elif not known.known or scene.now_s - job.status.accepted_s < parameters.warm_up_s:
            warming.add(name)
        elif job.metrics_missing:
            lost.add(name)
        else:
            counted.add(name)
    awaited = {name for name in lost | warming if view.jobs[name].status.mode is not Mode.OFF}
    return JobSelection(
        frozenset(counted), frozenset(awaited), bool(lost) and 2 * len(lost) >= len(view.jobs)
    )
