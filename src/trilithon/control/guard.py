"""Owns what stands between a policy and an engine: it clips what is asked, and tells what it granted.

No policy can get around it, and none has to do its work. What it grants holds at once, without waiting for
something else to be given back first: slots that one job gives back in this round are free in the next.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from trilithon.control.encoding import ability_of
from trilithon.control.rules import Rules
from trilithon.model.action import Action, AddMachines, Reallocate, RemoveMachines
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, How
from trilithon.model.job import Job
from trilithon.policies.policy import Decision
from trilithon.policies.scene import Cluster, JobStatus, Mode, Scene

CODES: Final[dict[str, str]] = {
    "MODE_OFF": "the job is in mode off",
    "ADVICE_ONLY": "the job is in mode advise",
    "NOT_RUNNING": "the job does not run, or is about to end",
    "IN_FLIGHT": "an action for the job is under way",
    "UNHEALTHY": "the job is not healthy",
    "METRICS_MISSING": "metrics of the job are missing or stale",
    "NOT_ENOUGH_FRESH_DATA": "there is not enough fresh data since a failure, a gap or a start",
    "QUIET_HOURS": "these are quiet hours",
    "COOL_DOWN": "the job was changed a short while ago",
    "REFUSED_LATELY": "the engine refused a change of the job a short while ago",
    "CANNOT": "the engine cannot do this",
    "FIXED": "the operator is excluded from changes",
    "MINIMUM": "below the least that the operator may have",
    "MAXIMUM": "above the most that the operator may have",
    "STEP": "more at once than a step may be",
    "SATURATED": "the operator is saturated, or nobody knows whether it is",
    "BACKLOG": "a backlog is being worked off",
    "DELAYED": "fewer must be wished for long enough, and the highest wish counts",
    "JOB_MAXIMUM": "above the most instances that the job may have",
    "QUOTA": "above the quota of the tenant",
    "SLOTS": "above the slots of the cluster",
    "SUPERSEDED": "an earlier decision of this round is about the same job",
}


@dataclass(frozen=True, slots=True)
class Clip:
    """One thing that was asked and not granted as it was."""

    code: str
    operator: str | None = None
    asked: int | None = None
    granted: int | None = None

    def __str__(self) -> str:
        what = (
            ""
            if self.operator is None
            else f"{self.operator}: asked {self.asked}, granted {self.granted}; "
        )
        return f"{what}{CODES[self.code]}"  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision, what was granted of it, and why not the rest."""

    decision: Decision
    granted: tuple[Action, ...]
    clips: tuple[Clip, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadSigns:
    """What the guard itself looks at, of one job: how busy its operators are (None where nobody knows)
    and for how many seconds of arrivals its backlog would last.
    """

    capacity: Mapping[str, float | None] = field(default_factory=dict)
    backlog_s: float | None = None


@dataclass
class _Turn:
    """One review: what it is about, the slots that can still be given out, and what was granted."""

    scene: Scene
    jobs: Mapping[str, Job]
    signs: Mapping[str, LoadSigns]
    slots: int | None
    quotas: dict[str, int]
    wished: set[tuple[str, str]] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)


