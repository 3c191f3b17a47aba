"""Guards the engine: reviews decisions facet by facet, and clips what is not allowed.

No policy can bypass it. What it grants can be done at once: slots that a job gives back in this
round are free in the next.

Each change passes two checks: the capability check (can the engine do this at all?) and the rules
(may it be done now, and how much of it?). A facet that is refused leaves the other facets of the
decision as they are. Alerts change nothing and pass, but for jobs in mode off.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trilithon.control.instance_limits import InstanceLimits, LoadSigns, LoweringWishes
from trilithon.control.rules import Rules
from trilithon.control.shape_check import ShapeCheck
from trilithon.model.capability import Capabilities, How
from trilithon.model.change import (
    Alert,
    AllocationChange,
    Change,
    InstanceRestart,
    JobRestart,
    MachinesAddition,
    MachinesChange,
    MachinesRemoval,
    ParallelismChange,
    Proposal,
    facet_name,
)
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import Clip
from trilithon.policies.scene import JobStatus, Scene

Claims = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision, what was granted of it, and why not the rest."""

    decision: Decision
    granted: tuple[Proposal, ...]
    clips: tuple[Clip, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether it needs an action of the engine."""
        return any(not isinstance(change, Alert) for change in self.granted)


@dataclass
class _Review:
    """The review of a round: its inputs, the slots that are still free, and what was granted so
    far.
    """

    scene: Scene
    jobs: Mapping[str, Job]
    signs: Mapping[str, LoadSigns]
    claims: Claims
    slots: int | None
    quotas: dict[str, int]
    changed_jobs: set[str] = field(default_factory=set)
    machines_changed: bool = False

    def take_slots(self, count: int) -> None:
        """These slots are not free any more in this round."""
        if self.slots is not None:
            self.slots -= count


class Guard:
    """Reviews the decisions of a round, and remembers wishes for fewer instances."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._wishes = LoweringWishes()

    def forget_wishes(self) -> None:
        """Wishes for fewer instances count from now on."""
        self._wishes = LoweringWishes()

    def hold(self, status: JobStatus, now_s: float) -> str:
        """The code of why no change of a job would be granted now; empty if it might be."""
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
        claims: Claims | None = None,
    ) -> tuple[Ruling, ...]:
        """Rules on each decision, in their order. `claims` has the policy that claimed a job."""
        review = _Review(scene, jobs, signs, claims or {}, *self._room(scene))
        self._wishes.begin_round()
        rulings = tuple(self._rule_whole(review, decision) for decision in decisions)
        self._wishes.end_round()
        return rulings

    def _room(self, scene: Scene) -> tuple[int | None, dict[str, int]]:
        """The free slots of the cluster, and of each tenant that has a quota."""
        used = dict(scene.cluster.unseen)
        for status in scene.statuses.values():
            used[status.tenant] = used.get(status.tenant, 0) + status.allocation.instances
        left = {tenant: quota - used.get(tenant, 0) for tenant, quota in self.rules.quotas.items()}
        return scene.cluster.slots_free, left

    def _rule_whole(self, review: _Review, decision: Decision) -> Ruling:
        """Rules on a decision; one that people asked for is granted whole or not at all."""
        if not decision.on_demand:
            return self._rule(review, decision)
        before = replace(review, quotas=dict(review.quotas), changed_jobs=set(review.changed_jobs))
        ruling = self._rule(review, decision)
        if not ruling.clips:
            return ruling
        for name in ("slots", "quotas", "changed_jobs", "machines_changed"):
            setattr(review, name, getattr(before, name))
        return Ruling(decision, (), ruling.clips)

    def _rule(self, review: _Review, decision: Decision) -> Ruling:
        possible, clips = check_capabilities(review.scene.cluster.capabilities, decision.changes)
        granted: list[Proposal] = []
        for job, wanted in _by_job(possible).items():
            allowed, why = self._allocation(review, decision, job, wanted)
            granted += allowed
            clips += _of_job(why, job, decision)
            # One action per job at a time.
            review.changed_jobs |= {job} if allowed else set()
        for change in possible:
            if isinstance(change, InstanceRestart | JobRestart):
                why = self._restart(review, decision, change)
            elif isinstance(change, MachinesAddition | MachinesRemoval):
                why = self._machines(review, change, on_demand=decision.on_demand)
            else:
                continue
            clips += why if change.job is None else _of_job(why, change.job, decision)
            if not why:
                granted.append(change)
                review.changed_jobs |= set() if change.job is None else {change.job}
        alerts, why = _alerts(review, decision)
        return Ruling(decision, (*granted, *alerts), (*clips, *why))

    # The wanted state of a job.

    def _allocation(
        self, review: _Review, decision: Decision, job: str, changes: Sequence[AllocationChange]
    ) -> tuple[list[AllocationChange], list[Clip]]:
        """What is granted of a decision's changes of a job's allocation."""
        status = review.scene.statuses.get(job)
        if code := _unavailable(review, decision, job):
            return [], [Clip(code, facet=facet_name(change)) for change in changes]
        assert status is not None  # noqa: S101 - a job that is available has one
        refusal = _refusal(status)
        granted: list[AllocationChange] = []
        clips: list[Clip] = []
        counts_wanted = _counts_wanted(changes)
        if counts_wanted is not None:
            wanted, clips = self._parallelism(
                review, status, counts_wanted, refusal, on_demand=decision.on_demand
            )
            granted += [] if wanted is None else [wanted]
        counts = status.allocation.changed(granted).parallelism
        shape = ShapeCheck(review.jobs[job], counts, status.fixed, review.scene.machine_names)
        for change in changes:
            if isinstance(change, ParallelismChange):
                continue
            if refusal:
                clips.append(Clip(refusal, facet=facet_name(change)))
                continue
            allowed, why = shape.check(change)
            clips += why
            if allowed is not None:
                granted.append(allowed)
        return _that_change(status, granted), clips

    def _parallelism(
        self,
        review: _Review,
        status: JobStatus,
        asked: Mapping[str, int],
        refusal: str,
        *,
        on_demand: bool,
    ) -> tuple[ParallelismChange | None, list[Clip]]:
        now = status.allocation.parallelism
        limits = InstanceLimits(
            self.rules.limits,
            self._wishes,
            status,
            review.signs.get(status.job, LoadSigns()),
            review.scene.now_s,
            in_steps=not on_demand,
        )
        clips = [
            Clip("UNKNOWN_OPERATOR", name, count, 0)
            for name, count in asked.items()
            if name not in now
        ]
        wanted: dict[str, int] = {}
        for name, current in now.items():
            wish = asked.get(name, current)
            wanted[name], codes = limits.grant(name, wish)
            clips += [Clip(code, name, wish, wanted[name]) for code in codes]
        if refusal:
            # A wish for fewer was remembered above; nothing else is done.
            return None, [Clip(refusal), *clips]
        clips += _clip_total(review, status, wanted)
        used = max(0, sum(wanted.values()) - status.allocation.instances)
        review.take_slots(used)
        if status.tenant in review.quotas:
            review.quotas[status.tenant] -= used
        moved = {name: count for name, count in wanted.items() if count != now[name]}
        return (ParallelismChange(status.job, moved) if moved else None), clips

    # Restarts.

    def _restart(
        self, review: _Review, decision: Decision, change: InstanceRestart | JobRestart
    ) -> list[Clip]:
        facet = facet_name(change)
        if why := _unavailable(review, decision, change.job):
            return [Clip(why, facet=facet)]
        status = review.scene.statuses[change.job]
        if refusal := _refusal(status):
            return [Clip(refusal, facet=facet)]
        if isinstance(change, InstanceRestart):
            count = status.allocation.parallelism.get(change.operator)
            if count is None:
                return [Clip("UNKNOWN_OPERATOR", change.operator, facet=facet)]
            if not 0 <= change.index < count:
                return [Clip("UNKNOWN_INSTANCE", change.operator, facet=facet)]
        return []

    # Machines.

    def _machines(
        self, review: _Review, change: MachinesChange, *, on_demand: bool = False
    ) -> list[Clip]:
        """Machines belong to no job: the mode, cool-down and bounds of the cluster apply. What
        people ask for needs no cool-down.
        """
        facet = facet_name(change)
        why = self._cluster_hold(review)
        if why and not (on_demand and why == "COOL_DOWN"):
            return [Clip(why, facet=facet)]
        names, limits = set(review.scene.machine_names), self.rules.limits
        if isinstance(change, MachinesAddition):
            if change.count < 1:
                return [Clip("INVALID", facet=facet)]
            if len(names) + change.count > limits.max_machines:
                return [Clip("MAXIMUM", asked=change.count, granted=0, facet=facet)]
        else:
            count = len(change.machines)
            if not count or len(set(change.machines)) < count:
                return [Clip("INVALID", facet=facet)]
            if set(change.machines) - names:
                return [Clip("UNKNOWN_MACHINE", facet=facet)]
            if len(names) - count < limits.min_machines:
                return [Clip("MINIMUM", asked=count, granted=0, facet=facet)]
            lost = _slots_of(review, change.machines)
            if review.slots is not None and lost > review.slots:
                return [Clip("SLOTS", asked=count, granted=0, facet=facet)]
            review.take_slots(lost)
        review.machines_changed = True
        return []

    def _cluster_hold(self, review: _Review) -> str:
        cluster, now_s = review.scene.cluster, review.scene.now_s
        if cluster.mode is not Mode.AUTO:
            return "MODE_OFF" if cluster.mode is Mode.OFF else "ADVICE_ONLY"
        if self.rules.quiet_at(now_s):
            return "QUIET_HOURS"
        if review.machines_changed:
            return "SUPERSEDED"
        changed_s = cluster.machines_changed_s
        if changed_s is not None and now_s - changed_s < self.rules.limits.machines_cool_down_s:
            return "COOL_DOWN"
        return ""


