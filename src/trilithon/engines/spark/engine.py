"""Owns the Spark engine: jobs as real-time queries of one application, behind the contract.

Nothing is started that is not in the books; what dies is started again from its checkpoint, within
bounds; parallelism, weights, key groups and placement are routing tables that are pushed while records
flow. A job is restarted between two batches, so that nothing is done twice.

One caller may change jobs while another takes reports.
"""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from trilithon.contract.engine import (
    Ability,
    Accepted,
    Action,
    Capabilities,
    How,
    Outcome,
    Reallocate,
    RestartJob,
    Status,
)
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.control import Control
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka, end_offsets
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.start import Running, mismatch, planned, start_chain, start_frame
from trilithon.engines.spark.supervisor import Limits, Supervision
from trilithon.engines.spark.telemetry import Standing, host_report, report_of
from trilithon.errors import InvalidAllocation, InvalidJob, NewCheckpointNeeded, TrilithonError
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.groups import spread
from trilithon.model.job import Grouping, Job
from trilithon.model.report import Report

HOW: Final = {
    Ability.PARALLELISM: How.LIVE,
    Ability.WEIGHTS: How.LIVE,
    Ability.PLACEMENT: How.LIVE,
    Ability.BATCHING: How.NOT_AT_ALL,
    Ability.RESTART_INSTANCE: How.NOT_AT_ALL,
    Ability.RESTART_JOB: How.WITH_OUTAGE,
    Ability.ADD_MACHINES: How.NOT_AT_ALL,
    Ability.REMOVE_MACHINES: How.NOT_AT_ALL,
}
UNCHANGED: Final = Outcome(Status.UNCHANGED)
_REPLAYED: Final = (
    "The open batch could not be ended, because a reader had no records: what was read since the last "
    "commit is read again."
)


@dataclass
class _Held:
    """A job that was accepted: what is wanted of it, and how it fares."""

    job: Job
    allocation: Allocation
    checkpoint: str = ""
    running: Running | None = None
    supervision: Supervision = field(default_factory=Supervision)
    # Where the log of each source ended when the job was accepted: arrivals count from there.
    base: dict[str, int] = field(default_factory=dict)
    # Which instance has which key groups now, per operator that gets its records by key.
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # The supervisor starts queries in a thread of its own: nobody else may change the job meanwhile.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def keyed(self) -> set[str]:
        edges = self.job.edges
        return {edge.target for edge in edges if edge.grouping is Grouping.BY_KEY}


