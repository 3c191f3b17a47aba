"""Defines Henge's reason codes, and writes the sentences of its decisions."""

from collections.abc import Iterable, Mapping
from typing import Final

from trilithon.model.change import ParallelismChange
from trilithon.policies.decision import Decision, Expectation
from trilithon.policies.henge.comparison import Comparison
from trilithon.policies.henge.henge_parameters import MAX_MIN
from trilithon.policies.henge.instance_counts import InstanceGrant
from trilithon.policies.henge.view import JobView
from trilithon.policies.policy import decision_id
from trilithon.policies.scene import Scene

RECONFIGURATION: Final = "RECONFIGURATION"
REDUCTION: Final = "REDUCTION"
REVERSION: Final = "REVERSION"
BLACKLISTED: Final = "BLACKLISTED"
NOT_CARRIED_OUT: Final = "NOT_CARRIED_OUT"
NOT_JUDGED: Final = "NOT_JUDGED"
CONVERGED_MET: Final = "CONVERGED_ALL_MET"
CONVERGED_STUCK: Final = "CONVERGED_NO_ACTION_LEFT"
DROPPED: Final = "UTILITY_DROPPED"
MISSED_AGAIN: Final = "INTENT_MISSED_AGAIN"
EXTERNAL: Final = "EXTERNAL_CHANGE"
MISSING: Final = "METRICS_MISSING"
BACK: Final = "METRICS_BACK"

REASONS: Final[dict[str, str]] = {
    RECONFIGURATION: "a job misses its intent: its congested operators get more instances",
    REDUCTION: "utility fell, or slots ran out, on a congested cluster: jobs that meet their "
    "intents give instances back",
    REVERSION: "Henge returns to the configuration that had the highest utility",
    BLACKLISTED: "a job gained too little from its last Reconfiguration: Henge skips it for "
    "`blacklist_s`",
    NOT_CARRIED_OUT: "a decision was not applied, or only in part; a Reconfigured job is skipped "
    "for `blacklist_s`",
    NOT_JUDGED: "an external change came before the effect of a Reconfiguration was measured, and "
    "the job gained too little: it may be tried once more",
    CONVERGED_MET: "every intent has been met for `stable_rounds`",
    CONVERGED_STUCK: "some intents are missed, and no action is left that would help",
    DROPPED: "utility dropped while Converged, or did not return by a Reversion: Henge clears its "
    "history and searches again",
    MISSED_AGAIN: "a job misses the intent that it met when the cluster became Converged",
    EXTERNAL: "jobs, intents, loads, machines or allocations changed, and Henge did not do it",
    MISSING: "half of the jobs or more have no metrics: Henge takes no action",
    BACK: "metrics have been complete again for `recover_s`",
}


class DecisionLog:
    """Collects the decisions of a round and gives each an id of its own."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.decisions: list[Decision] = []
        # The job of each decision that changes one.
        self.jobs: dict[str, str] = {}
        self._decisions_of: dict[str | None, int] = {}

    def add(
        self,
        job: str | None,
        reason: str,
        sentence: str,
        numbers: Mapping[str, float | None],
        causes: Iterable[str | None] = (),
        parallelism: Mapping[str, int] | None = None,
        expects: Expectation | None = None,
    ) -> str:
        """Adds a decision and returns its id; with `parallelism` it changes the job."""
        ordinal = self._decisions_of.get(job, 0)
        self._decisions_of[job] = ordinal + 1
        id_ = decision_id(self.scene, job, ordinal)
        proposals: tuple[ParallelismChange, ...] = ()
        if job is not None and parallelism:
            proposals = (ParallelismChange(job, dict(parallelism)),)
            self.jobs[id_] = job
        known_causes = tuple(dict.fromkeys(cause for cause in causes if cause is not None))
        self.decisions.append(
            Decision(id_, job, proposals, reason, sentence, dict(numbers), known_causes, expects)
        )
        return id_


def describe_miss(job: JobView) -> str:
    """`p95 latency ≤ 60 ms is missed with 71.2`."""
    threshold, value = job.worst_threshold()
    measured = "nothing measured" if value is None else f"{value:.4g}"
    return f"{threshold} is missed with {measured}"


def describe_grant(grant: InstanceGrant) -> str:
    """`join 2 → 4 (capacity 0.92), filter 1 → 2 (capacity 0.41)`."""
    return ", ".join(
        f"{operator.name} {operator.instances} → {grant.parallelism[operator.name]} "
        f"(capacity {operator.capacity:.2f})"
        for operator in grant.operators
    )


def describe_passed_over(reasons: Mapping[str, str]) -> str:
    """` Passed over: t/a (blacklisted), t/b (COOL_DOWN).`; empty if there are none."""
    if not reasons:
        return ""
    return f" Passed over: {name_list(f'{job} ({why})' for job, why in reasons.items())}."


def describe_held(reasons: Mapping[str, str]) -> str:
    """`; the guard holds t/b (QUIET_HOURS), which keeps its instances`; empty if there are none."""
    if not reasons:
        return ""
    names = name_list(f"{job} ({why})" for job, why in reasons.items())
    keep = "which keeps its" if len(reasons) == 1 else "which keep their"
    return f"; the guard holds {names}, {keep} instances"


def describe_change(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """`join 4 → 2, filter 2 → 1`."""
    return ", ".join(f"{name} {before[name]} → {count}" for name, count in after.items())


def describe_fall(verb: str, comparison: Comparison, share: float, goal: str) -> str:
    """`The cluster's utility fell from 80.0 % to 71.2 % of its maximum`."""
    before, after = comparison.at(share)
    subject = "The cluster's utility"
    if goal == MAX_MIN:
        level = comparison.deciding_level(share)
        rank = f"the {ordinal(level + 1)} smallest" if level else "the smallest"
        subject = f"The utility of the job with {rank} share"
    return f"{subject} {verb} from {percent(before)} to {percent(after)} of its maximum"


def ordinal(number: int) -> str:
    """`2nd`, `11th`, `23rd`."""
    tens = 10 <= number % 100 <= 20
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def percent(goal: float) -> str:
    return f"{100 * goal:.1f} %"


def name_list(names: Iterable[str], most: int = 5) -> str:
    """The names, separated by commas; of many, the first few and how many more."""
    all_names = list(names)
    rest = len(all_names) - most
    return ", ".join(all_names[:most]) + (f" and {rest} more" if rest > 0 else "")
