"""Makes a job's conditions from its facts, and remembers since when each is as it is."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trilithon.contract.condition import Health
from trilithon.control.journal.rows import DesiredState
from trilithon.service.monitor.facts import JobFacts
from trilithon.service.monitor.hunger import SENTENCES


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionType(StrEnum):
    READY = "Ready"
    SLO_MET = "SloMet"
    RECONFIGURING = "Reconfiguring"
    DEGRADED = "Degraded"
    PAUSED = "Paused"
    HUNGRY = "Hungry"


@dataclass(frozen=True, slots=True)
class JobCondition:
    """One aspect of a job: whether it is so, why, and since when this daemon knows it."""

    type: ConditionType
    status: Truth
    reason: str
    message: str
    since_s: float = 0.0


REASONS: Final = {
    "running": "Running",
    "starting": "Starting",
    "not started": "NotStarted",
    "degraded": "Degraded",
    "failed": "Failed",
    "paused": "Paused",
    "pausing": "Paused",
    "ending": "Deleted",
}


def conditions_of(facts: JobFacts) -> list[JobCondition]:
    """All conditions of a job, without their times."""
    ready = facts.state == "running"
    paused = facts.desired is DesiredState.PAUSE
    broken = facts.health in {Health.DEGRADED, Health.FAILED} and not paused
    return [
        _condition(ConditionType.READY, ready, REASONS.get(facts.state, "Unknown"), facts.problem),
        _slo_met(facts),
        _condition(
            ConditionType.RECONFIGURING,
            facts.in_flight,
            "ActionInFlight" if facts.in_flight else "Settled",
            "The engine does not have the wanted allocation yet." if facts.in_flight else "",
        ),
        _condition(
            ConditionType.DEGRADED,
            broken,
            REASONS.get(facts.health, "Healthy") if broken else "Healthy",
            facts.problem if broken else "",
        ),
        _condition(
            ConditionType.PAUSED,
            paused,
            "PausedByOwner" if paused else "NotPaused",
            "Its owner paused the job." if paused else "",
        ),
        _hungry(facts),
    ]


def _condition(type_: ConditionType, status: bool, reason: str, message: str) -> JobCondition:
    return JobCondition(type_, Truth.TRUE if status else Truth.FALSE, reason, message)


def _slo_met(facts: JobFacts) -> JobCondition:
    if not facts.has_intent:
        return JobCondition(
            ConditionType.SLO_MET, Truth.UNKNOWN, "NoIntent", "The job has no thresholds."
        )
    if facts.met is None or facts.state != "running":
        why = f"The controller holds the job: {facts.hold_reason}." if facts.hold_reason else ""
        return JobCondition(ConditionType.SLO_MET, Truth.UNKNOWN, "NotMeasured", why)
    if facts.met:
        return JobCondition(ConditionType.SLO_MET, Truth.TRUE, "IntentMet", "")
    lost = facts.lost_utility
    cost = "" if lost is None else f"It loses {lost:.4g} of {facts.max_utility:.4g} utility."
    return JobCondition(ConditionType.SLO_MET, Truth.FALSE, "IntentMissed", cost)


def _hungry(facts: JobFacts) -> JobCondition:
    if facts.hungry is None:
        return JobCondition(ConditionType.HUNGRY, Truth.UNKNOWN, "NotMeasured", "")
    if facts.hunger is None:
        return JobCondition(ConditionType.HUNGRY, Truth.FALSE, "NotHungry", "")
    return JobCondition(
        ConditionType.HUNGRY, Truth.TRUE, facts.hunger.value, SENTENCES[facts.hunger]
    )


class ConditionTimes:
    """Since when each condition of each job has its status, as this daemon has seen it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[tuple[str, ConditionType], tuple[Truth, float]] = {}

    def dated(self, facts: JobFacts, now_s: float) -> list[JobCondition]:
        """A job's conditions with their times. One that changed just now has changed now."""
        dated = []
        with self._lock:
            for condition in conditions_of(facts):
                key = (facts.job, condition.type)
                status, since_s = self._since.get(key, (None, now_s))
                if status is not condition.status:
                    since_s = now_s
                    self._since[key] = (condition.status, now_s)
                dated.append(
                    JobCondition(
                        condition.type,
                        condition.status,
                        condition.reason,
                        condition.message,
                        since_s,
                    )
                )
        return dated

    def forget_all_but(self, jobs: Iterable[str]) -> None:
        kept = set(jobs)
        with self._lock:
            for key in [key for key in self._since if key[0] not in kept]:
                del self._since[key]
