"""Owns what an engine may be asked to do, and at what cost it can."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class How(StrEnum):
    """At what cost an engine can do something."""

    LIVE = "live"  # while records flow, without a gap
    AT_BOUNDARY = "at_boundary"  # when the running batch ends
    WITH_OUTAGE = "with_outage"  # by stopping and starting the job
    NOT_AT_ALL = "not_at_all"


class Ability(StrEnum):
    """What an engine may be asked to do."""

    PARALLELISM = "parallelism"
    WEIGHTS = "weights"
    PLACEMENT = "placement"
    KEY_GROUPS = "key_groups"
    AVOIDED_TASKS = "avoided_tasks"
    BATCHING = "batching"
    RESTART_INSTANCE = "restart_instance"
    RESTART_JOB = "restart_job"
    ADD_MACHINES = "add_machines"
    REMOVE_MACHINES = "remove_machines"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, and at what cost.

    `fixed` are operators of a job whose parallelism it cannot change: a decision about one of them
    becomes advice. `machine_slots` are the slots that each machine brings, and `machine_tasks` the
    tasks that it can run at once, where the engine knows it; `tasks_used` are the tasks that all
    jobs hold, used or idle. `tasks_spread` says that an operator has as many tasks as instances at
    most, spread over all machines when a batch begins: a machine runs no more of its instances than
    it has tasks. `tasks_held` are, by job, the operators that hold fewer tasks than they may, with
    their number: more instances than that restart the job, or the part of it that they are in.
    """

    how: Mapping[Ability, How]
    slots: int | None = None
    tasks: int | None = None
    fixed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    machine_slots: Mapping[str, int] = field(default_factory=dict)
    machine_tasks: Mapping[str, int] = field(default_factory=dict)
    tasks_used: int | None = None
    tasks_spread: bool = False
    tasks_held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def of(self, ability: Ability) -> How:
        return self.how.get(ability, How.NOT_AT_ALL)

    def of_parallelism(self, job: str, wanted: Mapping[str, int]) -> How:
        """At what cost a job gets so many instances."""
        how, held = self.of(Ability.PARALLELISM), self.tasks_held.get(job, {})
        if how is not How.NOT_AT_ALL and any(
            count > held.get(name, count) for name, count in wanted.items()
        ):
            return How.WITH_OUTAGE
        return how