def check_capabilities(
    capabilities: Capabilities, proposals: Iterable[Proposal]
) -> tuple[list[Change], list[Clip]]:
    """The changes that the engine can do at all, and a clip for each that it cannot."""
    possible: list[Change] = []
    clips: list[Clip] = []
    for proposal in proposals:
        if isinstance(proposal, Alert):
            continue
        if capabilities.of(proposal.facet) is How.NOT_AT_ALL:
            clips.append(Clip("CANNOT", facet=facet_name(proposal)))
        else:
            possible.append(proposal)
    return possible, clips


def _by_job(changes: Iterable[Change]) -> dict[str, list[AllocationChange]]:
    by_job: dict[str, list[AllocationChange]] = {}
    for change in changes:
        if isinstance(change, AllocationChange):
            by_job.setdefault(change.job, []).append(change)
    return by_job


def _counts_wanted(changes: Iterable[AllocationChange]) -> dict[str, int] | None:
    """The instances that a decision wants of a job, of all its changes of parallelism together: the
    limits of the job and the cluster hold for their sum.
    """
    parallelism = [change for change in changes if isinstance(change, ParallelismChange)]
    if not parallelism:
        return None
    return {name: count for change in parallelism for name, count in change.parallelism.items()}


def _of_job(clips: Iterable[Clip], job: str, decision: Decision) -> list[Clip]:
    """Clips that name their job, where the decision is not about that job alone."""
    return [clip if job == decision.job else replace(clip, job=job) for clip in clips]


