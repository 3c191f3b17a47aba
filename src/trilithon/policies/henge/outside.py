"""Owns what changes from outside: jobs that come and go, intents, loads, machines, and missing numbers.

SoCC'18, section 5.2: that there was a Reduction is forgotten when external factors change (jobs, input
rates). Section 5.3: past actions do not apply to another workload. Section 5.5: priorities may change.

Section 8.4.2: no action while numbers are missing, and then not before five minutes of new ones. Chosen:
this holds for each job by itself, so that one that flickers does not hold up the others; when half of the
jobs are missing, nothing is done at all. A gap shorter than a window of measuring needs no five minutes.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from trilithon.model.intent import Intent
from trilithon.model.mode import Mode
from trilithon.policies.henge import messages
from trilithon.policies.henge.memory import Counts, JobMemory, Memory, Phase
from trilithon.policies.henge.messages import DecisionLog
from trilithon.policies.henge.parameters import HengeParameters
from trilithon.policies.henge.view import View, unseen
from trilithon.policies.scene import Scene


@dataclass(slots=True)
class _Changes:
    said: list[str] = field(default_factory=list)
    whole: bool = False  # not of single jobs only: the blacklist goes, too
    rescaled_s: float | None = None
    load_only: bool = True

    def __bool__(self) -> bool:
        return bool(self.said)


def notice(
    scene: Scene, view: View, memory: Memory, parameters: HengeParameters, log: DecisionLog
) -> None:
    """Brings the memory up to what there is, and forgets what no longer applies."""
    first = memory.cluster is None
    found = _Changes()
    _cluster(scene, memory, found)
    _allocations(scene, memory, found)
    _intents(view, memory, found)
    _modes(scene, memory, found)
    _loads(scene, view, memory, parameters, found)
    _numbers(scene, view, memory, parameters)
    if first or not found:
        return
    if memory.step is not None:
        # Its effect can no longer be told apart, but it still has to come to rest.
        memory.hold_until_s = max(memory.hold_until_s, memory.step.at_s + parameters.settle_s)
    memory.forget()
    if found.whole:
        memory.blacklist.clear()
    if found.rescaled_s is not None:
        memory.hold_until_s = max(memory.hold_until_s, found.rescaled_s + parameters.settle_s)
    # Another load alone does not end Converged: only the drop that it may bring does (5.3).
    if not found.load_only:
        memory.phase = Phase.NOT_CONVERGED
        memory.baseline = None
        memory.missed_s.clear()
    memory.cause = log.add(
        None,
        messages.EXTERNAL,
        f"From outside: {messages.some(found.said)}. What was learned before no longer applies.",
        {"jobs": len(scene.statuses)},
        [memory.cause],
    )


def _cluster(scene: Scene, memory: Memory, found: _Changes) -> None:
    now: list[Any] = [scene.cluster.slots, sorted(scene.machine_names)]
    if memory.cluster not in (None, now):
        found.said.append("slots or machines are others")
        found.whole, found.load_only = True, False
    memory.cluster = now


def _allocations(scene: Scene, memory: Memory, found: _Changes) -> None:
    came = sorted(set(scene.statuses) - set(memory.jobs))
    gone = sorted(set(memory.jobs) - set(scene.statuses))
    for name in gone:
        memory.forget_job(name)
    _note_feedback(scene, memory)
    for name in sorted(scene.statuses):
        status = scene.statuses[name]
        counts = dict(sorted(status.allocation.parallelism.items()))
        if (known := memory.jobs.get(name)) is None:
            memory.jobs[name] = JobMemory(counts)
            continue
        if known.counts != counts:
            if _is_ours(scene, memory, name, counts):
                memory.changed(name, known.counts, counts)
            else:
                found.said.append(f"{name} was rescaled by others")
                found.load_only = False
                changed_s = scene.now_s if status.changed_s is None else status.changed_s
                found.rescaled_s = max(found.rescaled_s or 0.0, changed_s)
        known.counts = counts
    for names, what in ((came, "came"), (gone, "went")):
        if names:
            found.said.append(f"{messages.some(names)} {what}")
            found.whole, found.load_only = True, False


def _note_feedback(scene: Scene, memory: Memory) -> None:
    """Notes what became of the step's decisions: which jobs have their part, and which got less."""
    if (step := memory.step) is None:
        return
    applied, clipped = set(step.applied), set(step.clipped)
    for job, ids in step.decisions.items():
        known = [scene.feedback[id_] for id_ in ids if id_ in scene.feedback]
        if any(one.applied or one.pending for one in known):
            applied.add(job)
        elif known:
            applied.discard(job)
        if known and not known[-1].in_full:
            clipped.add(job)
        # Older ones are settled: what is noted above is all that is needed of them.
        step.decisions[job] = [one.decision for one in known]
    step.applied, step.clipped = sorted(applied), sorted(clipped)


