"""Owns what a policy gets to see: the measurements, how each job stands, and what the cluster has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities
from trilithon.model.series import Series


class Mode(StrEnum):
    """How far a controller may go with a job."""

    AUTO = "auto"  # decide and act
    ADVISE = "advise"  # decide and say so, and leave acting to people
    OFF = "off"  # do not decide


@dataclass(frozen=True, slots=True)
class Span:
    """The least and the most instances that the guard grants an operator."""

    min: int
    max: int

    def clip(self, count: int) -> int:
        return max(self.min, min(self.max, count))


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands when a round begins.

    `gap_s` has, for each kind of action that was ever done to it, the seconds for which its records
    stopped; a kind that is not there was never done. `fixed` are operators whose parallelism must not
    be changed, by the job's own wish or because the engine cannot. `hold_reason` is why the guard would refuse
    any change now, in a code; it is empty if it would not.
    """

    job: str
    tenant: str
    allocation: Allocation
    accepted_s: float
    changed_s: float | None = None
    mode: Mode = Mode.AUTO
    in_flight: bool = False
    hold_reason: str = ""
    gap_s: Mapping[Ability, float] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    spans: Mapping[str, Span] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether a decision about it would be carried out now."""
        return self.mode is Mode.AUTO and not self.in_flight and not self.hold_reason


@dataclass(frozen=True, slots=True)
class Cluster:
    """What all jobs share. `slots` is None where an engine knows no limit; a tenant without a quota
    has none. `unseen` are the instances of jobs that have no status, by tenant: they are being started, or a new
    version is. `down_delay_s` is for how long fewer must be wished for before the guard grants it.
    """

    capabilities: Capabilities
    slots: int | None = None
    slots_used: int = 0
    quotas: Mapping[str, int] = field(default_factory=dict)
    machines: tuple[str, ...] = ()
    unseen: Mapping[str, int] = field(default_factory=dict)
    down_delay_s: float = 0.0

    @property
    def slots_free(self) -> int | None:
        return None if self.slots is None else self.slots - self.slots_used


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a policy may decide from. `round` is the number of the round, and never comes
    twice in the life of a journal. The series is as long as the policy asked for, and not empty.
    """

    round: int
    series: Series
    statuses: Mapping[str, JobStatus]
    cluster: Cluster

    @property
    def now_s(self) -> float:
        return self.series.last.time_s

    def used_by(self, tenant: str) -> int:
        """The slots in use by all jobs of a tenant."""
        return self.cluster.unseen.get(tenant, 0) + sum(
            status.allocation.instances
            for status in self.statuses.values()
            if status.tenant == tenant
        )
