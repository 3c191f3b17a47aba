"""Owns the Spark engine: jobs as real-time queries of one application, behind the contract.

Nothing is started that is not in the books; what dies is started again from its checkpoint, within
bounds; parallelism, weights and placement are routing tables that are pushed while records flow.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.control import Control
from trilithon.engines.spark.kafka import Kafka, end_offsets
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.start import Running, planned, start_chain
from trilithon.engines.spark.supervisor import Limits, Supervision
from trilithon.engines.spark.telemetry import Standing, host_report, report_of
from trilithon.errors import InvalidAllocation, InvalidJob, TrilithonError
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
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


class SparkEngine:
    """Runs jobs that are chains on one Spark application."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        folder: Path,
        *,
        tasks: int,
        slots: int,
        quotas: Mapping[str, int] | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.control = Control(spark)
        self.ledger = Ledger(tasks, slots, quotas or {})
        self.limits = limits or Limits()
        self.clock = clock
        self.held: dict[str, _Held] = {}
        self._ids: set[str] = set()
        self._sequence = 0
        self._next_lag_s = 0.0

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.held:
            return UNCHANGED
        began = self.clock()
        try:
            _check_parallelism(job, allocation)
            chain = planned(self.spark, job, self.kafka)
            tasks = sum(chain.tasks_per_stage)
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
            if held.running is not None:
                held.running.stop()
            self.control.end_job(job)
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
        """What the executors sent, and where the logs end. Looks after the queries as well."""
        self.supervise()
        jobs = {name: held.job for name, held in self.held.items()}
        found = [report_of(sent, jobs) for sent in self.control.drain_reports()["reports"]]
        now = self.clock()
        if jobs and now >= self._next_lag_s:
            self._next_lag_s = now + 1.0
            found.append(self._own_report(now))
        return found

    def capabilities(self) -> Capabilities:
        fixed = {
            name: held.job.bounds.fixed for name, held in self.held.items() if held.job.bounds.fixed
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
            for name, held in self.held.items()
        }

    def supervise(self) -> None:
        """Notices queries that died and starts those again whose time has come."""
        now = self.clock()
        for held in self.held.values():
            if held.running is not None and not held.running.query.isActive:
                held.supervision = held.supervision.died(now, _reason(held.running), self.limits)
                held.running = None
            elif held.running is not None:
                held.supervision = held.supervision.observed(now, self.limits)
            elif held.supervision.due(now):
                try:
                    self._start(held)
                except TrilithonError as error:
                    held.supervision = held.supervision.died(now, error.message, self.limits)

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
        self._ids.add(action.id)
        began = self.clock()
        if held.running is not None:
            held.running.stop()
            held.running = None
        self._start(held)
        return Outcome(Status.DONE, took_s=self.clock() - began)

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
        self._push(held, wanted)
        held.allocation = wanted
        return Outcome(Status.DONE, took_s=self.clock() - began)

    def _push(self, held: _Held, wanted: Allocation) -> None:
        for operator, count in wanted.parallelism.items():
            tasks = held.job.operator(operator).parallelism.max
            table = _table(wanted, operator, count, tasks)
            self.control.set_table(held.job.id, operator, table)

    def _own_report(self, now_s: float) -> Report:
        self._sequence += 1
        standing = []
        for held in self.held.values():
            if held.running is None:
                continue
            ends = end_offsets(self.spark, self.kafka, held.job)
            arrived = {name: float(end - held.base[name]) for name, end in ends.items()}
            readers = dict(zip(ends, held.running.chain.readers, strict=True))
            life = held.running.incarnation
            standing.append(Standing(held.job, held.allocation, life, arrived, readers))
        return host_report(self._sequence, now_s, standing)

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
