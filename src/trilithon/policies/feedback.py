"""Defines the feedback on a policy's decisions: what was granted, done and achieved."""

from dataclasses import dataclass
from typing import Final

from trilithon.model.action import Outcome, Status
from trilithon.model.change import ParallelismChange, Proposal

# Why the guard did not grant a change as the policy requested it.
CLIP_CODES: Final[dict[str, str]] = {
    "MODE_OFF": "the job, or the cluster, is in mode off",
    "ADVICE_ONLY": "the job, or the cluster, is in mode advise",
    "NOT_RUNNING": "the job is not running, or is being stopped",
    "IN_FLIGHT": "an action on the job is in flight",
    "UNHEALTHY": "the job is not healthy",
    "METRICS_MISSING": "metrics of the job are missing or stale",
    "NOT_ENOUGH_FRESH_DATA": "too little data since the last failure, gap or start",
    "QUIET_HOURS": "quiet hours are in effect",
    "COOL_DOWN": "the job, or the cluster's machines, changed within the cool-down",
    "REFUSED_LATELY": "the engine refused a change of the job recently",
    "CLAIMED": "another policy has claimed the job",
    "CANNOT": "the engine does not support this",
    "FIXED": "the operator's parallelism is fixed",
    "UNKNOWN_OPERATOR": "the job has no such operator",
    "UNKNOWN_INSTANCE": "the operator has no such instance",
    "UNKNOWN_TASK": "the operator has no such task",
    "UNKNOWN_EDGE": "the job has no such edge",
    "UNKNOWN_MACHINE": "the cluster has no such machine",
    "CANNOT_SPREAD": "each key needs one instance: the operator keeps state, or the job order",
    "NOT_KEYED": "the operator's input is not keyed",
    "SHAPE": "the change fits another parallelism than was granted",
    "INVALID": "the values are out of range",
    "MINIMUM": "below the minimum of the operator or the cluster",
    "MAXIMUM": "above the maximum of the operator or the cluster",
    "STEP": "above the factor by which one step may change an operator",
    "SATURATED": "the operator is saturated, or its capacity is unknown",
    "BACKLOG": "the job is draining a backlog",
    "DELAYED": "fewer instances must be requested throughout `down_delay_s`; the most counts",
    "JOB_MAXIMUM": "above the maximum number of instances of the job",
    "QUOTA": "above the tenant's quota",
    "SLOTS": "more slots than the cluster has, or would have after removing machines",
    "SUPERSEDED": "an earlier decision of this round changes the same job or machines",
}


@dataclass(frozen=True, slots=True)
class Clip:
    """A change that was not granted as requested; without an operator, the whole change."""

    code: str
    operator: str | None = None
    asked: int | None = None
    granted: int | None = None
    facet: str = "parallelism"
    # Where a decision changes other jobs than its own.
    job: str | None = None

    def __str__(self) -> str:
        subject = "" if self.facet == "parallelism" else f"{self.facet.replace('_', ' ')}: "
        if self.operator is not None and self.asked is not None:
            subject = f"{self.operator}: asked {self.asked}, granted {self.granted}; "
        elif self.operator is not None:
            subject = f"{subject}{self.operator}: "
        elif self.asked is not None:
            subject = f"{subject}asked {self.asked}, granted {self.granted}; "
        job = "" if self.job is None else f"{self.job}: "
        return f"{job}{subject}{CLIP_CODES[self.code]}"


@dataclass(frozen=True, slots=True)
class Feedback:
    """What became of one decision.

    `granted` is what the guard granted of it, `clips` why not the rest. `outcomes` is what the
    engine did, action by action; it is empty if the engine was not called. `met` is whether the
    expectation was met at its time, with the value `measured` then.
    """

    decision: str
    round: int
    time_s: float
    job: str | None
    granted: tuple[Proposal, ...] = ()
    clips: tuple[Clip, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    measured: float | None = None
    met: bool | None = None

    @property
    def applied(self) -> bool:
        """Whether the engine has applied at least a part of it."""
        return any(outcome.applied for outcome in self.outcomes)

    @property
    def pending(self) -> bool:
        """Whether the outcome of a part of it is still unknown."""
        return any(outcome.status is Status.UNKNOWN for outcome in self.outcomes)

    @property
    def in_full(self) -> bool:
        """Whether all of it was granted as requested, and applied."""
        needs_engine = any(proposal.facet is not None for proposal in self.granted)
        all_applied = all(outcome.applied for outcome in self.outcomes)
        return not self.clips and all_applied and (self.applied or not needs_engine)

    def parallelism(self, job: str) -> dict[str, int]:
        """The parallelism that was granted to a job, by operator."""
        return {
            operator: count
            for change in self.granted
            if isinstance(change, ParallelismChange) and change.job == job
            for operator, count in change.parallelism.items()
        }
