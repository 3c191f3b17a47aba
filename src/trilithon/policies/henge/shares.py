"""Owns how many instances: what a Reconfiguration gives a job, and what a Reduction takes from it.

SoCC'18, section 5.1: each congested operator gets (capacity / threshold − 1) × 10 more         (equation 4)
Section 5.2: each operator that is not congested loses 80 % of its instances.

Chosen: equation 4 is rounded up, and the guard's bounds, quotas and free slots limit it. Threads of Storm
are cheap and slots are not, so an operator gets no more than would bring it down to a given capacity: with
p instances at capacity c, that is p · (c / least − 1). From ten instances on equation 4 gives fewer anyway.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trilithon.policies.henge.parameters import HengeParameters
from trilithon.policies.henge.view import JobView, View
from trilithon.policies.scene import Scene, Span

# A quotient that is whole but for rounding is whole.
_HAIR = 1e-9


@dataclass(frozen=True, slots=True)
class OperatorLoad:
    """An operator that may get another number of instances. Above a level of 1 it is congested."""

    name: str
    instances: int
    span: Span
    level: float
    capacity: float


@dataclass(frozen=True, slots=True)
class InstanceGrant:
    """What a job can be given: new numbers of instances, and why no more.

    `wanted` are the instances that it would get if slots were not scarce.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[OperatorLoad, ...] = ()
    wanted: int = 0
    given: int = 0

    @property
    def starved(self) -> bool:
        """More would be useful, and there is not one slot left to give."""
        return self.wanted > 0 and self.given == 0


def movable(scene: Scene, seen: JobView, view: View) -> Iterator[OperatorLoad]:
    """The operators that are not fixed and whose congestion is known, in the order of names."""
    status = seen.status
    fixed = status.fixed | set(scene.cluster.capabilities.fixed.get(seen.id, ()))
    rows = view.window.layout.node_row
    for name, instances in sorted(status.allocation.parallelism.items()):
        span, row = status.spans.get(name), rows.get((seen.id, name))
        if name in fixed or span is None or row is None:
            continue
        level, busy = float(view.congestion.level[row]), float(view.congestion.capacity[row])
        if not (math.isnan(level) or math.isnan(busy)):
            yield OperatorLoad(name, instances, span, level, busy)


def more(operator: OperatorLoad, parameters: HengeParameters) -> int:
    """Equation 4 and its bounds, but for what the cluster has left."""
    asked = math.ceil((operator.level - 1) * 10 - _HAIR)
    bounds = [asked, parameters.step_most, operator.span.max - operator.instances]
    if parameters.least_capacity > 0:
        excess = operator.instances * (operator.capacity / parameters.least_capacity - 1)
        bounds.append(max(1, math.ceil(excess - _HAIR)))
    return max(0, min(bounds))


def gift(scene: Scene, seen: JobView, view: View, parameters: HengeParameters) -> InstanceGrant:
    """What a Reconfiguration would give this job."""
    congested = tuple(one for one in movable(scene, seen, view) if one.level > 1)
    asked = {one.name: extra for one in congested if (extra := more(one, parameters)) > 0}
    allowed = _allowance(scene, seen, view)
    wanted = min(sum(asked.values()), allowed)
    free = scene.cluster.slots_free
    given = wanted if free is None else max(0, min(wanted, free))
    counts = {one.name: one.instances for one in congested if one.name in asked}
    limits = {one.name: one.instances + asked[one.name] for one in congested if one.name in asked}
    operators = {one.name: one for one in congested}
    for _ in range(given):
        # One by one to whoever would still be the busiest: c · p / (p + k).
        name = max(
            (name for name in counts if counts[name] < limits[name]),
            key=lambda n: operators[n].level * operators[n].instances / counts[n],
        )
        counts[name] += 1
    changed = {n: count for n, count in counts.items() if count > operators[n].instances}
    return InstanceGrant(changed, tuple(operators[n] for n in changed), wanted, given)


def _allowance(scene: Scene, seen: JobView, view: View) -> int:
    """How many more instances the job itself and its tenant may have."""
    status = seen.status
    limits = [2**31]
    job = view.window.jobs[seen.id]
    if job.bounds.max_instances is not None:
        limits.append(job.bounds.max_instances - status.allocation.instances)
    if (quota := scene.cluster.quotas.get(status.tenant)) is not None:
        limits.append(quota - scene.used_by(status.tenant))
    return max(0, min(limits))


def fewer(scene: Scene, seen: JobView, view: View, parameters: HengeParameters) -> dict[str, int]:
    """What a Reduction would leave this job, of the operators that lose something.

    Never below 1 nor below the guard's bound. Chosen: nor so few that they would be too busy, at
    c · p / p'; the paper reduces blindly and mends what breaks by further Reconfigurations.
    """
    left = {}
    for one in movable(scene, seen, view):
        if one.level > 1:
            continue
        target = math.ceil(one.instances * (1 - parameters.reduction) - _HAIR)
        needed = math.ceil(one.instances * one.capacity / parameters.reduced_capacity - _HAIR)
        count = max(1, one.span.min, target, needed)
        if count < one.instances:
            left[one.name] = count
    return left
