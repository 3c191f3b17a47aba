"""Defines the shapes of answers about the cluster: health, machines, policies, requests, alerts."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trilithon.engines.composite import State
from trilithon.model.capability import Ability, How
from trilithon.model.change import Severity
from trilithon.model.mode import Mode
from trilithon.policies.requests import ScalingKind


class Liveness(BaseModel):
    """Whether the control loop lives."""

    status: Literal["ok", "dead"]


class Readiness(BaseModel):
    """Whether the controller reaches the engine."""

    status: Literal["ok", "starting", "waiting", "blind"]


class ServiceHealth(BaseModel):
    """The loop and its engine. `waiting`: for a host that somebody else runs; `blind`: the engine
    does not answer; `degraded`: some jobs do not run.
    """

    status: Literal["ok", "degraded", "starting", "waiting", "blind"]
    problem: str
    version: str
    policy: str
    round: int
    round_s: float
    last_round_s: float | None


class MachineView(BaseModel):
    """A machine, with the caller's instances on it. What was not measured is null."""

    name: str
    cores: float | None
    slots: int | None
    load: float | None
    memory_bytes: float | None
    memory_used_bytes: float | None
    instances: list[str] = Field(description="tenant/name operator[index]")


class ApplicationView(BaseModel):
    """One of several applications of the engine."""

    application: str
    state: State
    since_s: float
    jobs: list[str]


class TenantView(BaseModel):
    """What a tenant uses, and may use; null if it has no quota."""

    tenant: str
    jobs: int
    slots_used: int
    quota: int | None


class ClusterAnswer(ServiceHealth):
    """The cluster, as far as the caller may see it."""

    jobs: int
    running: int
    degraded: int
    failed: int
    slots: int | None = Field(description="null if the engine has no limit")
    slots_used: int
    tasks: int | None
    mode: Mode = Field(description="what the controller may do with machines")
    machines: list[str]
    machine_details: list[MachineView]
    policy_status: dict[str, Any] | None = Field(
        description="what the policy publishes about itself, in its own form; for administrators"
    )
    abilities: dict[Ability, How] = Field(description="what the engine can do, at what cost")
    applications: list[ApplicationView]
    tenants: list[TenantView]


class PolicyState(BaseModel):
    """The policy that decides, and its parameters."""

    policy: str
    parameters: dict[str, float | str]
    status: dict[str, Any] | None = Field(
        description="what the policy publishes about itself, in its own form; for administrators"
    )


class PolicyParameter(BaseModel):
    """A parameter of a policy."""

    name: str
    default: float | str
    unit: str
    meaning: str


class PolicyView(BaseModel):
    """A policy that a rules file can name."""

    policy: str
    summary: str
    parameters: list[PolicyParameter]


class ScalingRequestView(BaseModel):
    """A request for machines, and how it ended: null until it has."""

    request: str
    kind: ScalingKind
    machines: int
    machine_names: list[str] = Field(description="empty if the policy chooses the machines")
    job: str | None
    asked_s: float
    ended_s: float | None
    done: bool | None
    told: str


class ScalingAccepted(BaseModel):
    """A request for machines that the policy carries out in the next rounds."""

    request: str
    told: str


class HindranceAnswer(BaseModel):
    """Why there is no plan now."""

    code: str
    sentence: str


class OperatorRank(BaseModel):
    """An operator that may get instances."""

    job: str
    operator: str
    congested: bool
    etp: float | None
    input_per_s: float | None
    could_take_per_s: float | None
    instances: int
    most: int
    share_of_own_maximum: float | None


class MachineRank(BaseModel):
    """A machine that may be given back."""

    machine: str
    etp_sum: float
    instances: int


class PlanStep(BaseModel):
    """One choice of a plan. The strategy names the value by which it chose, such as `etp`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]

    subject: str
    projected_throughput: float | None
    why: str
    instead_of: str | None = Field(description="what the ranking alone would have chosen")


class InstanceMove(BaseModel):
    """Instances of an operator that go from one machine to another."""

    job: str
    operator: str
    instances: int
    from_: str = Field(alias="from")
    to: str


class ScalingPreview(BaseModel):
    """What a request for machines would do. With a hindrance there is no plan."""

    request: ScalingKind
    machines: int
    machine_names: list[str] = Field(description="empty if the policy chooses the machines")
    job: str | None
    carried_out_by: str | None = Field(description="null if no policy of the rules does")
    hindrance: HindranceAnswer | None
    strategy: str = ""
    machines_to_add: int = 0
    machines_to_remove: list[str] = []
    ranking: list[OperatorRank] | list[MachineRank] = []
    steps: list[PlanStep] = []
    throughput_per_s: float | None = None
    projected_throughput_per_s: float | None = None
    projected_before_exchange_per_s: float | None = Field(
        default=None, description="by the ranking alone, if the projection exchanged steps"
    )
    parallelism: dict[str, dict[str, tuple[int, int]]] = Field(
        default={}, description="by job and operator, the instances before and after"
    )
    placement: dict[str, dict[str, list[str | None]]] = {}
    moves: list[InstanceMove] = []
    notes: list[str] = []


class AlertView(BaseModel):
    """An alert, as webhooks get it. What policies alert of has no end."""

    code: str
    severity: Severity
    status: Literal["firing", "resolved"]
    job: str | None
    message: str
    since_s: float
    since: str
    ended_s: float | None
    sent_s: float = Field(description="when this was sent or answered")


class AlertLists(BaseModel):
    """Alerts whose cause lasts, and those that have ended or are said once, the oldest first."""

    active: list[AlertView]
    recent: list[AlertView]


class Usage(BaseModel):
    """What a tenant used on a day, in UTC."""

    tenant: str
    day: str
    slot_hours: float
