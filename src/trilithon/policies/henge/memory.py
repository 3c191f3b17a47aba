"""Defines what Henge remembers between rounds, and how it is stored as JSON.

A round reads a copy from the policy's state and writes it back; nothing else holds one. The field
names below are the keys of that JSON.

The history keeps, for each configuration, only what must be undone to return to it. An entry
begins empty. When a job changes later, its parallelism before is noted in every entry that does
not name the job yet. So a thousand jobs, a few of them changed, cost a few numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from operator import itemgetter
from types import NoneType
from typing import Any, Final

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
    """An action whose effect Henge waits for: when it was decided (`at_s`), the utilities
    `before`, the jobs that it changes, and the parallelism `asked` for each.

    `decisions` are the ids of the decisions that requested each job's part. `applied` are the jobs
    of which the engine has at least a part, `clipped` those that got less than was requested.
    `scarce` marks a Reconfiguration that lack of slots made smaller. `told` is whether Henge has
    reported that the step was not carried out in full. `sinking` are the jobs whose utility fell by
    itself when the step began, `loads_per_s` the loads of all, `swing` by how much the cluster's
    utility swung. `interrupted` is whether an external
    change came before its effect was measured.
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
    sinking: list[str] = field(default_factory=list)
    loads_per_s: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False
    swing: float = 0.0


@dataclass(slots=True)
class JobMemory:
    """What Henge remembers of a job.

    `load_per_s` is its input rate since `load_s`. `blind_s` is since when its metrics are missing,
    `back_s` since when they are back; a job is `known` once it had any. `touched_s` are the times
    of its latest Reconfigurations. `not_judged` counts the latest of them whose effect an external
    change has hidden.
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
    not_judged: int = 0


@dataclass(slots=True)
class Configuration:
    """A measured configuration: the `goal` that it reached, and how to return to it (`back`).

    `short` has the utilities of the jobs that were below their maxima, `without` the jobs that did
    not count then: two configurations are compared by the jobs that count in both. `swing` is by
    how much the goal swung.
    """

    goal: float
    at_s: float
    back: dict[str, Counts] = field(default_factory=dict)
    short: dict[str, float] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    swing: float = 0.0


@dataclass(slots=True)
class Memory:
    """All that Henge remembers. `cause` is the id of the latest decision about the cluster.

    `met_since_s` is since when every intent is met; `stuck_since_s`, since when some are missed
    and no action is left. `from_s` is since when utilities were steady after the last step:
    measurements before it are ignored. `reduced` is the id of the Reduction since the last
    external change. `held` is whether too many metrics are missing to act. In Converged,
    `baseline` has the utilities that a drop is measured from, and `missed_s` since when a job
    misses its intent that had met it. After an external change, `changed_s` is when it came, until
    its effect has settled; if others came before it settled, `unsettled_s` is when the first did.
    `foreign_load` is the load of other processes per core, since `foreign_s`.
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
    changed_s: float | None = None
    unsettled_s: float | None = None
    foreign_load: float | None = None
    foreign_s: float | None = None
    held: bool = False
    cause: str | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Memory":
        if not data:
            return cls()
        step = data["step"]
        return cls(
            phase=Phase(data["phase"]),
            jobs={name: JobMemory(**_copy(job)) for name, job in data["jobs"].items()},
            cluster=_copy(data["cluster"]),
            step=None
            if step is None
            else SearchStep(**{**_copy(step), "kind": StepKind(step["kind"])}),
            history=[Configuration(**_copy(entry)) for entry in data["history"]],
            blacklist=dict(data["blacklist"]),
            reduced=data["reduced"],
            met_since_s=data["met_since_s"],
            stuck_since_s=data["stuck_since_s"],
            baseline=_copy(data["baseline"]),
            missed_s=dict(data["missed_s"]),
            from_s=data["from_s"],
            changed_s=data["changed_s"],
            unsettled_s=data["unsettled_s"],
            foreign_load=data["foreign_load"],
            foreign_s=data["foreign_s"],
            held=data["held"],
            cause=data["cause"],
        )

    def as_json(self) -> dict[str, Any]:
        """As JSON data with sorted keys: the same memory gives the same bytes."""
        data: dict[str, Any] = _to_plain(self)
        return data

    def clamp_future_times(self, now_s: float, blacklist_s: float) -> None:
        """After the clock was set back, times in the future would block Henge for as long as it
        jumped: moves them to now, or to now plus the longest that they may lie ahead.
        """

        def past(at_s: float | None) -> float | None:
            return None if at_s is None else min(at_s, now_s)

        self.from_s, self.met_since_s = past(self.from_s), past(self.met_since_s)
        self.stuck_since_s = past(self.stuck_since_s)
        self.changed_s, self.unsettled_s = past(self.changed_s), past(self.unsettled_s)
        self.foreign_s = past(self.foreign_s)
        self.blacklist = {
            name: min(until_s, now_s + blacklist_s) for name, until_s in self.blacklist.items()
        }
        self.missed_s = {name: min(since_s, now_s) for name, since_s in self.missed_s.items()}
        if self.step is not None:
            self.step.at_s = min(self.step.at_s, now_s)
        for job in self.jobs.values():
            job.load_s, job.blind_s = past(job.load_s), past(job.blind_s)
            job.back_s = past(job.back_s)

    def note_parallelism(self, job: str, before: Counts, after: Counts) -> None:
        """Notes in every configuration of the history what a job had before it changed."""
        for configuration in self.history:
            configuration.back.setdefault(job, dict(before))
            if configuration.back[job] == after:
                del configuration.back[job]

    def record_configuration(
        self, current: Configuration, most: int, rank: Callable[[Configuration], Any]
    ) -> None:
        """Adds the current configuration to the history and keeps the best `most`, by their rank.
        If it was measured before, the new measurement replaces the old.
        """
        others = [entry for entry in self.history if entry.back]
        if len(others) >= most:
            others = sorted(others, key=rank, reverse=True)[: most - 1]
        self.history = [*sorted(others, key=lambda entry: entry.at_s), current]

    def begin_settling(self, changed_s: float, now_s: float) -> None:
        """An external change came: measurements from before it no longer count."""
        self.changed_s = changed_s
        self.from_s = changed_s if self.from_s is None else max(self.from_s, changed_s)
        self.unsettled_s = now_s if self.unsettled_s is None else self.unsettled_s

    def forget_history(self) -> None:
        """Clears the past actions, which no longer apply (section 5.3)."""
        self.history = []
        self.reduced = None
        self.met_since_s = self.stuck_since_s = None

    def forget_job(self, job: str) -> None:
        self.jobs.pop(job, None)
        self.blacklist.pop(job, None)
        self.missed_s.pop(job, None)
        if self.baseline is not None:
            self.baseline.pop(job, None)


# Most of a memory: nothing to convert, and nothing that could be changed.
_PLAIN: Final = frozenset({float, int, bool, str, NoneType})


def _to_plain(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {
            key: item if type(item) in _PLAIN else _to_plain(item)
            for key, item in sorted(value.items(), key=_first)
        }
    if kind is list or kind is tuple:
        return [item if type(item) in _PLAIN else _to_plain(item) for item in value]
    if is_dataclass(kind):
        return {name: _to_plain(getattr(value, name)) for name in _sorted_fields(kind)}
    return str(value) if isinstance(value, StrEnum) else value


_first: Final = itemgetter(0)


@cache
def _sorted_fields(kind: type) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in fields(kind)))


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {key: item if type(item) in _PLAIN else _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) in _PLAIN else _copy(item) for item in value]
    return value
