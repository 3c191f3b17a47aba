"""Owns the contract between whoever decides and whatever runs jobs.

Wanted state (an allocation) is idempotent and carries a generation: applying it twice, or an older
one after a newer one, changes nothing. One-shot actions carry an id and are done at most once;
after a crash their outcome may be unknown. An action is done whole, or refused with a reason and
nothing is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trilithon.model.action import (
    Action,
    AddMachines,
    OneShot,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.job import Job
from trilithon.model.report import Report

# An engine's vocabulary is the model's, so that policies can use it, too.
__all__ = [
    "Ability",
    "Accepted",
    "Action",
    "AddMachines",
    "Capabilities",
    "Engine",
    "How",
    "OneShot",
    "Outcome",
    "Reallocate",
    "RemoveMachines",
    "RestartInstance",
    "RestartJob",
    "Status",
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that an engine runs: its file, what is wanted of it now, how it fares in a word, and
    from which checkpoint it runs.
    """

    job: Job
    allocation: Allocation
    health: str = "running"
    reason: str = ""
    checkpoint: str = ""


class Engine(Protocol):
    """Whatever runs jobs. Every method may be called again after a failure."""

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        """Starts a job. Refused, with numbers, if it does not fit; unchanged if it runs already.

        It goes on from the checkpoint of this name that an earlier
        life of it left, if there is one.
        """

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        """Ends a job and gives back what it held; its checkpoints are deleted unless they are to be
        kept. Unchanged if it does not run, though what is not to be kept is deleted even then.
        """

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
