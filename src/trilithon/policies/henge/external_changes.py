"""Detects changes that Henge did not make: jobs, intents, loads, machines; and missing metrics.

SoCC'18, section 5.2: a new Reduction is possible after external factors (jobs, input rates)
changed. Section 5.3: past actions do not apply to another workload. Section 5.5: priorities may
change.

Nothing is compared across an external change. What was measured before it no longer counts, and
Henge takes no new action until a whole window lies after the change and utilities have settled.
A Reconfiguration that it interrupts is judged by its own job only. A Reduction or a Reversion that
it interrupts goes on for the jobs that did not change: half of one would leave a job where it was
worse.

Section 8.4.2: no action while metrics are missing, nor before there are five minutes of new ones.
Chosen: this holds for each job by itself, so that a job with flickering metrics does not hold up
the others; when half of the jobs have no metrics, Henge takes no action at all. After a gap
shorter than the measuring window no five minutes are needed.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trilithon.model.intent import Intent
from trilithon.model.mode import Mode
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import ALL, HengeParameters
from trilithon.policies.henge.memory import Counts, JobMemory, Memory, Phase, StepKind
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.view import ClusterView, jobs_without_metrics
from trilithon.policies.scene import Scene


@dataclass(slots=True)
class _ExternalChanges:
    """The changes of a round, described for people, and what they mean for the memory."""

    descriptions: list[str] = field(default_factory=list)
    # The jobs that changed themselves: their load, intent, mode or parallelism, or they are gone.
    jobs: set[str] = field(default_factory=set)
    # Whether jobs that nothing helped may gain now: resources became free, or it is as printed.
    clears_blacklist: bool = False
    # When the latest of them came, as far as that is known.
    changed_s: float | None = None
    # Whether the cluster stays Converged until utility drops.
    load_only: bool = True
    # Whether measurements change with it. Another intent or another mode moves no record.
    moves_records: bool = False

    def add(
        self,
        description: str,
        jobs: Iterable[str] = (),
        *,
        load_only: bool = False,
        clears_blacklist: bool = False,
        at_s: float,
        moves_records: bool = True,
    ) -> None:
        self.descriptions.append(description)
        self.moves_records = self.moves_records or moves_records
        self.jobs.update(jobs)
        self.load_only = self.load_only and load_only
        self.clears_blacklist = self.clears_blacklist or clears_blacklist
        self.changed_s = at_s if self.changed_s is None else max(self.changed_s, at_s)

    def __bool__(self) -> bool:
        return bool(self.descriptions)


def detect_external_changes(
    scene: Scene, view: ClusterView, memory: Memory, parameters: HengeParameters, log: DecisionLog
) -> None:
    """Updates the memory to the scene, and clears what no longer applies."""
    first_round = memory.cluster is None
    changes = _ExternalChanges()
    _detect_cluster(scene, memory, changes)
    _detect_allocations(scene, memory, parameters, changes)
    _detect_intents(scene, view, memory, changes)
    _detect_modes(scene, memory, changes)
    _detect_loads(scene, view, memory, parameters, changes)
    _detect_foreign_load(scene, view, memory, parameters, changes)
    _update_metrics_gaps(scene, view, memory, parameters)
    if first_round or not changes:
        return
    memory.forget_history()
    dropped = _interrupt_step(memory, changes.jobs)
    settles = changes.moves_records or dropped
    if settles:
        memory.begin_settling(min(changes.changed_s or scene.now_s, scene.now_s), scene.now_s)
    if changes.clears_blacklist:
        memory.blacklist.clear()
    # A changed load alone does not end Converged: only the drop that it may bring does (5.3).
    if not changes.load_only:
        memory.phase = Phase.NOT_CONVERGED
        memory.baseline = None
        memory.missed_s.clear()
    memory.cause = log.add(
        None,
        messages.EXTERNAL,
        f"External change: {messages.name_list(changes.descriptions)}. Henge clears its history"
        + (
            f" and waits until the effect has settled, for at least {parameters.window_s:g} s."
            if settles
            else "."
        ),
        {"jobs": len(scene.statuses)},
        [memory.cause],
    )


def _interrupt_step(memory: Memory, changed_jobs: set[str]) -> bool:
    """The step under way goes on without the jobs that changed; its effect on the cluster can no
    longer be told apart. Whether nothing of it is left.
    """
    if (step := memory.step) is None:
        return False
    step.interrupted = True
    if step.kind is StepKind.RECONFIGURATION:
        over = bool(changed_jobs.intersection(step.jobs))
    else:
        step.asked = {job: counts for job, counts in step.asked.items() if job not in changed_jobs}
        step.jobs = [job for job in step.jobs if job not in changed_jobs]
        over = not step.asked
    if over:
        memory.step = None
    return over


def _detect_cluster(scene: Scene, memory: Memory, changes: _ExternalChanges) -> None:
    cluster: list[Any] = [scene.cluster.slots, sorted(scene.machine_names)]
    if memory.cluster is not None and memory.cluster != cluster:
        gone = set(memory.cluster[1]) - set(cluster[1])
        changes.add(
            "the cluster's slots or machines changed",
            at_s=scene.now_s,
            clears_blacklist=True,
            moves_records=bool(gone),
        )
    memory.cluster = cluster


def _detect_allocations(
    scene: Scene, memory: Memory, parameters: HengeParameters, changes: _ExternalChanges
) -> None:
    known_jobs = bool(memory.jobs)
    added = sorted(set(scene.statuses) - set(memory.jobs))
    removed = sorted(set(memory.jobs) - set(scene.statuses))
    for name in removed:
        memory.forget_job(name)
    _note_feedback(scene, memory)
    for name in sorted(scene.statuses):
        status = scene.statuses[name]
        counts = dict(sorted(status.allocation.parallelism.items()))
        if (job := memory.jobs.get(name)) is None:
            memory.jobs[name] = JobMemory(counts, load_s=scene.now_s if known_jobs else None)
            continue
        if job.counts != counts:
            if _made_by_step(scene, memory, name, counts):
                memory.note_parallelism(name, job.counts, counts)
            else:
                changed_s = scene.now_s if status.changed_s is None else status.changed_s
                changes.add(f"{name} was rescaled by others", [name], at_s=changed_s)
        job.counts = counts
    if added:
        # The paper forgets all; more jobs do not make a job feasible that was not before.
        changes.add(
            f"{messages.name_list(added)} added",
            added,
            at_s=max(scene.statuses[name].accepted_s for name in added),
            clears_blacklist=parameters.forget == ALL,
        )
    if removed:
        changes.add(
            f"{messages.name_list(removed)} removed",
            removed,
            at_s=scene.now_s,
            clears_blacklist=True,
        )


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


def _detect_intents(
    scene: Scene, view: ClusterView, memory: Memory, changes: _ExternalChanges
) -> None:
    for name, job in view.jobs.items():
        known, digest = memory.jobs[name], _digest(job.intent)
        if known.intent and known.intent != digest:
            changes.add(
                f"the intent of {name} changed", [name], at_s=scene.now_s, moves_records=False
            )
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
        names = messages.name_list(unlocked)
        changes.add(f"{names} entered mode auto", unlocked, at_s=scene.now_s, moves_records=False)


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
            # After a change the new load is known when a whole window shows it.
            if scene.now_s - since_s >= parameters.window_s * (1 - 1e-9):
                known.load_per_s = load_per_s
        elif load_changed(before, load_per_s, view.window.span_s, parameters.load_change):
            changes.add(
                f"the load of {name} went from {before:.4g} to {load_per_s:.4g} records/s",
                [name],
                at_s=scene.now_s,
                load_only=True,
            )
            known.load_per_s, known.load_s = None, scene.now_s
            known.not_judged = 0
            memory.blacklist.pop(name, None)


def load_changed(before: float, after: float, span_s: float, share: float) -> bool:
    """Whether a load moved by more than a share, and by more than chance would move it: five
    standard deviations of a Poisson stream over the window.
    """
    larger = max(before, after)
    gap = abs(after - before)
    return gap > share * larger and gap * span_s > 5 * math.sqrt(larger * span_s)


def _detect_foreign_load(
    scene: Scene,
    view: ClusterView,
    memory: Memory,
    parameters: HengeParameters,
    changes: _ExternalChanges,
) -> None:
    """Other processes on the machines begin or end to compute. It is measured over windows in which
    no job changed, since instances that were replaced no longer tell how busy they were.
    """
    changed_s = (status.changed_s for status in scene.statuses.values())
    last_s = max((at_s for at_s in changed_s if at_s is not None), default=-math.inf)
    start_s = view.window.start_s
    if (
        start_s < max(last_s, memory.foreign_s or -math.inf)
        or (load := view.foreign_load()) is None
    ):
        return
    before = memory.foreign_load
    if before is None:
        if view.window.span_s >= parameters.window_s * (1 - 1e-9):
            memory.foreign_load = load
    # Where much else runs, load drifts: it must have changed by half as well.
    elif abs(load - before) > max(parameters.foreign_change, max(load, before) / 2):
        changes.add(
            f"the load of other processes went from {before:.1f} to {load:.1f} threads per core",
            at_s=scene.now_s,
            load_only=True,
            # With the cores that others leave, jobs may gain that did not before.
            clears_blacklist=load < before,
        )
        memory.foreign_load, memory.foreign_s = None, scene.now_s


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
