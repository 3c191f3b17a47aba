"""Owns the wanted state of a job: parallelism, weights, placement, key groups, avoided tasks and
batching, with a generation.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trilithon.errors import InvalidAllocation, NotFound
from trilithon.model.capability import Ability
from trilithon.model.change import (
    AllocationChange,
    AvoidedTasksChange,
    BatchingChange,
    KeyGroupsChange,
    ParallelismChange,
    PlacementChange,
    WeightsChange,
)
from trilithon.model.groups import KEY_GROUPS, SPREAD, rescale_key_groups
from trilithon.model.intent import EdgeName
from trilithon.model.job import Grouping, Job, Operator

# The field that holds each facet of wanted state.
FACET_FIELDS: Final = {
    Ability.PARALLELISM: "parallelism",
    Ability.WEIGHTS: "weights",
    Ability.PLACEMENT: "placement",
    Ability.KEY_GROUPS: "groups",
    Ability.AVOIDED_TASKS: "avoided",
    Ability.BATCHING: "batching_ms",
}


@dataclass(frozen=True, slots=True)
class Allocation:
    """What an engine is asked to bring about. Applying one twice changes nothing.

    `weights` and `placement` have an entry per instance of an operator, where one is wanted; an
    operator that is not named there is left to the engine. `groups` say which instance has which of
    the 1,024 key groups of an operator that gets its records by key, or that it is spread over all.
    `avoided` are tasks of an operator that are too slow: they get records only if the others are
    fewer than its instances. `batching_ms` is the longest time a record may wait at the sender for
    others.
    """

    job: str
    generation: int
    parallelism: Mapping[str, int]
    weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    placement: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    batching_ms: Mapping[EdgeName, float] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    avoided: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for operator, count in self.parallelism.items():
            if count < 1:
                raise InvalidAllocation(f"{operator!r} cannot have {count} instances: at least 1.")
        for operator, weights in self.weights.items():
            self._one_per_instance(operator, len(weights), "weights")
            if not (min(weights, default=0.0) >= 0 and 0 < sum(weights) < math.inf):
                raise InvalidAllocation(
                    f"The weights of {operator!r} must be 0 or more, and one of them above 0."
                )
        for operator, machines in self.placement.items():
            self._one_per_instance(operator, len(machines), "machines")
        for operator, groups in self.groups.items():
            if len(groups) != KEY_GROUPS:
                raise InvalidAllocation(
                    f"{operator!r} is given {len(groups)} key groups: there are {KEY_GROUPS}."
                )
            instances = range(self.parallelism.get(operator, 0))
            if not all(owner in instances or owner == SPREAD for owner in set(groups)):
                raise InvalidAllocation(f"A key group of {operator!r} has no such instance.")
        for operator, tasks in self.avoided.items():
            if operator not in self.parallelism or min(tasks, default=0) < 0:
                raise InvalidAllocation(f"{operator!r} has no tasks {tasks} to avoid.")
        if not all(0 <= wait < math.inf for wait in self.batching_ms.values()):
            raise InvalidAllocation("A record cannot wait less than 0 ms at its sender.")

    def _one_per_instance(self, operator: str, count: int, what: str) -> None:
        wanted = self.parallelism.get(operator)
        if count != wanted:
            raise InvalidAllocation(f"{operator!r} has {wanted} instances but {count} {what}.")

    @property
    def instances(self) -> int:
        """The slots in use."""
        return sum(self.parallelism.values())

    def instance_tasks(self, operator: str, tasks: int) -> tuple[int, ...]:
        """The tasks that are the instances of an operator without a placement: the first of all its
        tasks that are not avoided, and of those only if there are too few others.
        """
        avoided = set(self.avoided.get(operator, ()))
        liked = sorted(range(tasks), key=lambda task: (task in avoided, task))
        return tuple(sorted(liked[: self.parallelism[operator]]))

    def next_generation(self) -> "Allocation":
        """The same under the next number, for whoever speaks to an engine without a controller."""
        return replace(self, generation=self.generation + 1)

    def changed(self, changes: Iterable[AllocationChange]) -> "Allocation":
        """With these changes, under the same number; weights, places and key groups in them are
        those of the new numbers of instances.
        """
        found = self
        for change in sorted(changes, key=lambda one: not isinstance(one, ParallelismChange)):
            match change:
                case ParallelismChange(parallelism=wanted):
                    found = found.rescaled(wanted)
                case WeightsChange(weights=weights):
                    found = replace(found, weights={**found.weights, **weights})
                case PlacementChange(placement=machines):
                    found = replace(found, placement={**found.placement, **machines})
                case KeyGroupsChange(groups=groups):
                    found = replace(found, groups={**found.groups, **groups})
                case AvoidedTasksChange(avoided=tasks):
                    found = replace(found, avoided={**found.avoided, **tasks})
                case BatchingChange(batching_ms=waits):
                    found = replace(found, batching_ms={**found.batching_ms, **waits})
        return found

    def rescaled(self, parallelism: Mapping[str, int]) -> "Allocation":
        """With other numbers of instances, under the same number.

        Weights and placement of a changed operator are dropped: they were meant for the old
        number. Key groups stay with the instances that remain, and avoided tasks stay avoided.
        """
        if unknown := set(parallelism) - set(self.parallelism):
            raise NotFound(
                f"{self.job} has no operator {', '.join(sorted(map(repr, unknown)))}.",
                f"It has: {', '.join(self.parallelism)}.",
            )
        changed = {name for name, count in parallelism.items() if count != self.parallelism[name]}
        return replace(
            self,
            parallelism={**self.parallelism, **parallelism},
            weights={name: w for name, w in self.weights.items() if name not in changed},
            placement={name: m for name, m in self.placement.items() if name not in changed},
            groups={
                name: rescale_key_groups(groups, parallelism[name]) if name in changed else groups
                for name, groups in self.groups.items()
            },
        )


def carried_over(before: Allocation, job: Job) -> Allocation:
    """The allocation for a job whose file changed, under the same number: what is still there keeps
    its number of instances, within the new bounds; what is new begins with the number in the file,
    and so does an operator that keeps state: it is divided as the file says. No task is avoided:
    all of them begin anew.
    """

    def carried(operator: Operator) -> int:
        bounds = operator.parallelism
        kept = bounds.initial if operator.work.stateful else before.parallelism.get(operator.name)
        return min(max(bounds.initial if kept is None else kept, bounds.min), bounds.max)

    wanted = {operator.name: carried(operator) for operator in job.operators}
    same = {name for name, count in wanted.items() if before.parallelism.get(name) == count}
    keyed = {edge.target for edge in job.edges if edge.grouping is Grouping.BY_KEY}
    edges = {edge.name for edge in job.edges}
    return Allocation(
        job.id,
        before.generation,
        wanted,
        weights={name: w for name, w in before.weights.items() if name in same},
        placement={name: m for name, m in before.placement.items() if name in same},
        batching_ms={edge: wait for edge, wait in before.batching_ms.items() if edge in edges},
        groups={name: g for name, g in before.groups.items() if name in same & keyed},
    )


def facets_between(before: Allocation, after: Allocation) -> tuple[Ability, ...]:
    """The facets in which two allocations of a job differ."""
    return tuple(
        facet
        for facet, name in FACET_FIELDS.items()
        if getattr(before, name) != getattr(after, name)
    )


def initial(job: Job) -> Allocation:
    """The allocation that a job asks for in its file."""
    wanted = {operator.name: operator.parallelism.initial for operator in job.operators}
    return Allocation(job.id, 1, wanted)
