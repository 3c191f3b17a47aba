"""Owns the simulated engine: jobs on a cluster that is not there, behind the contract.

Time goes on only when somebody says so (`advance`). What is asked for is checked at once and has its
effect when the engine's character says; until then the job runs on as before, or stands.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import numpy as np

from trilithon.contract.engine import (
    Ability,
    Accepted,
    Action,
    AddMachines,
    Capabilities,
    How,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.engines.abilities import fixed_operators
from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.character import Character, QueuedRecords
from trilithon.engines.simulated.event_run import EventRun
from trilithon.engines.simulated.faults import AnyFault
from trilithon.engines.simulated.fluid_run import FluidRun
from trilithon.engines.simulated.injection import inject
from trilithon.engines.simulated.job_rows import JobRows, add_job, route
from trilithon.engines.simulated.machines import MachineRegistry, MachineSpec
from trilithon.engines.simulated.memory_use import memory_used
from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.engines.simulated.reporting import ReportedJob, Reporter
from trilithon.engines.simulated.world_tables import DRAINING, PAUSED, RUNNING, Floats, World
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.errors import BatchingUnsupported, InvalidAllocation, NotFound, TrilithonError
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job
from trilithon.model.report import Report

UNCHANGED: Final = Outcome(Status.UNCHANGED)
# How often is looked whether a job has been drained at a boundary, and how long at the most.
LOOK_S: Final = 0.01
LONGEST_DRAIN_S: Final = 30.0
# How often credits are renewed by what was taken, at the most.
EXCHANGE_S: Final = 0.1
# Tasks and slots of a cluster of which nobody said how many it has.
UNBOUNDED: Final = 1_000_000


class SimulationMode(StrEnum):
    """How a run is calculated: as flows in steps, or record by record."""

    FLUID = "fluid"
    EVENTS = "events"


class SourceLoad(Protocol):
    """What comes to a source: the records from the start up to a moment."""

    def total(self, at_s: float) -> float: ...


@dataclass
class SimulatedJob:
    """A job that was accepted: what is wanted of it, and how it fares."""

    job: Job
    allocation: Allocation
    rows: JobRows
    born_s: float
    loads: dict[str, SourceLoad] = field(default_factory=dict)
    # What each load had sent by now.
    load_totals: dict[str, float] = field(default_factory=dict)
    life: int = 1
    boundary_s: float = 0.0
    read_by_boundary: dict[str, float] = field(default_factory=dict)
    stall_left_s: float = 0.0
    paused_until_s: float = 0.0
    reason: str = ""
    # Which instance has which key groups now, per operator that gets its records by key.
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    checkpoint: str = ""


@dataclass(frozen=True)
class StoppedJob:
    """What a job left when it ended for a while: records in its logs, and what was coming."""

    life: int
    records: dict[str, int]
    loads: dict[str, SourceLoad]
    load_totals: dict[str, float]


class SimulatedEngine:
    """A cluster in memory. Deterministic: the same calls with the same seed give the same bytes."""

    def __init__(
        self,
        machines: Sequence[MachineSpec],
        character: Character,
        assumed: Assumed,
        *,
        mode: SimulationMode = SimulationMode.FLUID,
        seed: int = 0,
        tasks: int | None = None,
        slots: int | None = None,
        quotas: Mapping[str, int] | None = None,
        even: bool = False,
        step_s: float = 1.0,
    ) -> None:
        self.character, self.assumed, self.mode, self.step_s = character, assumed, mode, step_s
        self.machines = MachineRegistry(machines)
        world = world_tables.appended(world_tables.empty(), machines=self.machines.rows())
        world.machines["other"][:1] = character.constant_load
        self.run: FluidRun | EventRun = (
            FluidRun(world, even=even)
            if mode is SimulationMode.FLUID
            else EventRun(world, seed, even=even)
        )
        self.ledger = Ledger(tasks or UNBOUNDED, slots or UNBOUNDED, quotas or {})
        self.running: dict[str, SimulatedJob] = {}
        self.now_s = 0.0
        self.closed = False
        self._ids: set[str] = set()
        self._checkpoints: dict[str, dict[str, StoppedJob]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._sequences: dict[str, int] = {}
        self._reporter: Reporter | None = None
        self._lost: list[str] = []
        self._renewed_s = 0.0

    @property
    def world(self) -> World:
        return self.run.world

    # --- the contract

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.running:
            return UNCHANGED
        try:
            self._check(job, allocation)
            self.ledger.reserve(job.id, Entry(job.tenant, job.tasks, allocation.instances))
        except TrilithonError as error:
            return _refused(error)
        world, rows = add_job(self.world, job, self.character, self.assumed)
        self.run.changed(world)
        running = SimulatedJob(
            job, allocation, rows, self.now_s, boundary_s=self.now_s + job.batch_s
        )
        running.checkpoint = checkpoint
        self.running[job.id] = running
        self._apply_allocation(running)
        if (stopped := self._checkpoints.get(job.id, {}).get(checkpoint)) is not None:
            self._resume(running, stopped)
        if self.character.has_batches and self.mode is SimulationMode.EVENTS:
            self.at(running.boundary_s, lambda: self._boundary(running))
        return Outcome(Status.DONE, took_s=0.0)

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        if not keep:
            self._checkpoints.pop(job, None)
        if (running := self.running.pop(job, None)) is None:
            return UNCHANGED
        if keep:
            self._checkpoints.setdefault(job, {})[running.checkpoint] = self._stopped(running)
        self.world.jobs["alive"][running.rows.row] = 0
        self.world.jobs["mode"][running.rows.row] = PAUSED
        self.run.clear(running.rows.row)
        self.ledger.release(job)
        self._reporter = None
        return Outcome(Status.DONE)

    def _stopped(self, running: SimulatedJob) -> StoppedJob:
        """What a job leaves behind: everything that is not through will be read again."""
        nodes = self.world.nodes
        under_way = self.run.in_system(running.rows.row)
        records = {}
        for i, source in enumerate(running.job.sources):
            row = running.rows.nodes[source.name]
            again = under_way if i == 0 else 0
            records[source.name] = int(nodes["arrived"][row] - nodes["read"][row]) + again
        return StoppedJob(running.life, records, dict(running.loads), dict(running.load_totals))

    def _resume(self, running: SimulatedJob, stopped: StoppedJob) -> None:
        """From where an earlier life ended: its log, and what came into it in the meantime."""
        running.life = stopped.life + 1
        for source in running.job.sources:
            if (load := stopped.loads.get(source.name)) is not None:
                self.feed(running.job.id, source.name, load)
                since = running.load_totals[source.name] - stopped.load_totals[source.name]
                count = stopped.records[source.name] + int(since)
                self.run.replay(running.rows.nodes[source.name], max(0, count), 0.0)

    def apply(self, action: Action) -> Outcome:
        try:
            if isinstance(action, Reallocate):
                return self._reallocate(action.allocation)
            return self._one_shot(action)
        except TrilithonError as error:
            return _refused(error)

    def jobs(self) -> Mapping[str, Accepted]:
        return {
            name: Accepted(
                running.job,
                running.allocation,
                "degraded" if running.reason else "running",
                running.reason,
                running.checkpoint,
            )
            for name, running in self.running.items()
        }

    def reports(self) -> Sequence[Report]:
        """The state of now, from every machine that is heard, and from the host."""
        standing = {
            name: ReportedJob(running.job, running.allocation, running.rows, running.life)
            for name, running in self.running.items()
        }
        if self._reporter is None:
            self._reporter = Reporter(
                self.world, standing, reports_memory=self.character.reports_memory
            )
        # What ran on a machine that is gone counts on elsewhere: its own last word is empty.
        lost = tuple(self._lost)
        found = [Report(name, self._next_sequence(name), self.now_s) for name in lost]
        found.append(self._reporter.host(self.world, self._next_sequence("host"), self.now_s, lost))
        self._lost.clear()
        used = memory_used(self.world, self.running.values(), self.run.records_held(), self.assumed)
        for row in self.machines.usable():
            if self.machines.reporting[row]:
                machine, sender = self.machines.all[row], self.machines.sender(row)
                memory = (machine.memory_bytes, float(used[row]))
                number = self._next_sequence(sender)
                found.append(
                    self._reporter.machine(
                        self.world, row, machine.name, sender, number, self.now_s, memory
                    )
                )
        return found

    def capabilities(self) -> Capabilities:
        jobs = [running.job for running in self.running.values()]
        fixed = fixed_operators(jobs, state_moves=self.character.state_moves)
        return Capabilities(
            dict(self.character.how), slots=self.ledger.slots, tasks=self.ledger.tasks, fixed=fixed
        )

    def close(self) -> None:
        self.closed = True

    # --- time, load, faults

    def feed(self, job: str, source: str, load: SourceLoad) -> None:
        """From now on this comes to a source; the load's own time begins at the engine's."""
        if (running := self.running.get(job)) is None or source not in running.rows.nodes:
            raise NotFound(f"There is no source {source!r} of a job {job!r}.", "")
        running.loads[source] = load
        running.load_totals[source] = load.total(self.now_s)

    def inject(self, fault: AnyFault) -> None:
        inject(self, fault)

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        """Something is done when its time has come."""
        self._timer_count += 1
        heapq.heappush(self._timers, (time_s, self._timer_count, do))

    def advance(self, span_s: float) -> None:
        """Time goes on."""
        until_s = self.now_s + span_s
        self._fire()
        while self.now_s < until_s - 1e-9:
            grid = (np.floor(self.now_s / self.step_s + 1e-9) + 1) * self.step_s
            stop_s = min(until_s, float(grid))
            if self._timers:
                stop_s = min(stop_s, max(self._timers[0][0], self.now_s))
            if stop_s > self.now_s:
                if self.mode is SimulationMode.FLUID and self.character.has_batches:
                    self._stall(stop_s)
                self.run.advance(stop_s, self._rates(stop_s))
                self.now_s = stop_s
                self._renew_credits()
            self._fire()

    def _renew_credits(self) -> None:
        """As often as the executors exchange their counts, or with each step if that is longer."""
        character, since_s = self.character, self.now_s - self._renewed_s
        if character.credits is not None and since_s >= EXCHANGE_S:
            world_tables.renew_limits(self.world, character.credits, character.credit_s, since_s)
            self._renewed_s = self.now_s

    def _fire(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_s + 1e-9:
            heapq.heappop(self._timers)[2]()

    def _rates(self, until_s: float) -> Floats:
        rates = np.zeros(len(self.world.nodes))
        span_s = until_s - self.now_s
        for running in self.running.values():
            for source, load in running.loads.items():
                total = load.total(until_s)
                rates[running.rows.nodes[source]] = (
                    max(0.0, total - running.load_totals[source]) / span_s
                )
                running.load_totals[source] = total
        return rates

    # --- wanted state

    def _check(self, job: Job, wanted: Allocation) -> None:
        names = {operator.name for operator in job.operators}
        if set(wanted.parallelism) != names:
            raise InvalidAllocation(f"{job.id} has the operators {', '.join(sorted(names))}.")
        for operator in job.operators:
            if (count := wanted.parallelism[operator.name]) > operator.parallelism.max:
                raise InvalidAllocation(
                    f"{operator.name} holds {operator.parallelism.max} tasks and cannot have "
                    f"{count} instances."
                )
        if wanted.batching_ms and self.character.how[Ability.BATCHING] is How.NOT_AT_ALL:
            raise BatchingUnsupported("Batching holds for the whole application.")
        edges = {edge.name for edge in job.edges}
        if strange := [str(edge) for edge in wanted.batching_ms if edge not in edges]:
            raise InvalidAllocation(f"{job.id} has no edge {', '.join(strange)}.")
        for places in wanted.placement.values():
            for name in places:
                if name is not None:
                    self.machines.row(name)

    def _reallocate(self, wanted: Allocation) -> Outcome:
        running = self._running(wanted.job)
        if wanted.generation <= running.allocation.generation:
            return UNCHANGED
        self._check(running.job, wanted)
        self.ledger.reserve(
            wanted.job, Entry(running.job.tenant, running.job.tasks, wanted.instances)
        )
        running.allocation = wanted
        generation = wanted.generation

        def take_effect() -> None:
            alive = self.running.get(wanted.job) is running
            if alive and running.allocation.generation == generation:
                self._apply_allocation(running)
                if self.character.waiting is QueuedRecords.DEALT:
                    self.run.redistribute(running.rows.row)
                elif self.character.waiting is QueuedRecords.LOST:
                    self.run.drop_queued(running.rows.row)

        outage_s = self._outage_s(running)
        if outage_s > 0:
            self.pause(running, outage_s, "it is being reconfigured")
        if self.character.act_s > 0:
            self.at(self.now_s + self.character.act_s, take_effect)
        else:
            take_effect()
        return Outcome(Status.DONE, took_s=self.character.act_s + outage_s)

    def _apply_allocation(self, running: SimulatedJob) -> None:
        """Routes and places of what is wanted, from now on."""
        self._place(running)
        route(
            self.world,
            running.job,
            running.rows,
            running.allocation,
            self.assumed.keys,
            running.groups,
        )
        self.run.wake(running.rows.row)
        self._reporter = None

    def _place(self, running: SimulatedJob) -> None:
        """Every instance in use has a machine that is up: the wanted one, the one it has, or the one
        with the fewest instances.
        """
        world = self.world
        used = self.instances_by_machine()
        usable = set(self.machines.usable())
        for source in running.job.sources:
            reader = int(world.nodes["first"][running.rows.nodes[source.name]])
            if int(world.actors["machine"][reader]) not in usable:
                self.run.move(reader, min(usable, default=0))
        for operator, count in running.allocation.parallelism.items():
            node = running.rows.nodes[operator]
            before = int(world.nodes["active"][node])
            wanted = running.allocation.placement.get(operator, (None,) * count)
            for index, name in enumerate(wanted):
                actor = int(world.nodes["first"][node]) + index
                now = int(world.actors["machine"][actor])
                there = index < before and now in usable
                if name is not None:
                    machine = self.machines.row(name)
                    machine = machine if machine in usable else self.machines.least_used(used)
                else:
                    machine = now if there else self.machines.least_used(used)
                used[now] -= index < before
                used[machine] += 1
                if machine != now:
                    self.run.move(actor, machine)

    def instances_by_machine(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Instances in use on each machine."""
        nodes, actors = self.world.nodes, self.world.actors
        alive = self.world.jobs["alive"][nodes["job"]] == 1
        operator = (nodes["kind"] == world_tables.OPERATOR) & alive
        index = np.arange(len(actors)) - nodes["first"][actors["node"]]
        active = operator[actors["node"]] & (index < nodes["active"][actors["node"]])
        return np.bincount(actors["machine"][active], minlength=len(self.machines.all))

    # --- one-shot actions

    def _one_shot(
        self, action: RestartInstance | RestartJob | AddMachines | RemoveMachines
    ) -> Outcome:
        ability = {
            RestartInstance: Ability.RESTART_INSTANCE,
            RestartJob: Ability.RESTART_JOB,
            AddMachines: Ability.ADD_MACHINES,
            RemoveMachines: Ability.REMOVE_MACHINES,
        }[type(action)]
        running = (
            self._running(action.job) if isinstance(action, RestartInstance | RestartJob) else None
        )
        if self.character.how[ability] is How.NOT_AT_ALL:
            name = type(action).__name__
            return Outcome(Status.REFUSED, "NOT_AT_ALL", f"This engine cannot do a {name}.")
        if action.id in self._ids:
            return UNCHANGED
        if isinstance(action, AddMachines):
            self._add_machines(action.count)
        elif isinstance(action, RemoveMachines):
            self._remove_machines(action.machines)
        elif running is not None:
            if isinstance(action, RestartInstance):
                self._restart_instance(running, action)
            elif action != RestartJob(action.id, action.job):
                running = self._replace(running, action)
            self.pause(running, self.character.restart_s, "it is being restarted")
        self._ids.add(action.id)
        return Outcome(Status.DONE, took_s=self.character.restart_s if running else 0.0)

    def _replace(self, running: SimulatedJob, action: RestartJob) -> SimulatedJob:
        """Another file, allocation or checkpoint for a job: it goes on with what lies in its logs, or begins
        as one that is new.
        """
        spec = action.spec or running.job
        if spec.id != running.job.id:
            raise InvalidAllocation(f"{spec.id} is another job than {running.job.id}.")
        wanted = action.allocation or carried_over(running.allocation, spec).next_generation()
        checkpoint = running.checkpoint if action.checkpoint is None else action.checkpoint
        self._check(spec, wanted)
        self.ledger.reserve(spec.id, Entry(spec.tenant, spec.tasks, wanted.instances))
        loads = dict(running.loads)
        self.cancel(running.job.id, keep=True)
        self.submit(spec, wanted, checkpoint)
        found = self.running[spec.id]
        for source, load in loads.items():
            # Whoever sends goes on sending, whatever the job's checkpoint.
            if source in found.rows.nodes and source not in found.loads:
                self.feed(spec.id, source, load)
        return found

    def _restart_instance(self, running: SimulatedJob, action: RestartInstance) -> None:
        """A new process has no sickness of the old one."""
        if not 0 <= action.index < running.allocation.parallelism.get(action.operator, 0):
            raise NotFound(
                f"{running.job.id} has no instance {action.index} of {action.operator!r}."
            )
        self.world.actors["slow"][running.rows.actor(self.world, action.operator, action.index)] = (
            1.0
        )

    def _add_machines(self, count: int) -> None:
        if count < 1:
            raise InvalidAllocation(f"{count} machines cannot be added: at least 1.")
        like = self.machines.all[-1]
        for name in self.machines.next_names(count):
            row = self.machines.add(MachineSpec(name, like.cores, like.memory_bytes))
            self.run.changed(world_tables.appended(self.world, machines=row))
        self._reporter = None

    def _remove_machines(self, names: tuple[str, ...]) -> None:
        rows = [self.machines.row(name) for name in names]
        if not set(self.machines.usable()) - set(rows):
            raise InvalidAllocation("These are all machines that are up: one must stay.")
        for row in rows:
            self.report_lost(row)
            self.machines.gone.add(row)
        self.evacuate(rows)

    def evacuate(self, rows: Sequence[int]) -> list[SimulatedJob]:
        """Whatever has an instance on these machines is placed anew; the jobs that had."""
        actors, nodes = self.world.actors, self.world.nodes
        index = np.arange(len(actors)) - nodes["first"][actors["node"]]
        active = index < nodes["active"][actors["node"]]
        hit = set(nodes["job"][actors["node"][active & np.isin(actors["machine"], rows)]].tolist())
        found = [running for running in self.running.values() if running.rows.row in hit]
        for running in found:
            self._apply_allocation(running)
            if (outage_s := self._outage_s(running)) > 0:
                self.pause(running, outage_s, "its instances are being moved")
        self._reporter = None
        return found

    # --- standing, boundaries

    def pause(self, running: SimulatedJob, for_s: float, reason: str) -> None:
        """A job does nothing for a while."""
        until_s = max(running.paused_until_s, self.now_s + for_s)
        running.paused_until_s, running.reason = until_s, reason
        self.world.jobs["mode"][running.rows.row] = PAUSED

        def resume() -> None:
            if running.paused_until_s <= self.now_s + 1e-9:
                running.reason = ""
                self.set_mode(running, RUNNING)

        self.at(until_s, resume)

    def _outage_s(self, running: SimulatedJob) -> float:
        """How long a job stands when it is changed; longer if it has state."""
        stateful = any(operator.work.stateful for operator in running.job.operators)
        return self.character.outage_s + (self.character.state_s if stateful else 0.0)

    def set_mode(self, running: SimulatedJob, mode: int) -> None:
        if self.running.get(running.job.id) is running and not running.reason:
            self.world.jobs["mode"][running.rows.row] = mode
            self.run.wake(running.rows.row)

    def remember_boundary(self, running: SimulatedJob) -> None:
        """What was read by now is not read again after a crash."""
        running.boundary_s += running.job.batch_s
        running.read_by_boundary = {
            source.name: float(self.world.nodes["read"][running.rows.nodes[source.name]])
            for source in running.job.sources
        }

    def _stall_s(self, running: SimulatedJob) -> float:
        return self.character.stall_s + self.character.stall_per_task_s * running.job.tasks

    def _boundary(self, running: SimulatedJob, since_s: float | None = None) -> None:
        """A batch ends, single records: nothing is read until all is through, then for the stall."""
        if self.running.get(running.job.id) is not running:
            return
        began_s = self.now_s if since_s is None else since_s
        if since_s is None:
            self.remember_boundary(running)
            self.at(running.boundary_s, lambda: self._boundary(running))
            self.set_mode(running, DRAINING)
        empty = self.run.in_system(running.rows.row) == 0
        if empty or self.now_s - began_s > LONGEST_DRAIN_S:
            self.at(self.now_s + self._stall_s(running), lambda: self.set_mode(running, RUNNING))
        else:
            self.at(self.now_s + LOOK_S, lambda: self._boundary(running, began_s))

    def _stall(self, until_s: float) -> None:
        """A batch ends, flows: for how much of the next step sources are not read."""
        nodes, span_s = self.world.nodes, until_s - self.now_s
        for running in self.running.values():
            if running.boundary_s <= until_s:
                self.remember_boundary(running)
                sinks = [running.rows.nodes[sink.name] for sink in running.job.sinks]
                fresh = nodes["delay_s"][sinks] - nodes["fixed_s"][sinks]
                running.stall_left_s += self._stall_s(running) + float(np.max(fresh, initial=0.0))
            elif running.stall_left_s <= 0:
                continue
            stalled_s = min(running.stall_left_s, span_s)
            running.stall_left_s -= stalled_s
            sources = [running.rows.nodes[source.name] for source in running.job.sources]
            nodes["open"][sources] = 1 - stalled_s / span_s
            nodes["stalled_s"][sources] = stalled_s
            if running.stall_left_s <= 0:
                self.at(until_s, lambda sources=sources: self._open(sources))  # type: ignore[misc]

    def _open(self, sources: list[int]) -> None:
        self.world.nodes["open"][sources] = 1.0
        self.world.nodes["stalled_s"][sources] = 0.0

    # --- help

    def _running(self, job: str) -> SimulatedJob:
        if (running := self.running.get(job)) is None:
            raise NotFound(f"There is no job {job}.")
        return running

    def _next_sequence(self, sender: str) -> int:
        self._sequences[sender] = self._sequences.get(sender, 0) + 1
        return self._sequences[sender]

    def report_lost(self, row: int) -> None:
        """A machine will not report again under its name."""
        self._lost.append(self.machines.sender(row))


def _refused(error: TrilithonError) -> Outcome:
    return Outcome(Status.REFUSED, error.code, f"{error.message} {error.hint}".strip())