class SparkEngine:
    """Runs jobs that are chains on one Spark application."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        folder: Path,
        *,
        tasks: Callable[[], int],
        slots: int,
        quotas: Mapping[str, int] | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.control = Control(spark)
        self.boundaries = Boundaries(self.control, clock)
        self.ledger = Ledger(tasks(), slots, quotas or {})
        self._tasks = tasks
        self.limits = limits or Limits()
        self.clock = clock
        self.held: dict[str, _Held] = {}
        self._ids: set[str] = set()
        self._sequence = 0
        self._next_lag_s = 0.0
        self._reading = threading.Lock()
        self._heard: list[Report] = []
        self._lost: list[str] = []

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.held:
            return UNCHANGED
        began = self.clock()
        try:
            _check_parallelism(job, allocation)
            chain = planned(self.spark, job, self.kafka)
            tasks = sum(chain.tasks_per_stage)
            self.ledger.tasks = self._tasks()
            self.ledger.reserve(job.id, Entry(job.tenant, tasks, allocation.instances))
            base = end_offsets(self.spark, self.kafka, job)
            held = _Held(job, allocation, checkpoint, base=base)
            self._start(held, chain)
        except TrilithonError as error:
            self.ledger.release(job.id)
            return _refused(error)
        self.held[job.id] = held
        return Outcome(Status.DONE, took_s=self.clock() - began)

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        held = self.held.pop(job, None)
        if held is not None:
            with held.lock:
                if held.running is not None:
                    held.running.stop()
                self.control.end_job(job)
            self.boundaries.forget(job)
            self.ledger.release(job)
        if not keep:
            self._delete_checkpoints(job)
        return UNCHANGED if held is None else Outcome(Status.DONE)

    def apply(self, action: Action) -> Outcome:
        try:
            if isinstance(action, Reallocate):
                return self._reallocate(action.allocation)
            if isinstance(action, RestartJob):
                return self._restart(action)
        except TrilithonError as error:
            return _refused(error)
        name = type(action).__name__
        return Outcome(Status.REFUSED, "NOT_AT_ALL", f"This engine cannot do a {name}.")

    def reports(self) -> Sequence[Report]:
        """What the executors sent, where the logs end, who is gone. Looks after the queries as well."""
        self.supervise()
        with self._reading:
            self._hear()
            found, self._heard = self._heard, []
            now = self.clock()
            if (self.held and now >= self._next_lag_s) or self._lost:
                self._next_lag_s = now + 1.0
                found.append(self._own_report(now))
        return found

    def _hear(self) -> None:
        """Takes what the executors sent and keeps it for the next who asks."""
        drained = self.control.drain_reports()
        jobs = {name: held.job for name, held in list(self.held.items())}
        self.boundaries.heard(drained["reports"], jobs)
        self._heard += [report_of(sent, jobs) for sent in drained["reports"]]
        self._lost += drained["lost"]

    def capabilities(self) -> Capabilities:
        fixed = {
            name: held.job.bounds.fixed
            for name, held in list(self.held.items())
            if held.job.bounds.fixed
        }
        return Capabilities(HOW, slots=self.ledger.slots, tasks=self.ledger.tasks, fixed=fixed)

    def close(self) -> None:
        """Ends the queries; their checkpoints stay."""
        # Each reader of a shuffle logs at ERROR that its writer has gone, which is meant here.
        self.spark.sparkContext.setLogLevel("OFF")
        for held in self.held.values():
            if held.running is not None:
                held.running.stop()
        self.held.clear()

    def jobs(self) -> Mapping[str, Accepted]:
        return {
            name: Accepted(
                held.job, held.allocation, held.supervision.health.value, held.supervision.reason
            )
            for name, held in list(self.held.items())
        }

    def supervise(self) -> None:
        """Notices queries that died and starts those again whose time has come."""
        now = self.clock()
        for held in list(self.held.values()):
            if not held.lock.acquire(blocking=False):
                continue  # somebody is at it
            try:
                if self._due(held, now):
                    # A start takes seconds, in which the other jobs' reports must not stand still.
                    threading.Thread(target=self._start_again, args=(held,), daemon=True).start()
            finally:
                held.lock.release()

    def _due(self, held: _Held, now_s: float) -> bool:
        """Notices what became of a query; true if it is to be started now."""
        running = held.running
        if running is not None and not running.query.isActive:
            held.supervision = held.supervision.died(now_s, _reason(running), self.limits)
            held.running = None
        elif running is not None:
            held.supervision = held.supervision.observed(now_s, self.limits)
            self._check_plan(held, running)
        elif held.supervision.due(now_s):
            held.supervision = held.supervision.trying()
            return True
        return False

    def _start_again(self, held: _Held) -> None:
        with held.lock:
            if self.held.get(held.job.id) is not held or held.running is not None:
                return
            try:
                self._start(held)
            except TrilithonError as error:
                held.supervision = held.supervision.died(self.clock(), error.message, self.limits)

    def _check_plan(self, held: _Held, running: Running) -> None:
        """Each batch is planned anew. A topic that got partitions brings readers, which hold tasks; a
        plan that is otherwise another one is not the job's, and its figures would be attributed wrongly.
        """
        found = self.control.tasks_per_stage(held.job.id)
        if not found or found == running.chain.tasks_per_stage:
            return
        try:
            chain = planned(self.spark, held.job, self.kafka)
            if found != chain.tasks_per_stage:
                raise mismatch(chain, found)
            entry = self.ledger.entries[held.job.id]
            self.ledger.reserve(held.job.id, Entry(entry.tenant, sum(found), entry.slots))
            held.running = replace(running, chain=chain)
        except TrilithonError as error:
            running.stop()
            held.running = None
            held.supervision = held.supervision.died(self.clock(), error.message, self.limits)

    def _start(self, held: _Held, chain: Chain | None = None) -> None:
        """A query from the checkpoint, with the tables of the wanted allocation.

        Without a chain it is planned anew: topics may have got partitions since.
        """
        chain = chain or planned(self.spark, held.job, self.kafka)
        self._push(held, held.allocation)
        held.running = start_chain(self.spark, chain, self.kafka, self._checkpoint(held))
        held.supervision = held.supervision.started(self.clock())

    def _restart(self, action: RestartJob) -> Outcome:
        if (held := self.held.get(action.job)) is None:
            return _unknown(action.job)
        if action.id in self._ids:
            return UNCHANGED
        with held.lock:
            job = action.spec or held.job
            _check_same_log(held.job, job)
            # All that can be refused is refused before anything is stopped.
            chain = planned(self.spark, job, self.kafka)
            frame = build_frame(self.spark, chain, self.kafka)
            allocation = (
                held.allocation if action.spec is None else carried_over(held.allocation, job)
            )
            entry = Entry(job.tenant, sum(chain.tasks_per_stage), allocation.instances)
            before = (held.job, held.allocation, self.ledger.entries[job.id])
            self.ledger.tasks = self._tasks()
            self.ledger.reserve(job.id, entry)
            self._ids.add(action.id)
            began = self.clock()
            replayed = self._stop(held)
            held.job, held.allocation = job, allocation
            try:
                self._push(held, allocation)
                checkpoint = self._checkpoint(held)
                held.running = start_frame(self.spark, chain, frame, self.kafka, checkpoint)
            except TrilithonError as error:
                return self._go_back(held, before, error)
            held.supervision = held.supervision.started(self.clock())
        code, message = ("REPLAYED", _REPLAYED) if replayed else ("", "")
        return Outcome(Status.DONE, code, message, took_s=self.clock() - began)

    def _stop(self, held: _Held) -> bool:
        """Ends the job's query, between two batches if that can be; true if the open one is replayed."""
        if (running := held.running) is None:
            return False
        with self._reading:
            self._hear()
        readers, name = sum(running.chain.readers), held.job.id
        clean = self.boundaries.end_and_hold(name, readers, self._checkpoint(held))
        held.running = None
        running.stop()
        self.boundaries.forget(name)
        return not clean

    def _go_back(
        self, held: _Held, before: tuple[Job, Allocation, Entry], error: TrilithonError
    ) -> Outcome:
        """What was there before is there again, or the supervisor brings it back."""
        generation = held.allocation.generation + 1
        held.job, allocation, self.ledger.entries[held.job.id] = before
        held.allocation = replace(allocation, generation=generation)
        try:
            self._start(held)
        except TrilithonError as again:
            held.supervision = held.supervision.died(self.clock(), again.message, self.limits)
        told = f"{held.job.id} runs as before, since it did not start anew: {error.message}"
        return Outcome(Status.FAILED, error.code, told)

    def _reallocate(self, wanted: Allocation) -> Outcome:
        if (held := self.held.get(wanted.job)) is None:
            return _unknown(wanted.job)
        if wanted.generation <= held.allocation.generation:
            return UNCHANGED
        _check_parallelism(held.job, wanted)
        if wanted.batching_ms:
            return Outcome(
                Status.REFUSED, "NOT_AT_ALL", "Batching holds for the whole application."
            )
        entry = self.ledger.entries[wanted.job]
        self.ledger.reserve(wanted.job, Entry(entry.tenant, entry.tasks, wanted.instances))
        began = self.clock()
        with held.lock:
            self._push(held, wanted)
            held.allocation = wanted
            code, message = self._switch(held)
        return Outcome(Status.DONE, code, message, took_s=self.clock() - began)

    def _switch(self, held: _Held) -> tuple[str, str]:
        """Where a key's records must stay in order, a new table counts from the next batch on: the
        running one is ended for it, if that can be.
        """
        if not (held.job.bounds.preserve_order and held.keyed) or held.running is None:
            return "", ""
        with self._reading:
            self._hear()
        if self.boundaries.end(held.job.id, sum(held.running.chain.readers)):
            return "AT_BOUNDARY", "It takes effect in the next batch, for which this one is ended."
        return (
            "AT_BOUNDARY",
            "It takes effect when the running batch ends: a reader has no records.",
        )

    def _push(self, held: _Held, wanted: Allocation) -> None:
        for operator, count in wanted.parallelism.items():
            tasks = held.job.operator(operator).parallelism.max
            table = _table(wanted, operator, count, tasks)
            if operator in held.keyed:
                weights = wanted.weights.get(operator, (1.0,) * count)
                groups = wanted.groups.get(operator) or spread(weights, held.groups.get(operator))
                held.groups[operator] = groups
                table |= {"groups": groups, "ordered": held.job.bounds.preserve_order}
            self.control.set_table(held.job.id, operator, table)

    def _own_report(self, now_s: float) -> Report:
        self._sequence += 1
        standing = []
        for held in list(self.held.values()):
            if (running := held.running) is None:
                continue
            ends = end_offsets(self.spark, self.kafka, held.job)
            arrived = {name: float(end - held.base[name]) for name, end in ends.items()}
            readers = dict(zip(ends, running.chain.readers, strict=True))
            life = running.incarnation
            standing.append(Standing(held.job, held.allocation, life, arrived, readers))
        lost, self._lost = self._lost, []
        return host_report(self._sequence, now_s, standing, lost)

    def _checkpoint(self, held: _Held) -> Path:
        return self._checkpoints(held.job.id) / (held.checkpoint or "first")

    def _checkpoints(self, job: str) -> Path:
        tenant, _, name = job.partition("/")
        return self.folder / "checkpoints" / tenant / name

    def _delete_checkpoints(self, job: str) -> None:
        folder = self._checkpoints(job)
        # A name comes from whoever calls: nothing outside of the checkpoints is ever deleted.
        if folder.resolve().parent.parent == (self.folder / "checkpoints").resolve():
            shutil.rmtree(folder, ignore_errors=True)


