"""Owns the contract between whoever decides and whatever runs jobs.

Wanted state (an allocation) is idempotent and carries a generation: applying it twice, or an older one
after a newer one, changes nothing. One-shot actions carry an id and are done at most once; after a crash
their outcome may be unknown. An action is done whole, or refused with a reason and nothing is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report


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
    BATCHING = "batching"
    RESTART_INSTANCE = "restart_instance"
    RESTART_JOB = "restart_job"
    ADD_MACHINES = "add_machines"
    REMOVE_MACHINES = "remove_machines"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, and at what cost. `fixed` are operators of a job whose parallelism it
    cannot change: a decision about one of them becomes advice.
    """

    how: Mapping[Ability, How]
    slots: int | None = None
    tasks: int | None = None
    fixed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, ability: Ability) -> How:
        return self.how.get(ability, How.NOT_AT_ALL)


@dataclass(frozen=True, slots=True)
class Reallocate:
    """Bring a job to this allocation."""

    allocation: Allocation

    @property
    def job(self) -> str:
        return self.allocation.job


@dataclass(frozen=True, slots=True)
class RestartInstance:
    id: str
    job: str
    operator: str
    index: int


@dataclass(frozen=True, slots=True)
class RestartJob:
    id: str
    job: str


@dataclass(frozen=True, slots=True)
class AddMachines:
    id: str
    count: int


@dataclass(frozen=True, slots=True)
class RemoveMachines:
    id: str
    machines: tuple[str, ...]


OneShot = RestartInstance | RestartJob | AddMachines | RemoveMachines
Action = Reallocate | OneShot


class Status(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"  # it was so already: the same again, or an older generation
    REFUSED = "refused"  # nothing was changed
    FAILED = "failed"  # it was tried, and what there was before is there again
    UNKNOWN = "unknown"  # it may have been done; nobody can tell


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an action: a stable code and a sentence where it was not simply done."""

    status: Status
    code: str = ""
    message: str = ""
    took_s: float | None = None

    @property
    def changed(self) -> bool:
        return self.status is Status.DONE


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that an engine runs: its file, what is wanted of it now, and how it fares in a word."""

    job: Job
    allocation: Allocation
    health: str = "running"
    reason: str = ""


class Engine(Protocol):
    """Whatever runs jobs. Every method may be called again after a failure."""

    def submit(self, job: Job, allocation: Allocation) -> Outcome:
        """Starts a job. Refused, with numbers, if it does not fit; unchanged if it runs already."""

    def cancel(self, job: str) -> Outcome:
        """Ends a job and gives back what it held. Unchanged if there is none."""

    def apply(self, action: Action) -> Outcome:
        """Does an action whole, or not at all."""

    def jobs(self) -> Mapping[str, Accepted]:
        """Everything that was accepted: what a controller must know that comes later."""

    def reports(self) -> Sequence[Report]:
        """What came from the probes since the last call, in order."""

    def capabilities(self) -> Capabilities:
        """What can be done, as of now."""

    def close(self) -> None:
        """Ends the engine. A second call does nothing."""
