"""Checks weights, placement, key groups, avoided tasks and batching against the shape of a job."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from trilithon.model.change import (
    AllocationChange,
    AvoidedTasksChange,
    BatchingChange,
    KeyGroupsChange,
    ParallelismChange,
    PlacementChange,
    WeightsChange,
    facet_name,
)
from trilithon.model.groups import KEY_GROUPS, SPREAD
from trilithon.model.job import Grouping, Job
from trilithon.policies.feedback import Clip

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """The shape of a job: `counts` are the instances that its operators will have, `fixed` the
    operators excluded from changes, `machines` those of the cluster.
    """

    job: Job
    counts: Mapping[str, int]
    fixed: Collection[str]
    machines: Collection[str]

    def check(self, change: AllocationChange) -> tuple[AllocationChange | None, list[Clip]]:
        """What fits of a change, and a clip for each operator or edge that does not."""
        facet = facet_name(change)
        match change:
            case ParallelismChange():
                return change, []
            case WeightsChange(job, weights):
                kept, clips = self._fitting(facet, weights, self._weights)
                return (WeightsChange(job, kept) if kept else None), clips
            case PlacementChange(job, placement):
                places, clips = self._fitting(facet, placement, self._places)
                return (PlacementChange(job, places) if places else None), clips
            case KeyGroupsChange(job, groups):
                owners, clips = self._fitting(facet, groups, self._groups)
                return (KeyGroupsChange(job, owners) if owners else None), clips
            case AvoidedTasksChange(job, avoided):
                tasks, clips = self._fitting(facet, avoided, self._avoided)
                return (AvoidedTasksChange(job, tasks) if tasks else None), clips
            case BatchingChange(job, waits):
                edges = {edge.name for edge in self.job.edges}
                wrong = {
                    edge: "UNKNOWN_EDGE" if edge not in edges else "INVALID"
                    for edge, wait_ms in waits.items()
                    if edge not in edges or not 0 <= wait_ms < math.inf
                }
                left = {edge: wait_ms for edge, wait_ms in waits.items() if edge not in wrong}
                clips = [Clip(code, str(edge), facet=facet) for edge, code in wrong.items()]
                return (BatchingChange(job, left) if left else None), clips

    def _fitting(
        self, facet: str, wanted: Mapping[str, V], check: Callable[[str, V], str]
    ) -> tuple[dict[str, V], list[Clip]]:
        kept: dict[str, V] = {}
        clips: list[Clip] = []
        for operator, values in wanted.items():
            if operator not in self.counts:
                code = "UNKNOWN_OPERATOR"
            else:
                code = "FIXED" if operator in self.fixed else check(operator, values)
            if code:
                clips.append(Clip(code, operator, facet=facet))
            else:
                kept[operator] = values
        return kept, clips

    def _weights(self, operator: str, weights: tuple[float, ...]) -> str:
        if len(weights) != self.counts[operator]:
            return "SHAPE"
        return "" if min(weights) >= 0 and 0 < sum(weights) < math.inf else "INVALID"

    def _places(self, operator: str, machines: tuple[str | None, ...]) -> str:
        if len(machines) != self.counts[operator]:
            return "SHAPE"
        named = {machine for machine in machines if machine is not None}
        return "UNKNOWN_MACHINE" if self.machines and named - set(self.machines) else ""

    def _avoided(self, operator: str, tasks: tuple[int, ...]) -> str:
        there = range(self.job.operator(operator).tasks)
        return "" if all(task in there for task in tasks) else "UNKNOWN_TASK"

    def _groups(self, operator: str, owners: tuple[int, ...]) -> str:
        into = [edge for edge in self.job.edges if edge.target == operator]
        if not any(edge.grouping is Grouping.BY_KEY for edge in into):
            return "NOT_KEYED"
        if len(owners) != KEY_GROUPS:
            return "INVALID"
        if SPREAD in owners and not self.job.can_spread(operator):
            return "CANNOT_SPREAD"
        instances = range(self.counts[operator])
        return "" if all(owner in instances for owner in {*owners} - {SPREAD}) else "SHAPE"
