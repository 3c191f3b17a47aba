"""Owns what Henge says: the reason codes, and the sentences and numbers of decisions."""

from collections.abc import Iterable, Mapping
from typing import Final

from trilithon.model.change import ParallelismChange
from trilithon.policies.decision import Decision, Expectation
from trilithon.policies.henge.shares import InstanceGrant
from trilithon.policies.henge.view import JobView
from trilithon.policies.policy import decision_id
from trilithon.policies.scene import Scene

RECONFIGURATION: Final = "RECONFIGURATION"
REDUCTION: Final = "REDUCTION"
REVERSION: Final = "REVERSION"
BLACKLISTED: Final = "BLACKLISTED"
NOT_CARRIED_OUT: Final = "NOT_CARRIED_OUT"
CONVERGED_MET: Final = "CONVERGED_ALL_MET"
CONVERGED_STUCK: Final = "CONVERGED_NO_ACTION_LEFT"
DROPPED: Final = "UTILITY_DROPPED"
MISSED_AGAIN: Final = "INTENT_MISSED_AGAIN"
EXTERNAL: Final = "EXTERNAL_CHANGE"
MISSING: Final = "METRICS_MISSING"
BACK: Final = "METRICS_BACK"

REASONS: Final[dict[str, str]] = {
    RECONFIGURATION: "a job misses its intent: its congested operators get more instances",
    REDUCTION: "utility fell, or slots ran out, on a congested cluster: jobs that meet their intents "
    "give instances back",
    REVERSION: "the configuration that was worth the most comes back",
    BLACKLISTED: "a job gained too little from its last Reconfiguration and is skipped for a while",
    NOT_CARRIED_OUT: "what was decided for a job was not done, and it is skipped for a while",
    CONVERGED_MET: "every intent is met, and stayed so",
    CONVERGED_STUCK: "no action is left that would help",
    DROPPED: "utility dropped while Converged: everything is forgotten and the search begins again",
    MISSED_AGAIN: "a job misses the intent that it met when the cluster was Converged",
    EXTERNAL: "jobs, intents, loads, machines or allocations were changed from outside",
    MISSING: "too many jobs have no numbers: nothing is done",
    BACK: "numbers are there again, and for long enough",
}


class DecisionLog:
    """Collects the decisions of a round and gives each an id of its own."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.decisions: list[Decision] = []
        # The job of each decision that changes one.
        self.jobs: dict[str, str] = {}
        self._told: dict[str | None, int] = {}

    def add(
        self,
        job: str | None,
        reason: str,
        sentence: str,
        numbers: Mapping[str, float | None],
        causes: Iterable[str | None] = (),
        counts: Mapping[str, int] | None = None,
        expects: Expectation | None = None,
    ) -> str:
        """One decision; with `counts` it gives the job other numbers of instances."""
        ordinal = self._told.get(job, 0)
        self._told[job] = ordinal + 1
        id_ = decision_id(self.scene, job, ordinal)
        wanted: tuple[ParallelismChange, ...] = ()
        if job is not None and counts:
            wanted = (ParallelismChange(job, dict(counts)),)
            self.jobs[id_] = job
        known = tuple(dict.fromkeys(cause for cause in causes if cause is not None))
        self.decisions.append(
            Decision(id_, job, wanted, reason, sentence, dict(numbers), known, expects)
        )
        return id_


def missed(seen: JobView) -> str:
    """`p95 latency ≤ 60 ms is missed with 71.2`."""
    threshold, value = seen.worst()
    with_ = "nothing measured" if value is None else f"{value:.4g}"
    return f"{threshold} is missed with {with_}"


def changes(gift: InstanceGrant) -> str:
    return ", ".join(
        f"{one.name} {one.instances} → {gift.counts[one.name]} (capacity {one.capacity:.2f})"
        for one in gift.operators
    )


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {before[name]} → {count}" for name, count in after.items())


def share(goal: float) -> str:
    return f"{100 * goal:.1f} %"


def some(names: Iterable[str], most: int = 5) -> str:
    """Names in a row; of many, the first and how many more."""
    found = list(names)
    rest = len(found) - most
    return ", ".join(found[:most]) + (f" and {rest} more" if rest > 0 else "")
