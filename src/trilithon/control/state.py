"""Holds the state of each job in memory, as read from the journal at the start."""

from dataclasses import dataclass, field
from functools import cached_property

from trilithon.contract.condition import Condition, Health
from trilithon.control import policy_moments
from trilithon.control.journal import Journal
from trilithon.control.journal.rows import DesiredState, SpecRow, SpecStatus
from trilithon.control.spec_changes import running_form
from trilithon.model.allocation import Allocation, initial
from trilithon.model.capability import Ability
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.policies.policy import State
from trilithon.policies.requests import ScalingRequest
from trilithon.policies.scene import Span
from trilithon.recording.snapshots import job_from_json


@dataclass(frozen=True)
class Version:
    """One generation of a job's spec."""

    generation: int
    job: Job
    checkpoint: str
    accepted_s: float
    status: SpecStatus

    @cached_property
    def form(self) -> Job:
        return running_form(self.job)

    @cached_property
    def spans(self) -> dict[str, Span]:
        return {o.name: Span(o.parallelism.min, o.parallelism.max) for o in self.job.operators}

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Operators that the owner excluded from changes; an engine may report others."""
        return frozenset(self.job.bounds.fixed)

    @classmethod
    def of(cls, row: SpecRow) -> "Version":
        job = job_from_json(row.body)
        return cls(row.generation, job, row.checkpoint, row.accepted_s, row.status)


@dataclass
class JobRecord:
    """A job that was accepted.

    `wanted` is the desired allocation, `accepted` the one that the engine is known to have. They
    differ while an action is under way, or after an action whose outcome is unknown.
    """

    version: Version
    last_spec: int
    desired: DesiredState
    mode: Mode
    accepted_s: float
    wanted: Allocation
    last_generation: int
    accepted: Allocation | None = None
    changed_s: float | None = None
    gap_s: dict[Ability, tuple[float, int]] = field(default_factory=dict)
    # When the owner last asked to start the job again after it failed.
    resumed_s: float | None = None
    # Not in the journal: lost when the daemon ends.
    running: bool = False
    # None if the engine does not have the job.
    condition: Condition | None = None
    # When the failure began from which the job has not recovered yet.
    trouble_since_s: float | None = None
    started_s: float | None = None
    healthy_since_s: float | None = None
    fresh_since_s: float | None = None
    problem: str = ""
    tries: int = 0
    try_at_s: float = 0.0
    refusals: int = 0
    refused_until_s: float = 0.0

    @property
    def job(self) -> Job:
        return self.version.job

    @property
    def health(self) -> str:
        """In a word; empty if the engine does not have the job."""
        return "" if self.condition is None else self.condition.health.value

    @property
    def failed(self) -> bool:
        """Whether the job has failed, and its owner has not asked to start it again since."""
        condition = self.condition
        if condition is None or condition.health is not Health.FAILED:
            return False
        return self.resumed_s is None or self.resumed_s <= (condition.since_s or 0.0)

    @property
    def in_flight(self) -> bool:
        return self.accepted is None or self.accepted.generation != self.wanted.generation

    def shift_times(self, by_s: float) -> None:
        """The clock was set: times that waits are counted from go with it."""
        self.accepted_s += by_s
        for name in ("changed_s", "resumed_s", "trouble_since_s", "started_s", "healthy_since_s"):
            if (at_s := getattr(self, name)) is not None:
                setattr(self, name, at_s + by_s)
        self.try_at_s += by_s if self.try_at_s else 0.0
        self.refused_until_s += by_s if self.refused_until_s else 0.0

    def refused(self, now_s: float, wait_s: float) -> None:
        """The engine refused a change: no other is granted before a back-off that doubles each
        time.
        """
        self.refusals += 1
        self.refused_until_s = now_s + min(300.0, wait_s * 2 ** (self.refusals - 1))

    def next_generation(self) -> int:
        self.last_generation += 1
        return self.last_generation


@dataclass
class ControllerState:
    """All jobs by name, the last round, the state of the policy, and the status of the machines."""

    jobs: dict[str, JobRecord] = field(default_factory=dict)
    round: int = 0
    policy: str = ""
    policy_state: State = field(default_factory=dict)
    # How far the controller may go with machines, and when they were last changed.
    mode: Mode = Mode.AUTO
    machines_changed_s: float | None = None
    # What people ask of the cluster and no policy has ended, the oldest first.
    requests: list[ScalingRequest] = field(default_factory=list)

    def pull_back_times(self, now_s: float) -> None:
        """Pulls times that lie in the future back to now. If the clock was set back while no daemon
        ran, a cool-down would otherwise last for as long as the clock jumped.
        """
        if self.machines_changed_s is not None:
            self.machines_changed_s = min(self.machines_changed_s, now_s)
        for record in self.jobs.values():
            record.accepted_s = min(record.accepted_s, now_s)
            for name in ("changed_s", "resumed_s", "started_s", "healthy_since_s"):
                at_s = getattr(record, name)
                if at_s is not None and at_s > now_s:
                    setattr(record, name, now_s)

    def shift_times(self, by_s: float, before_s: float) -> None:
        """The clock was set: times that waits are counted from go with it, those that the policy
        remembers as well. `before_s` is the time by the clock before it was set.
        """
        if self.machines_changed_s is not None:
            self.machines_changed_s += by_s
        for record in self.jobs.values():
            record.shift_times(by_s)
        self.policy_state = policy_moments.shifted(self.policy_state, by_s, before_s)


def load(journal: Journal, now_s: float) -> ControllerState:
    """Reads the state from the journal."""
    state = ControllerState()
    if (last := journal.last_round()) is not None:
        state.round, state.policy, state.policy_state = last.number, last.policy, last.state
        if last.time_s > now_s:
            # The clock was set back while no daemon ran, by at least that much.
            state.policy_state = policy_moments.shifted(
                state.policy_state, now_s - last.time_s, last.time_s
            )
    state.machines_changed_s = journal.machines_changed_s()
    state.requests = list(journal.open_requests())
    costs = journal.costs()
    for row in journal.present_jobs():
        record = _record_of(journal, row.id)
        record.desired, record.mode = DesiredState(row.wish), Mode(row.mode)
        record.accepted_s, record.changed_s = row.accepted_s, row.changed_s
        record.gap_s, record.resumed_s = costs.get(row.id, {}), row.resumed_s
        state.jobs[row.id] = record
    return state


def _record_of(journal: Journal, job: str) -> JobRecord:
    version = Version.of(journal.current_spec(job))
    wanted = journal.last_allocation(job, version.generation) or _before(journal, version.job)
    last_spec, last_generation = journal.last_generations(job)
    return JobRecord(
        version=version,
        last_spec=last_spec,
        desired=DesiredState.RUN,
        mode=Mode.AUTO,
        accepted_s=version.accepted_s,
        wanted=wanted,
        last_generation=last_generation,
        # Assumes that the engine still has it; the next round compares.
        accepted=wanted if journal.was_accepted(wanted) else None,
    )


def _before(journal: Journal, job: Job) -> Allocation:
    """The allocation of a version whose own was refused: the last one that was not, if it fits."""
    before = journal.last_allocation(job.id)
    if before is not None and set(before.parallelism) == {o.name for o in job.operators}:
        return before
    return initial(job)