def _is_ours(scene: Scene, memory: Memory, job: str, counts: Counts) -> bool:
    """Whether the present numbers of instances of a job are what the step's decisions brought about."""
    if memory.step is None:
        return False
    return any(
        granted.items() <= counts.items()
        for id_ in memory.step.decisions.get(job, ())
        if id_ in scene.feedback and (granted := scene.feedback[id_].parallelism(job))
    )


def _intents(view: View, memory: Memory, found: _Changes) -> None:
    for name, seen in view.jobs.items():
        known, digest = memory.jobs[name], _digest(seen.intent)
        if known.intent and known.intent != digest:
            found.said.append(f"{name} has another intent")
            found.load_only = False
            memory.blacklist.pop(name, None)
        known.intent = digest


def _modes(scene: Scene, memory: Memory, found: _Changes) -> None:
    """A job that may be changed from now on opens what was closed before."""
    opened = []
    for name, status in sorted(scene.statuses.items()):
        known = memory.jobs[name]
        if known.mode not in {"", str(Mode.AUTO)} and status.mode is Mode.AUTO:
            opened.append(name)
            memory.blacklist.pop(name, None)
        known.mode = str(status.mode)
    if opened:
        found.said.append(f"{messages.some(opened)} may be changed from now on")
        found.load_only = False


def _digest(intent: Intent) -> list[Any]:
    return [
        float(intent.priority),
        [f"{one} {one.utility.function} {sorted(one.utility.params.items())}" for one in intent.thresholds],
    ]  # fmt: skip


def _loads(
    scene: Scene, view: View, memory: Memory, parameters: HengeParameters, found: _Changes
) -> None:
    """A load that moved is told once; the new one is known when a whole window shows it."""
    for name, seen in view.jobs.items():
        known, now = memory.jobs[name], seen.load_per_s
        since_s = max(seen.status.accepted_s, known.load_s or -math.inf)
        if now is None or seen.blind or view.window.start_s < since_s:
            continue
        before = known.load_per_s
        if before is None:
            known.load_per_s = now
        elif _moved(before, now, view.window.span_s, parameters.load_change):
            found.said.append(f"the load of {name} went from {before:.4g} to {now:.4g}/s")
            known.load_per_s, known.load_s = None, scene.now_s
            memory.blacklist.pop(name, None)


def _moved(before: float, now: float, span_s: float, by: float) -> bool:
    """By more than a share, and by more than chance would move it: five standard deviations of a
    Poisson stream over the window.
    """
    larger = max(before, now)
    gap = abs(now - before)
    return gap > by * larger and gap * span_s > 5 * math.sqrt(larger * span_s)


def _numbers(scene: Scene, view: View, memory: Memory, parameters: HengeParameters) -> None:
    missing = unseen(scene)
    for name in sorted(memory.jobs):
        known = memory.jobs[name]
        if name in missing:
            # A job that never had numbers is new, not lost.
            if known.known and known.blind_s is None:
                known.blind_s = scene.now_s
            continue
        if known.blind_s is not None and scene.now_s - known.blind_s >= parameters.window_s:
            known.back_s = scene.now_s
        known.blind_s = None
        if known.back_s is not None and scene.now_s - known.back_s >= parameters.recover_s:
            known.back_s = None
        known.known = known.known or name in view.jobs


@dataclass(frozen=True, slots=True)
class Attention:
    """Which jobs count in this round, and which will later."""

    counted: frozenset[str]
    waited_for: frozenset[str]
    most_missing: bool


def sight(scene: Scene, view: View, memory: Memory, parameters: HengeParameters) -> Attention:
    """Jobs count once they are warm and their numbers are there, and have been for long enough."""
    counted, lost, warming = set(), set(), set()
    for name, seen in view.jobs.items():
        known = memory.jobs[name]
        if known.blind_s is not None or known.back_s is not None:
            lost.add(name)
        elif not known.known or scene.now_s - seen.status.accepted_s < parameters.warm_up_s:
            warming.add(name)
        elif seen.blind:
            lost.add(name)
        else:
            counted.add(name)
    waited_for = {name for name in lost | warming if view.jobs[name].status.mode is not Mode.OFF}
    return Attention(
        frozenset(counted), frozenset(waited_for), bool(lost) and 2 * len(lost) >= len(view.jobs)
    )
