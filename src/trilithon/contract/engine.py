"""Defines the contract between the controller and the engine that runs jobs.

Wanted state (an allocation) is idempotent and carries a generation: applying it twice, or an older
one after a newer one, changes nothing. One-shot actions carry an id and are done at most once;
after a crash their outcome may be unknown. An action is done whole, or refused with a reason and
nothing is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from trilithon.contract.condition import RUNNING, Condition, Health
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

# These are defined in the model, so that policies can use them, too.
__all__ = [
    "Ability",
    "Accepted",
    "Action",
    "AddMachines",
    "Capabilities",
    "Condition",
    "Engine",
    "Health",
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
    """A job that an engine runs: its spec, its wanted allocation, its condition, and the checkpoint
    it runs from.
    """

    job: Job
    allocation: Allocation
    condition: Condition = RUNNING
    checkpoint: str = ""
    # The topics that carry edges between two operators, by the edge (`from->to`).
    edge_topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def health(self) -> Health:
        return self.condition.health

    @property
    def reason(self) -> str:
        return self.condition.reason


@runtime_checkable
class ShowsRecords(Protocol):
    """An engine that can show records inside a query."""

    def edge_records(self, job: str, edge: str, count: int) -> list[dict[str, Any]]:
        """The latest records of an edge between two operators, written `from->to`, the oldest
        first. Raises `NotObservable` if it cannot show them.
        """


class Engine(Protocol):
    """Runs jobs. Every method may be called again after a failure."""

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        """Starts a job. Refused, with numbers, if it does not fit; unchanged if it runs already.

        It continues from the checkpoint of this name, if there is one.
        """

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        """Stops a job and releases its slots; deletes its checkpoints unless `keep`. Unchanged if
        it does not run, though its checkpoints are deleted even then.
        """

    def apply(self, action: Action) -> Outcome:
        """Does an action whole, or not at all."""

    def jobs(self) -> Mapping[str, Accepted]:
        """All jobs that were accepted, for a controller that attaches later."""

    def conditions(self) -> Mapping[str, Condition]:
        """The condition of each accepted job: cheap, for a caller that asks often."""

    def reports(self) -> Sequence[Report]:
        """The reports of the probes since the last call, in order."""

    def capabilities(self) -> Capabilities:
        """What the engine can do now."""

    def close(self) -> None:
        """Ends the engine. A second call does nothing."""
