"""Defines the shapes of decisions: what was asked, granted, clipped, expected, and came of it."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from trilithon.model.change import Severity
from trilithon.model.utility import Sense


class ParallelismProposal(BaseModel):
    """Instances per operator."""

    change: Literal["parallelism"]
    job: str
    parallelism: dict[str, int]


class WeightsProposal(BaseModel):
    """How much each instance of an operator gets, relative to its peers."""

    change: Literal["weights"]
    job: str
    weights: dict[str, list[float]]


class PlacementProposal(BaseModel):
    """The machine of each instance; null leaves it to the engine."""

    change: Literal["placement"]
    job: str
    placement: dict[str, list[str | None]]


class KeyGroupsProposal(BaseModel):
    """The instance of each key group of an operator; -1 for all instances."""

    change: Literal["key_groups"]
    job: str
    groups: dict[str, list[int]]


class AvoidedTasksProposal(BaseModel):
    """Tasks of an operator that get records only if there are no others."""

    change: Literal["avoided_tasks"]
    job: str
    avoided: dict[str, list[int]]


class BatchingProposal(BaseModel):
    """How long a record may wait at its sender for others, by edge."""

    change: Literal["batching"]
    job: str
    batching_ms: dict[str, float]


class InstanceRestartProposal(BaseModel):
    """One instance begins anew."""

    change: Literal["restart_instance"]
    job: str
    operator: str
    index: int


class JobRestartProposal(BaseModel):
    """The job stops and goes on from its checkpoint."""

    change: Literal["restart_job"]
    job: str


class MachinesAdditionProposal(BaseModel):
    """The cluster gets machines."""

    change: Literal["add_machines"]
    count: int


class MachinesRemovalProposal(BaseModel):
    """The cluster gives machines back."""

    change: Literal["remove_machines"]
    machines: list[str]


class AlertProposal(BaseModel):
    """What a policy wants people to know; it changes nothing."""

    change: Literal["alert"]
    job: str | None
    severity: Severity
    code: str
    sentence: str
    advice: str
    operator: str | None


Proposal = Annotated[
    ParallelismProposal
    | WeightsProposal
    | PlacementProposal
    | KeyGroupsProposal
    | AvoidedTasksProposal
    | BatchingProposal
    | InstanceRestartProposal
    | JobRestartProposal
    | MachinesAdditionProposal
    | MachinesRemovalProposal
    | AlertProposal,
    Field(discriminator="change"),
]


class ClipView(BaseModel):
    """Why a part of a decision was not granted as asked. The codes are in reference/control.md."""

    code: str
    operator: str | None = None
    asked: int | None = None
    granted: int | None = None
    facet: str = "parallelism"
    job: str | None = Field(default=None, description="if it is not the decision's own job")


class ExpectationView(BaseModel):
    """What a decision should bring about, and until when."""

    metric: str
    value: float
    by_s: float
    sense: Sense


class ExpectationOutcome(BaseModel):
    """What was measured when the expectation's time had come; null if it could not be."""

    time_s: float
    value: float | None
    kept: bool | None


class DecisionExplanation(BaseModel):
    """A decision in sentences and in numbers. In the explanation of a job its failures and
    recoveries are listed, too, as decisions that asked for nothing.
    """

    id: str
    time_s: float
    time: str
    job: str | None = Field(description="null if it is about the whole cluster")
    reason: str
    times: int = Field(description="in how many rounds the same was decided")
    numbers: dict[str, float | None] = Field(description="what it is based on")
    causes: list[str] = Field(description="the ids of the decisions that it follows from")
    asked: list[Proposal]
    granted: list[Proposal]
    clips: list[ClipView]
    expects: ExpectationView | None
    came: ExpectationOutcome | None
    sentences: list[str]
