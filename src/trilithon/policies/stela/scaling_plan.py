"""Defines a plan of a scaling action: instances, places, machines, and what it should bring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.model.change import (
    Change,
    MachinesRemoval,
    ParallelismChange,
    PlacementChange,
)
from trilithon.policies.stela.scaling_view import ScalingView

Counts = dict[str, dict[str, int]]
# By job and operator: the machine of each instance.
Places = dict[str, dict[str, list[str | None]]]


@dataclass(frozen=True)
class Step:
    """One choice of a plan: an operator that gets an instance, or a machine that goes."""

    subject: str
    # The value by which it was chosen, in the words of the strategy.
    measure: str
    value: float | None
    # The throughput after this step and those before it.
    projected: float | None
    # Why it was chosen, for people.
    why: str = ""
    # What the strategy had chosen, where the projection gains by another.
    instead_of: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            self.measure: self.value,
            "projected_throughput": self.projected,
            "why": self.why,
            "instead_of": self.instead_of,
        }


EXCHANGED: Final = "exchanged by projection"


@dataclass(frozen=True)
class ScalingPlan:
    """What a scaling action changes. Instances that stay where they are stand in `places` only
    where their operator has others that move or are new.
    """

    counts: Counts = field(default_factory=dict)
    places: Places = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    # Throughput of the jobs that may be changed, per second: now, and as projected.
    throughput: float | None = None
    projected: float | None = None
    # What was projected before choices were exchanged.
    before_exchange: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """Everything in one decision, so that it is done whole or not at all."""
        changes: list[Change] = []
        for job in sorted({*self.counts, *self.places}):
            if self.counts.get(job):
                changes.append(ParallelismChange(job, self.counts[job]))
            if self.places.get(job):
                placement = {name: tuple(m) for name, m in sorted(self.places[job].items())}
                changes.append(PlacementChange(job, placement))
        if self.removed:
            changes.append(MachinesRemoval(self.removed))
        return tuple(changes)

    @property
    def exchanged(self) -> tuple[Step, ...]:
        """The choices that are not those of the strategy."""
        return tuple(step for step in self.steps if step.instead_of is not None)

    @property
    def exchange_gain(self) -> float | None:
        """By how much the projection gained by the exchanges, as a ratio."""
        if not self.before_exchange or self.projected is None:
            return None
        return self.projected / self.before_exchange - 1

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted({*self.counts, *self.places}))


def placed(
    view: ScalingView,
    new: Sequence[tuple[str, str]],
    machines: Sequence[str],
    moved: Mapping[tuple[str, str, int], str] | None = None,
) -> tuple[Counts, Places]:
    """New instances, in their order, on the machines in turn; existing ones stay where they are but
    for those in `moved`, of operators that are not fixed.
    """
    counts: Counts = {}
    places: Places = {}

    def entry(job: str, operator: str) -> list[str | None]:
        by_operator = places.setdefault(job, {})
        if operator not in by_operator:
            by_operator[operator] = view.machines_of(job, operator)
        return by_operator[operator]

    for turn, (job, operator) in enumerate(new):
        at = entry(job, operator)
        at.append(machines[turn % len(machines)])
        counts.setdefault(job, {})[operator] = len(at)
    for (job, operator, index), machine in (moved or {}).items():
        if view.fixed(job, operator):
            continue
        entry(job, operator)[view.indices_of(job, operator).index(index)] = machine
    return counts, places
