"""Owns what a new version of a job means for the running one: nothing to stop, a restart that goes on where
the old one was, or a new beginning.

The rules are Spark's for a query that is started again from its checkpoint: the topics that sources read must be
the same and in the same order, and so must everything that keeps state; columns and options of sources, filters,
projections, sinks' topics and the trigger may change.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from trilithon.model.intent import Intent
from trilithon.model.job import Bounds, Job, Operator, Parallelism


class Impact(StrEnum):
    """What a change does to the running job. The largest of all changes counts."""

    NONE = "none"  # nothing changes
    LIVE = "live"  # it goes on running
    RESTART = "restart"  # it is started again and goes on from its checkpoint
    ANEW = "anew"  # it begins with a new checkpoint


_ORDER = tuple(Impact)


@dataclass(frozen=True, slots=True)
class Change:
    """One part that differs, and what that means."""

    part: str
    impact: Impact
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, told before it is done."""

    changes: tuple[Change, ...]

    @property
    def impact(self) -> Impact:
        return max(
            (change.impact for change in self.changes), key=_ORDER.index, default=Impact.NONE
        )

    def __str__(self) -> str:
        said = {
            Impact.NONE: "Nothing changes.",
            Impact.LIVE: "It goes on running.",
            Impact.RESTART: "It is started again and goes on from its checkpoint.",
            Impact.ANEW: "It is started with a new checkpoint: what it counted so far begins anew, "
            "and it reads where its sources' options say.",
        }[self.impact]
        parts = "; ".join(f"{change.part}: {change.why}" for change in self.changes)
        return f"{said} ({parts}.)" if parts else said


def compare(old: Job, new: Job) -> Plan:
    """What differs between two versions of a job."""
    found: list[Change] = []
    if old.intent != new.intent:
        found.append(Change("intent", Impact.LIVE, "only the controller looks at it"))
    if old.bounds.preserve_order != new.bounds.preserve_order:
        found.append(Change("preserve_order", Impact.RESTART, "senders are told at the start"))
    if replace(old.bounds, preserve_order=new.bounds.preserve_order) != new.bounds:
        found.append(Change("bounds", Impact.LIVE, "only the controller looks at them"))
    if old.topics != new.topics:
        found.append(
            Change("sources", Impact.ANEW, "a checkpoint holds the places in these topics")
        )
    elif old.sources != new.sources:
        found.append(Change("sources", Impact.RESTART, "the same topics are read in another way"))
    if old.tables != new.tables:
        found.append(Change("tables", Impact.RESTART, "they are read at the start"))
    if old.sinks != new.sinks:
        found.append(Change("sinks", Impact.RESTART, "they are opened at the start"))
    if old.batch_s != new.batch_s:
        found.append(Change("trigger", Impact.RESTART, "it is set at the start"))
    if old.dead_letter_topic != new.dead_letter_topic:
        found.append(Change("dead_letter_topic", Impact.RESTART, "it is opened at the start"))
    found += _operators(old, new)
    return Plan(tuple(found))


def _operators(old: Job, new: Job) -> list[Change]:
    found = []
    before = {operator.name: operator for operator in old.operators}
    after = {operator.name: operator for operator in new.operators}
    for name in dict.fromkeys([*before, *after]):
        change = _operator(before.get(name), after.get(name))
        if change is not None:
            found.append(change)
    if old.edges != new.edges and not found:
        kept = not any(o.work.stateful for o in (*old.operators, *new.operators))
        impact = Impact.RESTART if kept else Impact.ANEW
        found.append(Change("edges", impact, "the operators are connected in another way"))
    return found


def _operator(old: Operator | None, new: Operator | None) -> Change | None:
    if old is None or new is None:
        one = old or new
        assert one is not None  # noqa: S101 - a name is in one of the two
        word = "it is new" if old is None else "it is gone"
        impact = Impact.ANEW if one.work.stateful else Impact.RESTART
        return Change(one.name, impact, word + (" and keeps state" if one.work.stateful else ""))
    if old.work != new.work:
        if old.work.stateful or new.work.stateful:
            return Change(new.name, Impact.ANEW, "it keeps state, and does something else")
        return Change(new.name, Impact.RESTART, "it does something else, and keeps no state")
    if old.parallelism.max != new.parallelism.max:
        if new.work.stateful:
            return Change(new.name, Impact.ANEW, "its state is divided into that many parts")
        return Change(new.name, Impact.RESTART, "its tasks are started anew")
    if old.parallelism != new.parallelism or old.profile != new.profile:
        return Change(new.name, Impact.LIVE, "only the controller looks at this")
    return None


def running_form(job: Job) -> Job:
    """The job as an engine sees it: two with the same form run alike."""
    return replace(
        job,
        intent=Intent(),
        bounds=Bounds(preserve_order=job.bounds.preserve_order),
        operators=tuple(
            replace(operator, parallelism=Parallelism(1, 1, operator.parallelism.max), profile=None)
            for operator in job.operators
        ),
    )