def _unavailable(review: _Review, decision: Decision, job: str) -> str:
    """The code of why this decision cannot change a job in this round; empty if it can."""
    if job not in review.scene.statuses or job not in review.jobs:
        return "NOT_RUNNING"
    if job in review.changed_jobs:
        return "SUPERSEDED"
    return "CLAIMED" if review.claims.get(job, decision.issuer) != decision.issuer else ""


def _refusal(status: JobStatus) -> str:
    if status.mode is Mode.OFF:
        return "MODE_OFF"
    if status.in_flight:
        return "IN_FLIGHT"
    if status.hold_reason:
        return status.hold_reason
    return "ADVICE_ONLY" if status.mode is Mode.ADVISE else ""


def _alerts(review: _Review, decision: Decision) -> tuple[list[Alert], list[Clip]]:
    granted: list[Alert] = []
    clips: list[Clip] = []
    for alert in decision.changes:
        if not isinstance(alert, Alert):
            continue
        status = None if alert.job is None else review.scene.statuses.get(alert.job)
        if status is not None and status.mode is Mode.OFF:
            clips.append(Clip("MODE_OFF", facet=facet_name(alert)))
        else:
            granted.append(alert)
    return granted, clips


def _that_change(status: JobStatus, granted: list[AllocationChange]) -> list[AllocationChange]:
    """The granted changes; none if the allocation would stay the same."""
    return [] if status.allocation.changed(granted) == status.allocation else granted


def _clip_total(review: _Review, status: JobStatus, wanted: dict[str, int]) -> list[Clip]:
    """Clips raises that exceed the limit of the job, its tenant or the cluster; the last first."""
    clips = []
    now, before = status.allocation, status.allocation.instances
    most = {"JOB_MAXIMUM": review.jobs[status.job].bounds.max_instances}
    if review.slots is not None:
        most["SLOTS"] = before + max(0, review.slots)
    if status.tenant in review.quotas:
        most["QUOTA"] = before + max(0, review.quotas[status.tenant])
    for code, limit in most.items():
        # A job that exceeds a limit already may stay there, and shrink.
        over = 0 if limit is None else sum(wanted.values()) - max(limit, before)
        for name in reversed(list(wanted)):
            back = min(over, wanted[name] - now.parallelism[name])
            if back > 0:
                clips.append(Clip(code, name, wanted[name], wanted[name] - back))
                wanted[name] -= back
                over -= back
    return clips


def _slots_of(review: _Review, machines: Sequence[str]) -> int:
    """The slots that the cluster loses with these machines. Where the slots of a machine are
    unknown, the engine itself must refuse.
    """
    brings = review.scene.cluster.capabilities.machine_slots
    if any(name not in brings for name in machines):
        return 0
    return sum(brings[name] for name in machines)
