"""Plans the actions of a round: granted changes become actions for the engine.

All granted changes of a job's wanted state in a decision become one allocation, under the next
generation of that job; nothing else numbers the allocations of decisions. One-shot changes get the
id of their decision and a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trilithon.control.guard import Ruling
from trilithon.control.journal import PlannedAction
from trilithon.control.journal.rows import DesiredState
from trilithon.control.state import JobRecord
from trilithon.model.action import (
    REFUSED_FACETS,
    Action,
    AddMachines,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.model.allocation import FACET_FIELDS, Allocation, facets_between
from trilithon.model.capability import Ability
from trilithon.model.change import (
    AllocationChange,
    InstanceRestart,
    JobRestart,
    MachinesAddition,
    MachinesRemoval,
    OneShotChange,
)
from trilithon.model.mode import Mode
from trilithon.policies.scene import Scene


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans one round. `scene` is what the policy decided on; `jobs` are the jobs as of now."""

    scene: Scene
    jobs: Mapping[str, JobRecord]

    def plan(self, ruling: Ruling) -> list[PlannedAction]:
        """The actions for a ruling, in the order in which they are done. Jobs that their owner
        changed since the round began are left out: the decision is superseded. One that people
        asked for is done whole or not at all.
        """
        decision = ruling.decision.id
        whole = ruling.decision.on_demand
        by_job: dict[str, list[AllocationChange]] = {}
        one_shots: list[OneShotChange] = []
        for change in ruling.granted:
            if isinstance(change, AllocationChange):
                by_job.setdefault(change.job, []).append(change)
            elif isinstance(change, OneShotChange):
                one_shots.append(change)
        planned: list[PlannedAction] = []
        for job, changes in by_job.items():
            id_ = f"{decision}#{len(planned)}"
            if (action := self._allocation(id_, decision, job, changes)) is not None:
                planned.append(action)
            elif whole:
                return []
        for shot in one_shots:
            if shot.job is None or self._open(shot.job):
                id_ = f"{decision}#{len(planned)}"
                planned.append(
                    PlannedAction(id_, decision, one_shot(id_, shot), facets=(shot.facet,))
                )
        return planned

    def _open(self, job: str) -> bool:
        record = self.jobs.get(job)
        return (
            record is not None and record.desired is DesiredState.RUN and record.mode is Mode.AUTO
        )

    def _allocation(
        self, id_: str, decision: str, job: str, changes: list[AllocationChange]
    ) -> PlannedAction | None:
        if not self._open(job):
            return None
        record, decided_on = self.jobs[job], self.scene.statuses[job].allocation
        if record.wanted.generation != decided_on.generation:
            return None
        wanted = self._on_machines(decided_on.changed(changes))
        wanted = replace(wanted, generation=record.next_generation())
        facets = facets_between(decided_on, wanted)
        return PlannedAction(id_, decision, Reallocate(wanted), record.version.generation, facets)

    def _on_machines(self, wanted: Allocation) -> Allocation:
        """Without machines that are gone: an engine would refuse the allocation for ever because of
        a placement that was granted when they were there.
        """
        there = set(self.scene.machine_names)
        if not there:
            return wanted
        placement = {
            operator: tuple(machine if machine in there else None for machine in machines)
            for operator, machines in wanted.placement.items()
        }
        return wanted if placement == wanted.placement else replace(wanted, placement=placement)


def one_shot(id_: str, change: OneShotChange) -> Action:
    match change:
        case InstanceRestart(job, operator, index):
            return RestartInstance(id_, job, operator, index)
        case JobRestart(job):
            return RestartJob(id_, job)
        case MachinesAddition(count):
            return AddMachines(id_, count)
        case MachinesRemoval(machines):
            return RemoveMachines(id_, machines)


def without_refused_facet(
    planned: PlannedAction, outcome: Outcome, before: Allocation, generation: int
) -> PlannedAction | None:
    """The rest of wanted state without the facet that the engine refused, which stays as it was;
    None if nothing is left, or the engine refused for another reason.
    """
    facet = REFUSED_FACETS.get(outcome.code)
    action = planned.action
    if facet is Ability.WEIGHTS and facet not in planned.facets:
        # The job has weights already: it is the new placement that does not go with them.
        facet = Ability.PLACEMENT
    if outcome.status is not Status.REFUSED or not isinstance(action, Reallocate):
        return None
    if facet not in planned.facets or len(planned.facets) == 1:
        return None
    name = FACET_FIELDS[facet]
    kept = {name: getattr(before, name)}
    if facet is Ability.PARALLELISM:
        kept |= _of_unchanged_counts(before, action.allocation)
    wanted = replace(action.allocation, generation=generation, **kept)
    facets = facets_between(before, wanted)
    if not facets:
        return None
    return replace(planned, id=f"{planned.id}+", action=Reallocate(wanted), facets=facets)


def _of_unchanged_counts(before: Allocation, wanted: Allocation) -> dict[str, dict[str, Any]]:
    """Weights, placement and key groups as wanted where the number of instances stays; where it was
    to change, those of before: the wanted ones were meant for the refused number.
    """
    same = {
        name for name, count in wanted.parallelism.items() if before.parallelism.get(name) == count
    }
    fields: dict[str, dict[str, Any]] = {}
    for field in ("weights", "placement", "groups"):
        old, new = getattr(before, field), getattr(wanted, field)
        fields[field] = {name: value for name, value in old.items() if name not in same}
        fields[field] |= {name: value for name, value in new.items() if name in same}
    return fields


def without_facet(wanted: Allocation, outcome: Outcome) -> Allocation | None:
    """An allocation without the facet because of which an engine does not start a job; None if that
    was not the reason. A job runs rather without a placement than not at all.
    """
    facet = REFUSED_FACETS.get(outcome.code)
    if outcome.status is not Status.REFUSED or facet in {None, Ability.PARALLELISM}:
        return None
    name = FACET_FIELDS[facet]
    emptied: dict[str, Any] = {name: {}}
    return replace(wanted, **emptied) if getattr(wanted, name) else None
