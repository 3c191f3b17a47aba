"""Simulates an engine behind the contract: jobs run on a cluster that exists in memory only.

Time passes only when the caller advances it (`advance`). An action is checked at once and takes
effect after the time that the engine's character names; until then the job runs on as before, or is
paused.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

import numpy as np

from trilithon.contract.condition import Cause
from trilithon.contract.engine import (
    Ability,
    Accepted,
    Action,
    AddMachines,
    Capabilities,
    Condition,
    Health,
    How,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.engines.abilities import fixed_operators
from trilithon.engines.simulated import scaling, world_tables
from trilithon.engines.simulated.arrivals import POISSON_CV2
from trilithon.engines.simulated.batch_boundaries import end_batch, stall_sources
from trilithon.engines.simulated.character import Character, QueuedRecords
from trilithon.engines.simulated.event_run import EventRun
from trilithon.engines.simulated.faults import AnyFault
from trilithon.engines.simulated.fluid_run import FluidRun
from trilithon.engines.simulated.injection import inject
from trilithon.engines.simulated.job_rows import add_job, route
from trilithon.engines.simulated.machines import MachineRegistry, MachineSpec
from trilithon.engines.simulated.memory_use import memory_used
from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.engines.simulated.reporting import ReportedJob, Reporter, ReportingMachine
from trilithon.engines.simulated.simulated_job import SimulatedJob, SourceLoad, StoppedJob
from trilithon.engines.simulated.stepping import load_rates, step_ends
from trilithon.engines.simulated.threads import count_threads
from trilithon.engines.simulated.world_tables import PAUSED, RUNNING, World
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.errors import BatchingUnsupported, InvalidAllocation, NotFound, TrilithonError
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job
from trilithon.model.report import Report

UNCHANGED: Final = Outcome(Status.UNCHANGED)
# How often credits are renewed by what was taken, at the most.
EXCHANGE_S: Final = 0.1


class SimulationMode(StrEnum):
    """How a run is calculated: as flows in steps, or record by record."""

    FLUID = "fluid"
    EVENTS = "events"


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
        arrival_cv2: float = POISSON_CV2,
        step_s: float = 1.0,
    ) -> None:
        self.character, self.assumed, self.mode, self.step_s = character, assumed, mode, step_s
        self.machines = MachineRegistry(machines)
        world = world_tables.appended(world_tables.empty(), machines=self.machines.rows())
        world.machines["other"][:1] = character.constant_load
        self.run: FluidRun | EventRun = (
            FluidRun(world, seed, arrival_cv2=arrival_cv2)
            if mode is SimulationMode.FLUID
            else EventRun(world, seed, arrival_cv2=arrival_cv2)
        )
        self.slots_at_start, self.tasks_at_start = slots, tasks
        self.ledger = Ledger(tasks or scaling.NO_LIMIT, slots or scaling.NO_LIMIT, quotas or {})
        self.running: dict[str, SimulatedJob] = {}
        self.now_s = 0.0
        self.closed = False
        self._ids: set[str] = set()
        self._checkpoints: dict[str, dict[str, StoppedJob]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._sequences: dict[str, int] = {}
        self._reporter: Reporter | None = None
        self._rows_changed = False
        self._lost: list[str] = []
        self._renewed_s = 0.0
        count_threads(self)

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
            return Outcome.of_error(error)
        world, rows = add_job(self.world, job, self.character, self.assumed)
        self.run.changed(world)
        running = SimulatedJob(
            job, allocation, rows, self.now_s, boundary_s=self.now_s + job.batch_s
        )
        running.checkpoint = checkpoint
        self.running[job.id] = running
        self._spread_readers(running)
        self.apply_allocation(running)
        if (stopped := self._checkpoints.get(job.id, {}).get(checkpoint)) is not None:
            self._resume(running, stopped)
        if self.character.has_batches and self.mode is SimulationMode.EVENTS:
            self.at(running.boundary_s, lambda: end_batch(self, running))
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
        self.rows_changed()
        return Outcome(Status.DONE)

    def _stopped(self, running: SimulatedJob) -> StoppedJob:
        """What a job leaves behind: records that are not through will be read again."""
        nodes = self.world.nodes
        under_way = self.run.in_system(running.rows.row)
        records = {}
        for i, source in enumerate(running.job.sources):
            row = running.rows.nodes[source.name]
            again = under_way if i == 0 else 0
            records[source.name] = int(nodes["arrived"][row] - nodes["read"][row]) + again
        return StoppedJob(running.life, records, dict(running.loads), dict(running.load_totals))

    def _resume(self, running: SimulatedJob, stopped: StoppedJob) -> None:
        """Goes on where an earlier life ended: with its log, and what arrived there since."""
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
            return Outcome.of_error(error)

    def jobs(self) -> Mapping[str, Accepted]:
        return {
            name: Accepted(
                running.job,
                running.allocation,
                _condition(running.reason),
                running.checkpoint,
            )
            for name, running in self.running.items()
        }

    def conditions(self) -> Mapping[str, Condition]:
        return {name: _condition(running.reason) for name, running in self.running.items()}

    def reports(self) -> Sequence[Report]:
        """Reports of now, from the host and from every machine that still reports."""
        standing = {
            name: ReportedJob(running.job, running.allocation, running.rows, running.life)
            for name, running in self.running.items()
        }
        if self._reporter is None or self._rows_changed:
            senders = [self.machines.sender(row) for row in range(len(self.machines.all))]
            self._reporter = Reporter(
                self.world,
                standing,
                senders,
                reports_memory=self.character.reports_memory,
                before=self._reporter,
            )
            self._rows_changed = False
        # What ran on a lost machine counts on elsewhere: the last report of the machine is empty.
        lost = tuple(self._lost)
        reports = [Report(name, self._next_sequence(name), self.now_s) for name in lost]
        reports.append(
            self._reporter.host(self.world, self._next_sequence("host"), self.now_s, lost)
        )
        self._lost.clear()
        used = memory_used(self.world, self.running.values(), self.run.records_held(), self.assumed)
        reporting = []
        for row in self.machines.usable():
            if self.machines.reporting[row]:
                machine, sender = self.machines.all[row], self.machines.sender(row)
                reporting.append(
                    ReportingMachine(
                        row,
                        machine.name,
                        sender,
                        self._next_sequence(sender),
                        machine.memory_bytes,
                        float(used[row]),
                    )
                )
        return reports + self._reporter.machines(self.world, reporting, self.now_s)

    def capabilities(self) -> Capabilities:
        jobs = [running.job for running in self.running.values()]
        fixed = fixed_operators(jobs, state_moves=self.character.state_moves)
        slots = scaling.shares(self.machines, self.slots_at_start)
        tasks = scaling.shares(self.machines, self.tasks_at_start)
        return Capabilities(
            dict(self.character.how),
            slots=sum(slots.values()) if slots else None,
            tasks=sum(tasks.values()) if tasks else None,
            fixed=fixed,
            machine_slots=slots,
            machine_tasks=tasks,
            tasks_used=sum(entry.tasks for entry in self.ledger.entries.values()),
        )

    def resize_ledger(self) -> None:
        """Takes the slots and tasks of the machines of now into the ledger."""
        now = self.capabilities()
        if now.slots is not None:
            self.ledger.slots = now.slots
        if now.tasks is not None:
            self.ledger.tasks = now.tasks

    def add_slots(self, count: int) -> None:
        """Adds slots that were kept free until now; without a limit there are enough."""
        if self.slots_at_start is not None:
            self.slots_at_start += count
            self.resize_ledger()

    def close(self) -> None:
        self.closed = True

    # --- time, load, faults

    def feed(self, job: str, source: str, load: SourceLoad) -> None:
        """Sends a load to a source from now on. The load's time is the engine's time."""
        if (running := self.running.get(job)) is None or source not in running.rows.nodes:
            raise NotFound(f"No job {job!r} with a source {source!r} runs.", "")
        running.loads[source] = load
        running.load_totals[source] = load.total(self.now_s)

    def inject(self, fault: AnyFault) -> None:
        inject(self, fault)

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        """Does something when its time has come."""
        self._timer_count += 1
        heapq.heappush(self._timers, (time_s, self._timer_count, do))

    def advance(self, span_s: float) -> None:
        """Lets time pass."""
        until_s = self.now_s + span_s
        self._fire()
        while self.now_s < until_s - 1e-9:
            timer_s = self._timers[0][0] if self._timers else math.inf
            if ends_s := step_ends(self, until_s, timer_s):
                if self.mode is SimulationMode.FLUID and self.character.has_batches:
                    stall_sources(self, ends_s[0])
                rates = load_rates(self, ends_s)
                if isinstance(self.run, FluidRun):
                    self.run.advance_steps(ends_s, rates)
                else:
                    self.run.advance(ends_s[0], rates[0])
                self.now_s = ends_s[-1]
                self._renew_credits()
            self._fire()

    def _renew_credits(self) -> None:
        """Renews credits as often as executors exchange counts, or with each step if that is
        longer.
        """
        character, since_s = self.character, self.now_s - self._renewed_s
        if character.credits is not None and since_s >= EXCHANGE_S:
            world_tables.renew_limits(self.world, character.credits, character.credit_s, since_s)
            self._renewed_s = self.now_s

    def _fire(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_s + 1e-9:
            heapq.heappop(self._timers)[2]()

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
            raise BatchingUnsupported("This engine does not change how long edges gather records.")
        edges = {edge.name for edge in job.edges}
        if strange := [str(edge) for edge in wanted.batching_ms if edge not in edges]:
            raise InvalidAllocation(f"{job.id} has no edge {', '.join(strange)}.")
        for avoiding, tasks in wanted.avoided.items():
            if not all(task < job.operator(avoiding).tasks for task in tasks):
                raise InvalidAllocation(f"{avoiding} has no task {max(tasks)} to avoid.")
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
        live = self._changes_live(running.allocation, wanted)
        self._leave_tasks(running, wanted)
        running.allocation = wanted
        generation = wanted.generation

        def take_effect() -> None:
            alive = self.running.get(wanted.job) is running
            if alive and running.allocation.generation == generation:
                self.apply_allocation(running)
                if live:
                    return
                if self.character.waiting is QueuedRecords.DEALT:
                    self.run.redistribute(running.rows.row)
                elif self.character.waiting is QueuedRecords.LOST:
                    self.run.drop_queued(running.rows.row)

        outage_s = 0.0 if live else self.outage_s(running)
        if outage_s > 0:
            self.pause(running, outage_s, "it is being reconfigured")
        act_s = 0.0 if live else self.character.act_s
        if act_s > 0:
            self.at(self.now_s + act_s, take_effect)
        else:
            take_effect()
        return Outcome(Status.DONE, took_s=act_s + outage_s)

    def _leave_tasks(self, running: SimulatedJob, wanted: Allocation) -> None:
        """An instance whose task is avoided from now on gets a spare one, which is not slow. It
        keeps its number here.
        """
        for operator, tasks in wanted.avoided.items():
            spare = running.job.operator(operator).tasks - wanted.parallelism[operator]
            before = running.allocation.avoided.get(operator, ())
            left = [task for task in tasks if task not in before]
            for task in left[: max(0, spare - len(before))]:
                self.world.actors["slow"][running.rows.actor(self.world, operator, task)] = 1.0

    def _changes_live(self, before: Allocation, wanted: Allocation) -> bool:
        """Whether only batching changes, and the engine can do that without touching instances."""
        if self.character.how[Ability.BATCHING] is not How.LIVE:
            return False
        otherwise = replace(wanted, generation=before.generation, batching_ms=before.batching_ms)
        return otherwise == before and wanted.batching_ms != before.batching_ms

    def apply_allocation(self, running: SimulatedJob) -> None:
        """Brings about the wanted places and routes of a job."""
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
        self.rows_changed()

    def _place(self, running: SimulatedJob) -> None:
        """Gives every instance in use a machine that is up: the wanted one, else its present one,
        else the one with the fewest instances.
        """
        world = self.world
        used = self.instances_by_machine()
        usable = set(self.machines.usable())
        for reader in self._readers(running):
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
                machine = now if there else None
                if name is not None:
                    # A machine that is down or was removed since is replaced by another.
                    machine = self.machines.find(name)
                    machine = machine if machine in usable else None
                if machine is None:
                    machine = self.machines.least_used(used)
                used[now] -= index < before
                used[machine] += 1
                if machine != now:
                    self.run.move(actor, machine)

    def _readers(self, running: SimulatedJob) -> Iterator[int]:
        """The actors that read the logs of a job."""
        nodes = self.world.nodes
        for source in running.sources:
            first = int(nodes["first"][source])
            yield from range(first, first + int(nodes["tasks"][source]))

    def _spread_readers(self, running: SimulatedJob) -> None:
        """Where each partition has its reader, they begin on different machines."""
        if self.character.reader_per_partition and (usable := self.machines.usable()):
            for i, reader in enumerate(self._readers(running)):
                self.run.move(reader, usable[i % len(usable)])

    def instances_by_machine(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Instances in use on each machine."""
        nodes, actors = self.world.nodes, self.world.actors
        alive = self.world.jobs["alive"][nodes["job"]] == 1
        operator = (nodes["kind"] == world_tables.OPERATOR) & alive
        count = nodes["active"][operator]
        # The first of each operator's, and as many after it as are in use: few of all tasks are.
        before = np.cumsum(count) - count
        active = np.arange(count.sum()) + np.repeat(nodes["first"][operator] - before, count)
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
        took_s = 0.0
        if isinstance(action, AddMachines):
            scaling.add_machines(self, action.count)
        elif isinstance(action, RemoveMachines):
            took_s = scaling.remove_machines(self, action.machines)
        elif running is not None:
            if isinstance(action, RestartInstance):
                self._restart_instance(running, action)
            else:
                running = self._restart_job(running, action)
            took_s = self.character.restart_s
            self.pause(running, took_s, "it is being restarted")
        self._ids.add(action.id)
        return Outcome(Status.DONE, took_s=took_s)

    def _restart_job(self, running: SimulatedJob, action: RestartJob) -> SimulatedJob:
        """Restarts a job as it is, or as another version. New processes are not slow."""
        if action != RestartJob(action.id, action.job):
            return self._replace(running, action)
        nodes = self.world.nodes["job"] == running.rows.row
        self.world.actors["slow"][nodes[self.world.actors["node"]]] = 1.0
        return running

    def _replace(self, running: SimulatedJob, action: RestartJob) -> SimulatedJob:
        """Another file, allocation or checkpoint for a job: it goes on with what lies in its
        logs, or begins as one that is new.
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
        replaced = self.running[spec.id]
        for source, load in loads.items():
            # Producers go on sending, whichever checkpoint the job starts from.
            if source in replaced.rows.nodes and source not in replaced.loads:
                self.feed(spec.id, source, load)
        return replaced

    def _restart_instance(self, running: SimulatedJob, action: RestartInstance) -> None:
        """Starts an instance as a new process, which is not slow."""
        if not 0 <= action.index < running.allocation.parallelism.get(action.operator, 0):
            raise NotFound(
                f"{running.job.id} has no instance {action.index} of {action.operator!r}."
            )
        self.world.actors["slow"][running.rows.actor(self.world, action.operator, action.index)] = (
            1.0
        )

    # --- pauses

    def rows_changed(self) -> None:
        """Instances, machines or jobs changed: the next report looks up its rows again, and other
        machines have other threads.
        """
        self._rows_changed = True
        count_threads(self)

    def pause(self, running: SimulatedJob, for_s: float, reason: str) -> None:
        """Pauses a job for a while, and says why."""
        until_s = max(running.paused_until_s, self.now_s + for_s)
        running.paused_until_s, running.reason = until_s, reason
        self.world.jobs["mode"][running.rows.row] = PAUSED

        def resume() -> None:
            if running.paused_until_s <= self.now_s + 1e-9:
                running.reason = ""
                self.set_mode(running, RUNNING)

        self.at(until_s, resume)

    def outage_s(self, running: SimulatedJob) -> float:
        """How long a change pauses a job; longer if it has state."""
        stateful = any(operator.work.stateful for operator in running.job.operators)
        return self.character.outage_s + (self.character.state_s if stateful else 0.0)

    def set_mode(self, running: SimulatedJob, mode: int) -> None:
        if self.running.get(running.job.id) is running and not running.reason:
            self.world.jobs["mode"][running.rows.row] = mode
            self.run.wake(running.rows.row)

    # --- help

    def _running(self, job: str) -> SimulatedJob:
        if (running := self.running.get(job)) is None:
            raise NotFound(f"No job {job!r} runs.")
        return running

    def _next_sequence(self, sender: str) -> int:
        self._sequences[sender] = self._sequences.get(sender, 0) + 1
        return self._sequences[sender]

    def report_lost(self, row: int) -> None:
        """Notes that a machine will not report again under its name."""
        self._lost.append(self.machines.sender(row))


def _condition(reason: str) -> Condition:
    return Condition(Health.DEGRADED, reason, Cause.UNKNOWN) if reason else Condition()