def _check_same_log(before: Job, after: Job) -> None:
    """A checkpoint says how far each source was read, in their order."""
    if before.id != after.id:
        raise NewCheckpointNeeded(f"{after.id} is another job than {before.id}.")
    if [source.topics for source in before.sources] != [source.topics for source in after.sources]:
        raise NewCheckpointNeeded(
            f"{after.id} reads other topics than before, or in another order: its checkpoint does not "
            "say how far they were read.",
            "End the job and submit it anew.",
        )


def _check_parallelism(job: Job, wanted: Allocation) -> None:
    names = {operator.name for operator in job.operators}
    if set(wanted.parallelism) != names:
        raise InvalidAllocation(f"{job.id} has the operators {', '.join(sorted(names))}.")
    for operator in job.operators:
        if wanted.parallelism[operator.name] > operator.parallelism.max:
            raise InvalidAllocation(
                f"{operator.name} holds {operator.parallelism.max} tasks and cannot have "
                f"{wanted.parallelism[operator.name]} instances."
            )


def _table(wanted: Allocation, operator: str, count: int, tasks: int) -> dict[str, Any]:
    """The routing table of an operator: which of its tasks get records, and how many."""
    machines = wanted.placement.get(operator)
    if machines is not None and all(machine is not None for machine in machines):
        wishes = Counter(str(machine).rpartition("/")[2] for machine in machines)
        return {"generation": wanted.generation, "executors": dict(wishes)}
    weights = list(wanted.weights.get(operator, (1.0,) * count))
    return {"generation": wanted.generation, "weights": weights + [0.0] * (tasks - count)}


def _refused(error: TrilithonError) -> Outcome:
    if isinstance(error, InvalidJob):
        told = " ".join(str(problem) for problem in error.problems)
        return Outcome(Status.REFUSED, error.problems[0].code, told)
    return Outcome(Status.REFUSED, error.code, f"{error.message} {error.hint}".strip())


def _unknown(job: str) -> Outcome:
    return Outcome(Status.REFUSED, "NOT_FOUND", f"There is no job {job}.")


def _reason(running: Running) -> str:
    failure = running.query.exception()
    lines = str(failure).strip().splitlines() if failure else ["it ended by itself"]
    return lines[0][:500]
