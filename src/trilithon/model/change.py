"""Defines what a decision may propose: one type of change per facet,
and alerts that change nothing.

    AllocationChange    the wanted state of a job; idempotent
    ├── ParallelismChange   instances per operator
    ├── WeightsChange       how much each instance gets, relative to its peers
    ├── PlacementChange     on which machine each instance runs
    ├── KeyGroupsChange     which instance has which key group
    ├── AvoidedTasksChange  which tasks get records only if there are no others
    └── BatchingChange      how long a record may wait at its sender for others
    OneShotChange       done at most once
    ├── InstanceRestart     one instance begins anew
    ├── JobRestart          a job stops and goes on from its checkpoint
    ├── MachinesAddition    the cluster gets machines
    └── MachinesRemoval     the cluster gives machines back
    Alert               something that people should know or do

A change names what it changes and nothing else. The controller turns the changes that the
guard grants into actions for the engine, and numbers these: a policy knows neither
generations nor ids of actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from trilithon.model.capability import Ability
from trilithon.model.intent import EdgeName


@dataclass(frozen=True, slots=True)
class ParallelismChange:
    facet: ClassVar[Ability] = Ability.PARALLELISM
    job: str
    parallelism: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WeightsChange:
    facet: ClassVar[Ability] = Ability.WEIGHTS
    job: str
    weights: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """None leaves an instance to the engine."""

    facet: ClassVar[Ability] = Ability.PLACEMENT
    job: str
    placement: Mapping[str, tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class KeyGroupsChange:
    """All groups of an operator: the instance of each, or `SPREAD` for all instances."""

    facet: ClassVar[Ability] = Ability.KEY_GROUPS
    job: str
    groups: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class AvoidedTasksChange:
    """All avoided tasks of an operator, by number; none of them lifts it."""

    facet: ClassVar[Ability] = Ability.AVOIDED_TASKS
    job: str
    avoided: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BatchingChange:
    facet: ClassVar[Ability] = Ability.BATCHING
    job: str
    batching_ms: Mapping[EdgeName, float]


@dataclass(frozen=True, slots=True)
class InstanceRestart:
    facet: ClassVar[Ability] = Ability.RESTART_INSTANCE
    job: str
    operator: str
    index: int


@dataclass(frozen=True, slots=True)
class JobRestart:
    facet: ClassVar[Ability] = Ability.RESTART_JOB
    job: str


@dataclass(frozen=True, slots=True)
class MachinesAddition:
    facet: ClassVar[Ability] = Ability.ADD_MACHINES
    job: ClassVar[None] = None
    count: int


@dataclass(frozen=True, slots=True)
class MachinesRemoval:
    facet: ClassVar[Ability] = Ability.REMOVE_MACHINES
    job: ClassVar[None] = None
    machines: tuple[str, ...]


class Severity(StrEnum):
    INFO = "info"  # nothing has to be done
    WARNING = "warning"  # an intent is missed, or will be
    CRITICAL = "critical"  # an intent cannot be kept until somebody acts


@dataclass(frozen=True, slots=True)
class Alert:
    """What people should know: a stable code, a sentence, and what they can do about it."""

    facet: ClassVar[None] = None
    job: str | None
    severity: Severity
    code: str
    sentence: str
    advice: str
    operator: str | None = None


AllocationChange = (
    ParallelismChange
    | WeightsChange
    | PlacementChange
    | KeyGroupsChange
    | AvoidedTasksChange
    | BatchingChange
)
MachinesChange = MachinesAddition | MachinesRemoval
OneShotChange = InstanceRestart | JobRestart | MachinesChange
Change = AllocationChange | OneShotChange
Proposal = Change | Alert

ALERT: Final = "alert"


def facet_name(proposal: Proposal) -> str:
    """The name of a facet as it is written in files and messages; of an alert `alert`."""
    return ALERT if proposal.facet is None else proposal.facet.value
