"""Compares two versions of a job: does the new one apply live, after a restart from the checkpoint,
or only with a new checkpoint?

The rules are Spark's for a query that restarts from its checkpoint: the topics of the sources must
be the same and in the same order, and so must every stateful operator; columns and options of
sources, filters, projections, topics of sinks and the trigger may change.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from trilithon.model.intent import Intent
from trilithon.model.job import Bounds, Job, Operator, Parallelism


class Impact(StrEnum):
    """What a new version does to the running job. The largest impact of all changes counts."""

    NONE = "none"  # nothing changes
    NEW = "new"  # there is no running job
    LIVE = "live"  # it keeps running
    RESTART = "restart"  # it restarts from its checkpoint
    ANEW = "anew"  # it restarts with a new checkpoint


_ORDER = tuple(Impact)


@dataclass(frozen=True, slots=True)
class SpecChange:
    """A part of the spec that differs, and the impact of that."""

    part: str
    impact: Impact
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a new version will do to the running job."""

    changes: tuple[SpecChange, ...]
    new: bool = False
    # Why the job has failed, with the remedy; empty if it has not.
    failed: str = ""

    @property
    def impact(self) -> Impact:
        if self.new:
            return Impact.NEW
        return max(
            (change.impact for change in self.changes), key=_ORDER.index, default=Impact.NONE
        )

    def __str__(self) -> str:
        summary = {
            Impact.NONE: "Nothing changes.",
            Impact.NEW: "The job is new.",
            Impact.LIVE: "The job keeps running.",
            Impact.RESTART: "The job restarts from its checkpoint.",
            Impact.ANEW: "The job restarts with a new checkpoint: its state is lost, and it reads "
            "from where the options of its sources say.",
        }[self.impact]
        if self.failed and self.impact is Impact.NONE:
            return f"Nothing changes: the job has failed. {self.failed}"
        if self.failed and self.impact is Impact.LIVE:
            summary = "The job has failed; it is started again from its checkpoint."
        parts = "; ".join(f"{change.part}: {change.why}" for change in self.changes)
        return f"{summary} ({parts}.)" if parts else summary


def compare(old: Job, new: Job) -> Plan:
    """What differs between two versions of a job."""
    changes: list[SpecChange] = []
    if old.intent != new.intent:
        changes.append(SpecChange("intent", Impact.LIVE, "only the controller uses it"))
    if old.bounds.preserve_order != new.bounds.preserve_order:
        changes.append(SpecChange("preserve_order", Impact.RESTART, "senders read it at the start"))
    if replace(old.bounds, preserve_order=new.bounds.preserve_order) != new.bounds:
        changes.append(SpecChange("bounds", Impact.LIVE, "only the controller uses them"))
    if old.topics != new.topics:
        changes.append(
            SpecChange("sources", Impact.ANEW, "a checkpoint holds the offsets of these topics")
        )
    elif old.sources != new.sources:
        changes.append(
            SpecChange("sources", Impact.RESTART, "options or columns of the same topics changed")
        )
    if old.tables != new.tables:
        changes.append(SpecChange("tables", Impact.RESTART, "they are read at the start"))
    if old.sinks != new.sinks:
        changes.append(SpecChange("sinks", Impact.RESTART, "they are opened at the start"))
    if old.batch_s != new.batch_s:
        changes.append(SpecChange("trigger", Impact.RESTART, "it is set at the start"))
    if old.dead_letter_topic != new.dead_letter_topic:
        changes.append(SpecChange("dead_letter_topic", Impact.RESTART, "it is opened at the start"))
    changes += _operators(old, new)
    return Plan(tuple(changes))


def _operators(old: Job, new: Job) -> list[SpecChange]:
    changes = []
    before = {operator.name: operator for operator in old.operators}
    after = {operator.name: operator for operator in new.operators}
    for name in dict.fromkeys([*before, *after]):
        change = _operator(before.get(name), after.get(name))
        if change is not None:
            changes.append(change)
    if old.edges != new.edges and not changes:
        stateful = any(o.work.stateful for o in (*old.operators, *new.operators))
        impact = Impact.ANEW if stateful else Impact.RESTART
        changes.append(SpecChange("edges", impact, "the operators are connected differently"))
    return changes


def _operator(old: Operator | None, new: Operator | None) -> SpecChange | None:
    if old is None or new is None:
        operator = old or new
        assert operator is not None  # noqa: S101 - a name is in one of the two
        word = "added" if old is None else "removed"
        impact = Impact.ANEW if operator.work.stateful else Impact.RESTART
        return SpecChange(
            operator.name, impact, word + (", and stateful" if operator.work.stateful else "")
        )
    if old.work != new.work:
        if old.work.stateful or new.work.stateful:
            return SpecChange(new.name, Impact.ANEW, "its work changed, and it is stateful")
        return SpecChange(new.name, Impact.RESTART, "its work changed, and it is stateless")
    if new.work.stateful and old.tasks != new.tasks:
        return SpecChange(new.name, Impact.RESTART, "its state is divided anew")
    if old.parallelism.max != new.parallelism.max:
        return SpecChange(new.name, Impact.RESTART, "its maximum is the number of its tasks")
    if old.parallelism.tasks != new.parallelism.tasks:
        return SpecChange(new.name, Impact.RESTART, "it holds another number of tasks")
    if old.parallelism != new.parallelism or old.profile != new.profile:
        return SpecChange(new.name, Impact.LIVE, "only the controller uses its bounds and profile")
    return None


def running_form(job: Job) -> Job:
    """The job as an engine sees it: without what only the controller uses."""
    return replace(
        job,
        intent=Intent(),
        bounds=Bounds(preserve_order=job.bounds.preserve_order),
        operators=tuple(
            replace(operator, parallelism=_running_parallelism(operator), profile=None)
            for operator in job.operators
        ),
    )


def _running_parallelism(operator: Operator) -> Parallelism:
    initial = operator.parallelism.initial if operator.work.stateful else 1
    return replace(operator.parallelism, initial=initial, min=1)
