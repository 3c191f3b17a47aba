"""Reads a scene for scaling: rates, ETP, limits, and where every instance runs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trilithon.measures.capacity import congested_by_rates
from trilithon.measures.etp import Rates, etp, etp_as_printed
from trilithon.measures.flow import Flow
from trilithon.measures.rates import (
    back_pressure,
    could_take_rate,
    input_rate,
    processing_rate,
)
from trilithon.measures.slo import sink_weights
from trilithon.model.capability import Ability, How
from trilithon.model.columns import Floats, Ints
from trilithon.model.layout import InstanceKey, Layout
from trilithon.model.series import Window
from trilithon.policies.free_slots import FreeSlots
from trilithon.policies.scene import Scene
from trilithon.policies.stela.stela_parameters import AS_PRINTED, StelaParameters

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ScalingView:
    """What a plan is made of. `jobs` are those that may be changed. `newer` are machines that have
    come since the last action; an engine may have moved instances there by itself.
    """

    scene: Scene
    window: Window
    parameters: StelaParameters
    jobs: tuple[str, ...]
    newer: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        return self.window.layout

    @cached_property
    def input(self) -> Floats:
        return input_rate(self.window)

    @cached_property
    def could_take(self) -> Floats:
        """Under back-pressure, what an operator would take if its receivers let it."""
        return could_take_rate(self.window)

    @cached_property
    def processing(self) -> Floats:
        return processing_rate(self.window)

    @cached_property
    def sink_weight(self) -> Floats:
        return sink_weights(self.layout, self.window.jobs)

    @cached_property
    def flow(self) -> Flow:
        return Flow.measured(self.window)

    @cached_property
    def rates(self) -> Rates:
        return Rates(self.input, self.could_take, self.edge_rate, self.layout.parallelism)

    @cached_property
    def edge_rate(self) -> Floats:
        """What is sent over each edge; where senders are held back, what they would send."""
        b = np.minimum(np.nan_to_num(back_pressure(self.window)), 0.99)
        rate: Floats = self.window.edges.emitted / (1 - b) / self.window.span_s
        return rate

    def congested(self, input_: Floats, could_take: Floats) -> Bools:
        congested = congested_by_rates(input_, could_take, self.parameters.congestion_rate)
        congested[self.layout.source_nodes] = False
        return congested

    def etp(self, taken: Floats, congested: Bools) -> Floats:
        measure = etp_as_printed if self.parameters.etp == AS_PRINTED else etp
        return measure(self.layout, taken, congested, self.sink_weight)

    @cached_property
    def etp_now(self) -> Floats:
        return self.etp(self.processing, self.congested(self.input, self.could_take))

    @cached_property
    def priorities(self) -> Floats:
        """Per job of the layout, relative to the highest."""
        given = np.array([self.window.jobs[name].intent.priority for name in self.layout.jobs])
        most = given.max(initial=0.0)
        return given / most if most > 0 else np.ones(len(given))

    @cached_property
    def throughput(self) -> Floats:
        """Records per second at the sinks of each job, weighted, as measured."""
        sinks = self.layout.sink_nodes
        written = self.processing[sinks] * self.sink_weight
        jobs = self.layout.node_job[sinks]
        return np.bincount(jobs, written, len(self.layout.jobs)).astype(np.float64)

    # What may be changed.

    @cached_property
    def most(self) -> Ints:
        """The most instances of each node; those that it has, where it must not change."""
        most = self.layout.parallelism.copy()
        for (job, name), row in self.layout.node_row.items():
            status = self.scene.statuses.get(job)
            if status is None or job not in self.jobs or name in status.fixed:
                continue
            if (span := status.spans.get(name)) is not None:
                most[row] = max(most[row], span.max)
        return most

    def job_room(self) -> dict[str, float]:
        """How many more instances each job may have, by its own limit."""
        room = {}
        for name in self.jobs:
            limit = self.window.jobs[name].bounds.max_instances
            used = self.scene.statuses[name].allocation.instances
            room[name] = float("inf") if limit is None else max(0, limit - used)
        return room

    def free_slots(self, added: int) -> FreeSlots:
        """The slots that are free, with those that so many new machines bring."""
        free = FreeSlots.of(self.scene)
        if added and self.scene.cluster.slots is not None and self.scene.machine_names:
            free.cluster += added * self.scene.cluster.slots // len(self.scene.machine_names)
        return free

    def fixed(self, job: str, operator: str) -> bool:
        """Whether an operator must stay as it is: the engine itself moves its instances when their
        machine goes.
        """
        return operator in self.scene.statuses[job].fixed

    def counts(self, job: str) -> dict[str, int]:
        return dict(self.scene.statuses[job].allocation.parallelism)

    # Where instances run.

    @cached_property
    def placement(self) -> Mapping[str, tuple[InstanceKey, ...]]:
        """The instances on each machine, in the order of the machines."""
        return {machine.name: machine.instances for machine in self.scene.machines}

    @cached_property
    def machine_of(self) -> Mapping[InstanceKey, str]:
        return {key: name for name, keys in self.placement.items() for key in keys}

    @cached_property
    def _indices(self) -> Mapping[tuple[str, str], list[int]]:
        """The numbers of the instances of each operator that reports, in order."""
        indices: dict[tuple[str, str], list[int]] = {}
        for job, operator, index in sorted(self.layout.instance_row):
            indices.setdefault((job, operator), []).append(index)
        return indices

    def indices_of(self, job: str, operator: str) -> Sequence[int]:
        """The numbers of an operator's instances. They have gaps where an engine places instances
        by choosing some of its tasks.
        """
        count = self.scene.statuses[job].allocation.parallelism[operator]
        known = self._indices.get((job, operator), [])
        return known if len(known) == count else range(count)

    def machines_of(self, job: str, operator: str) -> list[str | None]:
        """The machine of each instance of an operator; None where it is not known."""
        indices = self.indices_of(job, operator)
        return [self.machine_of.get((job, operator, index)) for index in indices]

    @property
    def old_machines(self) -> tuple[str, ...]:
        """The machines that are not new, whether they run instances or not."""
        new = set(new_machine_names(self.scene, self.newer))
        return tuple(name for name in self.placement if name not in new)

    @property
    def instances_per_machine(self) -> float:
        """All instances by the machines that are not new: an engine may have moved some to a new
        one, so that fewer machines run any than the cluster had.
        """
        count = len(self.old_machines)
        return sum(map(len, self.placement.values())) / count if count else 0.0


def new_machine_names(scene: Scene, newer: Collection[str] = ()) -> tuple[str, ...]:
    """The machines that a scale-out may use, in its order: those that have come since the last
    action, then those that run no instance.

    Where an engine spreads tasks over all machines, an old one may run none by chance, and an
    average over the rest would be too high. There it is no new one unless the engine cannot start
    machines.
    """
    by_chance = scene.cluster.capabilities.tasks_spread and can_add(scene)
    empty = () if by_chance else [m.name for m in scene.machines if not m.instances]
    there = [name for name in scene.machine_names if name in newer]
    return tuple(dict.fromkeys([*there, *empty]))


def can_add(scene: Scene) -> bool:
    return scene.cluster.capabilities.of(Ability.ADD_MACHINES) is not How.NOT_AT_ALL
