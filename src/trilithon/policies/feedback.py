"""Defines what a policy learns of its earlier decisions: what was granted, what came of it, what it brought."""

from dataclasses import dataclass
from typing import Final

from trilithon.model.action import Outcome, Status
from trilithon.model.change import ParallelismChange, Proposal

# Why something that a policy asked for was not granted as it was asked.
CLIP_CODES: Final[dict[str, str]] = {
    "MODE_OFF": "the job, or the cluster, is in mode off",
    "ADVICE_ONLY": "the job, or the cluster, is in mode advise",
    "NOT_RUNNING": "the job does not run, or is about to end",
    "IN_FLIGHT": "an action for the job is under way",
    "UNHEALTHY": "the job is not healthy",
    "METRICS_MISSING": "metrics of the job are missing or stale",
    "NOT_ENOUGH_FRESH_DATA": "there is not enough fresh data since a failure, a gap or a start",
    "QUIET_HOURS": "these are quiet hours",
    "COOL_DOWN": "the job, or the cluster's machines, were changed a short while ago",
    "REFUSED_LATELY": "the engine refused a change of the job a short while ago",
    "CLAIMED": "another policy has claimed the job for a while",
    "CANNOT": "the engine cannot do this",
    "FIXED": "the operator is excluded from changes",
    "UNKNOWN_OPERATOR": "the job has no such operator",
    "UNKNOWN_INSTANCE": "the operator has no such instance",
    "UNKNOWN_EDGE": "the job has no such edge",
    "UNKNOWN_MACHINE": "the cluster has no such machine",
    "NOT_KEYED": "the operator does not get its records by key",
    "SHAPE": "this was meant for another number of instances than was granted",
    "INVALID": "the values are out of range",
    "MINIMUM": "below the least that the operator, or the cluster, may have",
    "MAXIMUM": "above the most that the operator, or the cluster, may have",
    "STEP": "more at once than a step may be",
    "SATURATED": "the operator is saturated, or its capacity is unknown",
    "BACKLOG": "a backlog is being worked off",
    "DELAYED": "fewer must be wished for long enough, and the highest wish counts",
    "JOB_MAXIMUM": "above the most instances that the job may have",
    "QUOTA": "above the quota of the tenant",
    "SLOTS": "more slots than the cluster has, or would have left",
    "SUPERSEDED": "an earlier decision of this round is about the same job or the same machines",
}


@dataclass(frozen=True, slots=True)
class Clip:
    """One thing that was asked and not granted as it was. Without an operator it is about the whole change."""

    code: str
    operator: str | None = None
    asked: int | None = None
    granted: int | None = None
    facet: str = "parallelism"

    def __str__(self) -> str:
        what = "" if self.facet == "parallelism" else f"{self.facet.replace('_', ' ')}: "
        if self.operator is not None and self.asked is not None:
            what = f"{self.operator}: asked {self.asked}, granted {self.granted}; "
        elif self.operator is not None:
            what = f"{what}{self.operator}: "
        elif self.asked is not None:
            what = f"{what}asked {self.asked}, granted {self.granted}; "
        return f"{what}{CLIP_CODES[self.code]}"


@dataclass(frozen=True, slots=True)
class Feedback:
    """What became of one decision.

    `granted` is what the guard let through of it, `clips` why not the rest, `outcomes` what the engine
    did, action by action; none while it was not asked. `met` is whether the expectation was met when its
    time had come, with the value `measured` then.
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
        """Whether the engine has at least a part of it."""
        return any(outcome.applied for outcome in self.outcomes)

    @property
    def pending(self) -> bool:
        """Whether the outcome of a part of it is still unknown."""
        return any(outcome.status is Status.UNKNOWN for outcome in self.outcomes)

    @property
    def in_full(self) -> bool:
        """Whether all of it was granted as asked, and applied."""
        acts = any(one.facet is not None for one in self.granted)
        done = all(outcome.applied for outcome in self.outcomes) and (self.applied or not acts)
        return not self.clips and done

    def parallelism(self, job: str) -> dict[str, int]:
        """The numbers of instances that were granted to a job."""
        return {
            operator: count
            for change in self.granted
            if isinstance(change, ParallelismChange) and change.job == job
            for operator, count in change.parallelism.items()
        }
