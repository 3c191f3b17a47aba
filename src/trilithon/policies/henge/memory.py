"""Owns what Henge remembers between rounds, and its form as JSON.

A round works on a copy that it reads from the state and writes back; nothing else holds one.

The history keeps, for each configuration, only what would have to be undone to come back to it: an entry
begins empty, and when a job is changed later, what it had before is noted in every entry that does not
name the job yet. So a thousand jobs of which a few were touched cost a few numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Counts = dict[str, int]


class Phase(StrEnum):
    NOT_CONVERGED = "not_converged"
    CONVERGED = "converged"


class StepKind(StrEnum):
    RECONFIGURATION = "reconfiguration"
    REDUCTION = "reduction"
    REVERSION = "reversion"


@dataclass(slots=True)
class SearchStep:
    """An action whose effect is waited for: when it was decided, the utilities before, the jobs that it
    touches, and what each was to have.

    `decisions` are the ids under which each job's part was asked for, once or again, and `applied` the
    jobs of which the engine has at least a part, `clipped` those that got less than was asked. `scarce` is a Reconfiguration that would have given more
    if there had been slots; `told` is whether it was reported that something was left undone.
    """

    kind: StepKind
    at_s: float
    ids: list[str]
    before: dict[str, float]
    jobs: list[str]
    asked: dict[str, Counts] = field(default_factory=dict)
    decisions: dict[str, list[str]] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)
    clipped: list[str] = field(default_factory=list)
    scarce: bool = False
    told: bool = False


@dataclass(slots=True)
class JobMemory:
    """What is remembered of a job.

    `load_per_s` is what comes in, since `load_s`. `blind_s` is since when its numbers are missing, `back_s`
    since when they are there again; a job is `known` once it had any. `touched_s` are the times of its
    latest Reconfigurations.
    """

    counts: Counts
    intent: list[Any] = field(default_factory=list)
    mode: str = ""
    known: bool = False
    load_per_s: float | None = None
    load_s: float | None = None
    blind_s: float | None = None
    back_s: float | None = None
    touched_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Configuration:
    """A configuration that was measured: what it was worth, and how to come back to it.

    `short` has the utilities of the jobs that were below their maxima, `without` those that did not count
    then: whoever compares two configurations does so by the jobs that both know.
    """

    goal: float
    at_s: float
    back: dict[str, Counts] = field(default_factory=dict)
    short: dict[str, float] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Memory:
    """Everything. `cause` is the id of the latest decision about the cluster.

    `met_since_s` is since when every intent is met, `stuck_since_s` since when some are not and
    nothing can be done about it: Converged is near. `from_s` is since when utilities were steady after the last step: nothing before it is looked at.
    In Converged, `baseline` has the utilities that a drop is measured from, and `missed_s` since when
    a job misses its intent that had met it.
    """

    phase: Phase = Phase.NOT_CONVERGED
    jobs: dict[str, JobMemory] = field(default_factory=dict)
    cluster: list[Any] | None = None
    step: SearchStep | None = None
    history: list[Configuration] = field(default_factory=list)
    blacklist: dict[str, float] = field(default_factory=dict)
    reduced: str | None = None
    met_since_s: float | None = None
    stuck_since_s: float | None = None
    baseline: dict[str, float] | None = None
    missed_s: dict[str, float] = field(default_factory=dict)
    from_s: float | None = None
    hold_until_s: float = 0.0
    held: bool = False
    cause: str | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Memory":
        if not data:
            return cls()
        step = data["step"]
        return cls(
            phase=Phase(data["phase"]),
            jobs={name: JobMemory(**_copy(one)) for name, one in data["jobs"].items()},
            cluster=_copy(data["cluster"]),
            step=None
            if step is None
            else SearchStep(**{**_copy(step), "kind": StepKind(step["kind"])}),
            history=[Configuration(**_copy(one)) for one in data["history"]],
            blacklist=dict(data["blacklist"]),
            reduced=data["reduced"],
            met_since_s=data["met_since_s"],
            stuck_since_s=data["stuck_since_s"],
            baseline=_copy(data["baseline"]),
            missed_s=dict(data["missed_s"]),
            from_s=data["from_s"],
            hold_until_s=data["hold_until_s"],
            held=data["held"],
            cause=data["cause"],
        )

    def data(self) -> dict[str, Any]:
        """As JSON data, names in order: the same memory gives the same bytes."""
        found: dict[str, Any] = _plain(self)
        return found

    def keep_up_with(self, now_s: float, blacklist_s: float, hold_s: float) -> None:
        """A clock that was set back must not leave times in the future behind, which would hold for as long as it
        jumped.
        """

        def past(at_s: float | None) -> float | None:
            return None if at_s is None else min(at_s, now_s)

        self.from_s, self.met_since_s = past(self.from_s), past(self.met_since_s)
        self.stuck_since_s = past(self.stuck_since_s)
        self.hold_until_s = min(self.hold_until_s, now_s + hold_s)
        self.blacklist = {
            job: min(at_s, now_s + blacklist_s) for job, at_s in self.blacklist.items()
        }
        self.missed_s = {job: min(at_s, now_s) for job, at_s in self.missed_s.items()}
        if self.step is not None:
            self.step.at_s = min(self.step.at_s, now_s)
        for known in self.jobs.values():
            known.load_s, known.blind_s = past(known.load_s), past(known.blind_s)
            known.back_s = past(known.back_s)

    def changed(self, job: str, before: Counts, after: Counts) -> None:
        """A job got other numbers of instances: every configuration needs to know what it had."""
        for place in self.history:
            place.back.setdefault(job, dict(before))
            if place.back[job] == after:
                del place.back[job]

    def record(self, now: Configuration, most: int) -> None:
        """The configuration of now is worth this. Measured again, the latest number counts."""
        others = [place for place in self.history if place.back]
        best = sorted(others, key=lambda place: (-place.goal, -place.at_s))[: most - 1]
        self.history = [*sorted(best, key=lambda place: place.at_s), now]

    def forget(self) -> None:
        """All past actions no longer apply (section 5.3)."""
        self.step = None
        self.history = []
        self.reduced = None
        self.met_since_s = self.stuck_since_s = None

    def forget_job(self, job: str) -> None:
        self.jobs.pop(job, None)
        self.blacklist.pop(job, None)
        self.missed_s.pop(job, None)
        if self.baseline is not None:
            self.baseline.pop(job, None)


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in sorted(value.__dataclass_fields__)}
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, StrEnum) else value


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list | tuple) else value