class Guard:
    """Reviews the decisions of a round. It remembers wishes for fewer instances; after a restart of the
    daemon their delay begins anew.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        # Since when fewer are wished for, without a break: per job and operator (time, wish) pairs.
        self._wishes: dict[tuple[str, str], list[tuple[float, int]]] = {}

    def hold(self, status: JobStatus, now_s: float) -> str:
        """Why no change of a job would be granted now; empty if one might be."""
        if self.rules.quiet_at(now_s):
            return "QUIET_HOURS"
        changed_s = status.changed_s
        if changed_s is not None and now_s - changed_s < self.rules.limits.cool_down_s:
            return "COOL_DOWN"
        return ""

    def review(
        self,
        scene: Scene,
        decisions: Sequence[Decision],
        jobs: Mapping[str, Job],
        signs: Mapping[str, LoadSigns],
    ) -> tuple[Ruling, ...]:
        turn = _Turn(scene, jobs, signs, *self._room(scene))
        rulings = [self._one(turn, decision) for decision in decisions]
        # A wish for fewer that is not repeated is withdrawn.
        self._wishes = {key: found for key, found in self._wishes.items() if key in turn.wished}
        return tuple(rulings)

    def _room(self, scene: Scene) -> tuple[int | None, dict[str, int]]:
        """The free slots of the cluster, and of each tenant that has a quota."""
        used = dict(scene.cluster.unseen)
        for status in scene.statuses.values():
            used[status.tenant] = used.get(status.tenant, 0) + status.allocation.instances
        left = {tenant: quota - used.get(tenant, 0) for tenant, quota in self.rules.quotas.items()}
        return scene.cluster.slots_free, left

    def _one(self, turn: _Turn, decision: Decision) -> Ruling:
        granted: list[Action] = []
        clips: list[Clip] = []
        for action in decision.actions:
            found, why = self._action(turn, action)
            clips += why
            if found is not None:
                granted.append(found)
                if not isinstance(found, AddMachines | RemoveMachines):
                    turn.changed.add(found.job)
        return Ruling(decision, tuple(granted), tuple(clips))

    def _action(self, turn: _Turn, action: Action) -> tuple[Action | None, list[Clip]]:
        if not _can(turn.scene.cluster, action):
            return None, [Clip("CANNOT")]
        if isinstance(action, AddMachines | RemoveMachines):
            quiet = self.rules.quiet_at(turn.scene.now_s)
            return (None, [Clip("QUIET_HOURS")]) if quiet else (action, [])
        status = turn.scene.statuses.get(action.job)
        if status is None or action.job not in turn.jobs:
            return None, [Clip("NOT_RUNNING")]
        if action.job in turn.changed:
            return None, [Clip("SUPERSEDED")]
        if isinstance(action, Reallocate):
            allocation, clips = self._clip(turn, action.allocation, status)
            return None if allocation is None else Reallocate(allocation), clips
        refusal = _refusal(status)
        return (None, [Clip(refusal)]) if refusal else (action, [])

    def _clip(
        self, turn: _Turn, asked: Allocation, status: JobStatus
    ) -> tuple[Allocation | None, list[Clip]]:
        """What is granted of wanted state: the next generation, or None if nothing changes."""
        now = status.allocation
        wanted: dict[str, int] = {}
        clips: list[Clip] = []
        for name, current in now.parallelism.items():
            wish = asked.parallelism.get(name, current)
            wanted[name], codes = self._operator(turn, status, name, current, wish)
            clips += [Clip(code, name, wish, wanted[name]) for code in codes]
        if refusal := _refusal(status):
            # A wish for fewer is remembered all the same; nothing is done.
            return None, [Clip(refusal), *clips]
        clips += _clip_total(turn, status, wanted)
        granted = _merged(now, asked, wanted)
        if granted is None:
            return None, clips
        used = max(0, granted.instances - now.instances)
        if turn.slots is not None:
            turn.slots -= used
        if status.tenant in turn.quotas:
            turn.quotas[status.tenant] -= used
        return granted, clips

    def _operator(
        self, turn: _Turn, status: JobStatus, name: str, current: int, wish: int
    ) -> tuple[int, list[str]]:
        """How many instances of one operator are granted, and what stood in the way."""
        limits = self.rules.limits
        if wish == current:
            return current, []
        if name in status.fixed:
            return current, ["FIXED"]
        codes: list[str] = []
        span = status.spans[name]
        count = span.clip(wish)
        if count != wish:
            codes.append("MINIMUM" if count > wish else "MAXIMUM")
        if (count - current) * (wish - current) < 0:
            # Bounds that changed under a job must not turn a wish into its opposite.
            return current, codes
        if count > current:
            most = max(current + 1, math.floor(current * limits.up_factor))
            if count > most:
                codes.append("STEP")
            return min(count, most), codes
        if count == current:
            return current, codes
        least = min(current - 1, math.ceil(current * limits.down_factor))
        if count < least:
            codes.append("STEP")
            count = least
        signs = turn.signs.get(status.job, LoadSigns())
        busy = signs.capacity.get(name)
        if busy is None or busy >= limits.saturated:
            return current, [*codes, "SATURATED"]
        if signs.backlog_s is None or signs.backlog_s > limits.backlog_s:
            return current, [*codes, "BACKLOG"]
        key = (status.job, name)
        turn.wished.add(key)
        highest = self._highest_wish(key, turn.scene.now_s, count)
        if highest is None or highest >= current:
            return current, [*codes, "DELAYED"]
        return highest, codes if highest == count else [*codes, "DELAYED"]

    def _highest_wish(self, key: tuple[str, str], now_s: float, wish: int) -> int | None:
        """The highest wish within the delay; None while fewer are not wished for as long as that."""
        delay_s = self.rules.limits.down_delay_s
        past = [(at_s, one) for at_s, one in self._wishes.get(key, []) if at_s <= now_s]
        # One at or before the beginning of the delay is kept: it shows that the delay is covered.
        old = sum(at_s <= now_s - delay_s for at_s, _ in past)
        found = [*past[max(0, old - 1) :], (now_s, wish)]
        self._wishes[key] = found
        covered = found[0][0] <= now_s - delay_s
        return max(one for _, one in found) if covered else None


def _refusal(status: JobStatus) -> str:
    if status.mode is Mode.OFF:
        return "MODE_OFF"
    if status.in_flight:
        return "IN_FLIGHT"
    if status.hold_reason:
        return status.hold_reason
    return "ADVICE_ONLY" if status.mode is Mode.ADVISE else ""


def _can(cluster: Cluster, action: Action) -> bool:
    """Whether the engine can do it at all. Wanted state asks for several abilities."""
    of = cluster.capabilities.of
    if not isinstance(action, Reallocate):
        return of(ability_of(action)) is not How.NOT_AT_ALL
    wanted = action.allocation
    asked = [
        (Ability.WEIGHTS, wanted.weights),
        (Ability.PLACEMENT, wanted.placement),
        (Ability.BATCHING, wanted.batching_ms),
        (Ability.PARALLELISM, True),
    ]
    return all(of(ability) is not How.NOT_AT_ALL for ability, given in asked if given)


def _clip_total(turn: _Turn, status: JobStatus, wanted: dict[str, int]) -> list[Clip]:
    """Takes back raises that are too many for the job, its tenant or the cluster; the last first."""
    clips = []
    now, before = status.allocation, status.allocation.instances
    most = {"JOB_MAXIMUM": turn.jobs[status.job].bounds.max_instances}
    if turn.slots is not None:
        most["SLOTS"] = before + max(0, turn.slots)
    if status.tenant in turn.quotas:
        most["QUOTA"] = before + max(0, turn.quotas[status.tenant])
    for code, limit in most.items():
        # A job that is above a limit already may stay, and shrink.
        over = 0 if limit is None else sum(wanted.values()) - max(limit, before)
        for name in reversed(list(wanted)):
            back = min(over, wanted[name] - now.parallelism[name])
            if back > 0:
                clips.append(Clip(code, name, wanted[name], wanted[name] - back))
                wanted[name] -= back
                over -= back
    return clips


def _merged(now: Allocation, asked: Allocation, wanted: Mapping[str, int]) -> Allocation | None:
    """The next generation: the granted numbers, and of weights and placement what still fits them."""
    base = now.rescaled(wanted)
    fits = {name for name, count in wanted.items() if asked.parallelism.get(name) == count}
    merged = replace(
        base,
        weights={**base.weights, **{n: w for n, w in asked.weights.items() if n in fits}},
        placement={**base.placement, **{n: m for n, m in asked.placement.items() if n in fits}},
        batching_ms={**base.batching_ms, **asked.batching_ms},
    )
    same = replace(merged, generation=now.generation) == now
    return None if same else merged
