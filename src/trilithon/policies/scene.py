"""Defines the scene, a policy's input: measurements, job statuses, the cluster, and feedback."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities
from trilithon.model.layout import InstanceKey
from trilithon.model.mode import Mode
from trilithon.model.series import Series
from trilithon.model.snapshot import present
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import Feedback
from trilithon.policies.requests import ScalingRequest


@dataclass(frozen=True, slots=True)
class Span:
    """The least and the most instances that the guard grants an operator."""

    min: int
    max: int

    def clip(self, count: int) -> int:
        return max(self.min, min(self.max, count))


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job when a round begins.

    `gap_s` has, for each kind of action that was ever applied to the job, the seconds for which
    its records stopped; a kind that is absent was never applied. `fixed` are operators whose
    parallelism must not change, because the job says so or the engine cannot. `hold_reason` is the
    code of why the guard would refuse any change now; it is empty if it would not.
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
        """Whether the guard and the engine would carry out a decision about the job now."""
        return self.mode is Mode.AUTO and not self.in_flight and not self.hold_reason


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the last snapshot. Values that were not measured are None; `slots` are the slots
    that the machine brings, where the engine knows it.
    """

    name: str
    cores: float | None
    slots: int | None
    load: float | None
    memory_bytes: float | None
    memory_used_bytes: float | None
    instances: tuple[InstanceKey, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What all jobs share.

    `slots` is None where an engine has no limit; a tenant that is absent from `quotas` has none.
    `unseen` are the instances of jobs without a status, by tenant: jobs that are being started, or
    replaced by a new version. `down_delay_s` is how long fewer instances must be requested before
    the guard grants them. `mode` says whether the controller may change machines;
    `machines_changed_s` is when machines were last added or removed.
    """

    capabilities: Capabilities
    slots: int | None = None
    slots_used: int = 0
    quotas: Mapping[str, int] = field(default_factory=dict)
    unseen: Mapping[str, int] = field(default_factory=dict)
    down_delay_s: float = 0.0
    mode: Mode = Mode.AUTO
    machines_changed_s: float | None = None

    @property
    def slots_free(self) -> int | None:
        return None if self.slots is None else self.slots - self.slots_used


@dataclass(frozen=True)
class Scene:
    """Everything that a policy may decide from.

    `round` is the number of the round, unique within a journal. The series is as long as the
    policy asked for, and not empty. `feedback` is what became of the policy's own decisions of
    earlier rounds, by decision id, for as many rounds as it asked for. Where policies are layered,
    `earlier` are the decisions of earlier layers in this round, and `issuer` is the name of the
    layer that decides now. `requests` are what people ask for and no policy has ended yet.
    """

    round: int
    series: Series
    statuses: Mapping[str, JobStatus]
    cluster: Cluster
    feedback: Mapping[str, Feedback] = field(default_factory=dict)
    earlier: tuple[Decision, ...] = ()
    issuer: str = ""
    requests: tuple[ScalingRequest, ...] = ()

    @property
    def now_s(self) -> float:
        return self.series.last.time_s

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """The machines of the last snapshot, in its order, with the instances that run on each."""
        last, slots = self.series.last, self.cluster.capabilities.machine_slots
        layout, columns = last.layout, last.machines
        keys = tuple(layout.instance_row)
        instances: dict[int, list[InstanceKey]] = {}
        for row in np.flatnonzero(~np.isnan(last.instances.machine)):
            instances.setdefault(int(last.instances.machine[row]), []).append(keys[row])
        return tuple(
            Machine(
                name=name,
                cores=present(columns.cores[row]),
                slots=slots.get(name),
                load=present(columns.load[row]),
                memory_bytes=present(columns.memory_bytes[row]),
                memory_used_bytes=present(columns.memory_used_bytes[row]),
                instances=tuple(instances.get(row, ())),
            )
            for row, name in enumerate(layout.machines)
        )

    @property
    def machine_names(self) -> tuple[str, ...]:
        return self.series.last.layout.machines

    def used_by(self, tenant: str) -> int:
        """The slots in use by all jobs of a tenant."""
        return self.cluster.unseen.get(tenant, 0) + sum(
            status.allocation.instances
            for status in self.statuses.values()
            if status.tenant == tenant
        )
