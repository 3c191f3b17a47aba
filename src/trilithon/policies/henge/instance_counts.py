"""Computes how many instances a Reconfiguration gives a job, and how many a Reduction takes.

SoCC'18, section 5.1: each congested operator gets (capacity / threshold − 1) × 10 more
(equation 4).
Section 5.2: each operator that is not congested loses 80 % of its instances.

Chosen: equation 4 is rounded up, and the guard's bounds, quotas and free slots limit it. Storm's
threads are cheap and slots are not, so an operator gets no more instances than bring it down to
the capacity `least`: with p instances at capacity c, that is p · (c / least − 1). From ten
instances on, equation 4 gives fewer anyway.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.view import ClusterView, JobView
from trilithon.policies.scene import Scene, Span

# Absorbs rounding errors: a quotient this close above a whole number is that number.
_ROUNDING = 1e-9
_UNLIMITED = 2**31


@dataclass(frozen=True, slots=True)
class ScalableOperator:
    """An operator whose parallelism may change. It is congested at a level above 1."""

    name: str
    instances: int
    span: Span
    level: float
    capacity: float

    @property
    def congested(self) -> bool:
        return self.level > 1


@dataclass(frozen=True, slots=True)
class InstanceGrant:
    """What a Reconfiguration can give a job: the new parallelism of its congested operators.

    `wanted` instances would be given if enough slots were free; `given` are.
    """

    parallelism: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[ScalableOperator, ...] = ()
    wanted: int = 0
    given: int = 0

    @property
    def starved(self) -> bool:
        """Whether more instances would help and no slot is free."""
        return self.wanted > 0 and self.given == 0


def scalable_operators(scene: Scene, job: JobView, view: ClusterView) -> Iterator[ScalableOperator]:
    """The job's operators that are not fixed and whose congestion is known, in order of names."""
    status = job.status
    fixed = status.fixed | set(scene.cluster.capabilities.fixed.get(job.id, ()))
    rows = view.window.layout.node_row
    for name, instances in sorted(status.allocation.parallelism.items()):
        span, row = status.spans.get(name), rows.get((job.id, name))
        if name in fixed or span is None or row is None:
            continue
        level, capacity = float(view.congestion.level[row]), float(view.congestion.capacity[row])
        if not (math.isnan(level) or math.isnan(capacity)):
            yield ScalableOperator(name, instances, span, level, capacity)


def extra_instances(operator: ScalableOperator, parameters: HengeParameters) -> int:
    """Equation 4 and its bounds, except for the cluster's free slots."""
    by_equation = math.ceil((operator.level - 1) * 10 - _ROUNDING)
    limits = [by_equation, parameters.step_most, operator.span.max - operator.instances]
    if parameters.least_capacity > 0:
        excess = operator.instances * (operator.capacity / parameters.least_capacity - 1)
        limits.append(max(1, math.ceil(excess - _ROUNDING)))
    return max(0, min(limits))


def plan_reconfiguration(
    scene: Scene, job: JobView, view: ClusterView, parameters: HengeParameters
) -> InstanceGrant:
    """The instances that a Reconfiguration would give this job."""
    operators = {
        operator.name: operator
        for operator in scalable_operators(scene, job, view)
        if operator.congested
    }
    extra = {
        name: count
        for name, operator in operators.items()
        if (count := extra_instances(operator, parameters)) > 0
    }
    wanted = min(sum(extra.values()), _allowance(scene, job, view))
    free = scene.cluster.slots_free
    given = wanted if free is None else max(0, min(wanted, free))
    counts = {name: operators[name].instances for name in extra}
    limits = {name: operators[name].instances + extra[name] for name in extra}
    for _ in range(given):
        # One by one, to the operator that would still be the busiest: c · p / (p + k).
        busiest = max(
            (name for name in counts if counts[name] < limits[name]),
            key=lambda name: operators[name].level * operators[name].instances / counts[name],
        )
        counts[busiest] += 1
    changed = {n: count for n, count in counts.items() if count > operators[n].instances}
    return InstanceGrant(changed, tuple(operators[n] for n in changed), wanted, given)


def _allowance(scene: Scene, job: JobView, view: ClusterView) -> int:
    """How many more instances the job's own limit and its tenant's quota allow."""
    status = job.status
    limits = [_UNLIMITED]
    max_instances = view.window.jobs[job.id].bounds.max_instances
    if max_instances is not None:
        limits.append(max_instances - status.allocation.instances)
    if (quota := scene.cluster.quotas.get(status.tenant)) is not None:
        limits.append(quota - scene.used_by(status.tenant))
    return max(0, min(limits))


def plan_reduction(
    scene: Scene, job: JobView, view: ClusterView, parameters: HengeParameters
) -> dict[str, int]:
    """The parallelism that a Reduction leaves this job's operators, of those that lose instances.

    Never below 1 or the guard's minimum. Chosen: nor so few that the operator's capacity
    c · p / p' exceeds `reduced_capacity`. The paper reduces without looking at the load, and
    repairs what it breaks by further Reconfigurations.
    """
    reduced = {}
    for operator in scalable_operators(scene, job, view):
        if operator.congested:
            continue
        instances = operator.instances
        by_share = math.ceil(instances * (1 - parameters.reduction) - _ROUNDING)
        by_load = math.ceil(instances * operator.capacity / parameters.reduced_capacity - _ROUNDING)
        count = max(1, operator.span.min, by_share, by_load)
        if count < instances:
            reduced[operator.name] = count
    return reduced
