"""Owns what an engine can be told to do, and what can come of it.

Wanted state (an allocation) is idempotent and carries a generation; the others are one-shot: they
carry an id and are done at most once.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trilithon.errors import TrilithonError
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability
from trilithon.model.job import Job


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
    """Stop a job where nothing has to be done again, and start it: with another file, another
    allocation or from another checkpoint, as far as they are given. All that can be refused is
    refused before it is stopped, and if it does not start, it runs as before.
    """

    id: str
    job: str
    spec: Job | None = None
    allocation: Allocation | None = None
    checkpoint: str | None = None


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

# Codes with which an engine refuses wanted state because of one facet:
# without it, it takes the rest.
REFUSED_FACETS: Final[dict[str, Ability]] = {
    "CANNOT_BATCHING": Ability.BATCHING,
    "TOO_MANY_INSTANCES": Ability.PARALLELISM,
    "UNKNOWN_MACHINE": Ability.PLACEMENT,
    "WEIGHTS_WITH_PLACEMENT": Ability.WEIGHTS,
}


# Codes of outcomes that are done by a restart, for which the job processed no records: without
# doubles, and with those since the last commit.
RESTARTED: Final = "RESTARTED"
REPLAYED: Final = "REPLAYED"
RESTARTS: Final = frozenset({RESTARTED, REPLAYED})


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

    @classmethod
    def of_error(cls, error: TrilithonError, status: Status = Status.REFUSED) -> "Outcome":
        """An action that an error ended: its code, and its sentence with the hint."""
        return cls(status, error.code, f"{error.message} {error.hint}".strip())

    @property
    def changed(self) -> bool:
        return self.status is Status.DONE

    @property
    def applied(self) -> bool:
        """Whether the engine has what it was asked for."""
        return self.status in {Status.DONE, Status.UNCHANGED}
