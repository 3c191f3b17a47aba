"""Owns the Spark engine: jobs as real-time queries of one application, behind the contract.

Nothing is started that is not in the books; what dies is started again from its checkpoint, within
bounds; parallelism, weights, key groups and placement are routing tables that are pushed while records
flow. A job is restarted between two batches, so that nothing is done twice.

One caller may change jobs while another takes reports.
"""

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from trilithon.contract.engine import (
    Accepted,
    Action,
    Capabilities,
    Outcome,
    Reallocate,
    RestartJob,
    Status,
)
from trilithon.engines.abilities import REAL_TIME, fixed_operators
from trilithon.engines.spark import tables
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import last_committed, read_until
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.control import Control
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka, Logs
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.start import Running, first_line, mismatch, planned, start_frame
from trilithon.engines.spark.supervisor import Limits, Supervision
from trilithon.engines.spark.telemetry import Standing, host_report, report_of, sender_of
from trilithon.errors import InvalidJob, KafkaUnreachable, NeedsNewCheckpoint, TrilithonError
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job
from trilithon.model.report import Report

UNCHANGED: Final = Outcome(Status.UNCHANGED)
# Half as long as between the executors' reports: whoever asks every second gets a new count each time.
LAG_EVERY_S: Final = 0.5


@dataclass
class _Held:
    """A job that was accepted: what is wanted of it, and how it fares."""

    job: Job
    allocation: Allocation
    checkpoint: str = ""
    running: Running | None = None
    supervision: Supervision = field(default_factory=Supervision)
    # Up to where each source had been read when this life began: arrivals count from there, as what is
    # taken does, so that their difference is what waits in the log.
    base: list[int] | None = None
    # Which instance has which key groups now, per operator that gets its records by key.
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # The supervisor starts queries in a thread of its own: nobody else may change the job meanwhile.
    lock: threading.Lock = field(default_factory=threading.Lock)


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
        self._machines: dict[str, str] = {}
        self._logs = Logs(spark, kafka)
        self._application = str(spark.sparkContext.applicationId)
        self._closed = False

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.held:
            return UNCHANGED
        began = self.clock()
        held = _Held(job, allocation, checkpoint)
        try:
            tables.check(job, allocation, self._machines.values())
            chain = planned(self.spark, job, self.kafka)
            tasks = sum(chain.tasks_per_stage)
            self.ledger.tasks = self._tasks()
            self.ledger.reserve(job.id, Entry(job.tenant, tasks, allocation.instances))
            self._start(held, chain)
        except BaseException as error:
            self.ledger.release(job.id)
            self.control.end_job(job.id)
            if isinstance(error, TrilithonError):
                return _refused(error)
            raise
        self.held[job.id] = held
        return Outcome(Status.DONE, took_s=self.clock() - began)

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        held = self.held.pop(job, None)
        if held is not None:
            with held.lock:
                self._stop(held, clean=keep)
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
                self._next_lag_s = now + LAG_EVERY_S
                found.append(self._own_report(now))
        return found

    def _hear(self) -> None:
        """Takes what the executors sent and keeps it for the next who asks."""
        drained = self.control.drain_reports()
        self._lost += [sender_of(self._application, name) for name in drained["lost"]]
        for name in drained["lost"]:
            self._machines.pop(name, None)
        jobs = {name: held.job for name, held in list(self.held.items())}
        self.boundaries.heard(drained["reports"], jobs)
        for sent in drained["reports"]:
            found = report_of(sent, jobs, self._application)
            if sent["executor"] not in drained["lost"]:
                self._machines[sent["executor"]] = found.machine_keys[0]
            self._heard.append(found)

    def capabilities(self) -> Capabilities:
        jobs = [held.job for held in list(self.held.values())]
        fixed = fixed_operators(jobs, state_moves=False)
        self.ledger.tasks = self._tasks()
        return Capabilities(
            REAL_TIME, slots=self.ledger.slots, tasks=self.ledger.tasks, fixed=fixed
        )

    def close(self) -> None:
        """Ends the queries at once; their checkpoints stay, and the open batches are replayed if the jobs
        come back.
        """
        if self._closed:
            return
        self._closed = True
        # Each reader of a shuffle logs at ERROR that its writer has gone, which is meant here.
        self.spark.sparkContext.setLogLevel("OFF")
        for held in list(self.held.values()):
            with held.lock:
                self._stop(held, clean=False)
        self.held.clear()
        self._logs.close()

    def jobs(self) -> Mapping[str, Accepted]:
        return {
            name: Accepted(
                held.job,
                held.allocation,
                held.supervision.health.value,
                held.supervision.reason,
                held.checkpoint,
            )
            for name, held in list(self.held.items())
        }

    def supervise(self) -> None:
        """Notices queries that died and starts those again whose time has come."""
        now = self.clock()
        for held in () if self._closed else list(self.held.values()):
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
        elif running is not None and self.boundaries.stuck(held.job.id):
            self._give_up(held, running, "a batch that was told to end stood still")
        elif running is not None:
            held.supervision = held.supervision.observed(now_s, self.limits)
            self._check_plan(held, running)
        elif held.supervision.due(now_s):
            held.supervision = held.supervision.trying()
            return True
        return False

    def _start_again(self, held: _Held) -> None:
        with held.lock:
            gone = self._closed or self.held.get(held.job.id) is not held
            if gone or held.running is not None:
                return
            try:
                self._start(held)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                held.supervision = held.supervision.died(self.clock(), _told(error), self.limits)

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
            self.ledger.change(held.job.id, tasks=sum(found))
            held.running = replace(running, chain=chain)
        except KafkaUnreachable:
            return  # who cannot be asked is asked again
        except TrilithonError as error:
            self._give_up(held, running, error.message)

    def _give_up(self, held: _Held, running: Running, why: str) -> None:
        """Ends a query that does not do what it should; the supervisor starts it again."""
        held.running = None
        running.stop()
        self.boundaries.forget(held.job.id)
        held.supervision = held.supervision.died(self.clock(), why, self.limits)

    def _start(self, held: _Held, chain: Chain | None = None) -> None:
        """A query from the checkpoint. Without a chain it is planned anew: topics may have got partitions
        since.
        """
        if chain is None:
            chain = planned(self.spark, held.job, self.kafka)
            self.ledger.change(held.job.id, tasks=sum(chain.tasks_per_stage))
        self._run(held, chain, build_frame(self.spark, chain, self.kafka))

    def _run(self, held: _Held, chain: Chain, frame: DataFrame) -> None:
        """The query of a frame, with the tables of the wanted allocation."""
        held.groups = tables.push(self.control, held.job, held.allocation, held.groups)
        checkpoint, sources = self._checkpoint(held), len(chain.sources)
        committed = last_committed(checkpoint)
        held.running = start_frame(self.spark, chain, frame, self.kafka, checkpoint)
        held.base = read_until(checkpoint, committed, sources)
        held.supervision = held.supervision.started(self.clock())

    def _restart(self, action: RestartJob) -> Outcome:
        if (held := self.held.get(action.job)) is None:
            return _unknown(action.job)
        if action.id in self._ids:
            return UNCHANGED
        with held.lock:
            job = action.spec or held.job
            checkpoint = held.checkpoint if action.checkpoint is None else action.checkpoint
            # All that can be refused is refused before anything is stopped.
            _check_same_job(held.job, job)
            if checkpoint == held.checkpoint:
                _check_same_log(held.job, job)
            chain = planned(self.spark, job, self.kafka)
            frame = build_frame(self.spark, chain, self.kafka)
            allocation = action.allocation or (
                held.allocation if action.spec is None else carried_over(held.allocation, job)
            )
            tables.check(job, allocation, self._machines.values())
            entry = Entry(job.tenant, sum(chain.tasks_per_stage), allocation.instances)
            before = _Before(
                held.job, held.allocation, held.checkpoint, self.ledger.entries[job.id]
            )
            self.ledger.tasks = self._tasks()
            self.ledger.reserve(job.id, entry)
            self._ids.add(action.id)
            began = self.clock()
            try:
                replayed = self._stop(held, clean=True)
                held.job, held.allocation, held.checkpoint = job, allocation, checkpoint
                # Somebody wants it to run: what died before does not count any more.
                held.supervision = Supervision()
                self._run(held, chain, frame)
            except Exception as error:  # noqa: BLE001 - whatever it is, the job must not be left lying
                return self._go_back(held, before, error)
        if not replayed:
            return Outcome(Status.DONE, took_s=self.clock() - began)
        told = f"What was read since the last commit is read again: {replayed}."
        return Outcome(Status.DONE, "REPLAYED", told, took_s=self.clock() - began)

    def _stop(self, held: _Held, *, clean: bool) -> str:
        """Ends the job's query, between two batches if that is wanted; says why not if it could not be."""
        if (running := held.running) is None:
            return ""
        why = "it was ended at once"
        if clean:
            with self._reading:
                self._hear()
            readers, name = sum(running.chain.readers), held.job.id
            why = self.boundaries.end_and_hold(
                name, readers, self._checkpoint(held), lambda: running.query.isActive
            )
        held.running = None
        running.stop()
        self.boundaries.forget(held.job.id)
        return why

    def _go_back(self, held: _Held, before: "_Before", error: Exception) -> Outcome:
        """What was there before is there again, or the supervisor brings it back."""
        generation = held.allocation.generation + 1
        held.job, held.checkpoint, entry = before.job, before.checkpoint, before.entry
        held.allocation = replace(before.allocation, generation=generation)
        told = f"{held.job.id} did not start anew ({_told(error)}) and runs as before."
        try:
            self.ledger.reserve(held.job.id, entry)
            self._start(held)
        except Exception as again:  # noqa: BLE001 - the supervisor goes on trying
            held.supervision = held.supervision.died(self.clock(), _told(again), self.limits)
            told = (
                f"{held.job.id} did not start anew ({_told(error)}), nor as before: {_told(again)}"
            )
        return Outcome(Status.FAILED, getattr(error, "code", "ENGINE_FAILED"), told)

    def _reallocate(self, wanted: Allocation) -> Outcome:
        if (held := self.held.get(wanted.job)) is None:
            return _unknown(wanted.job)
        if wanted.generation <= held.allocation.generation:
            return UNCHANGED
        tables.check(held.job, wanted, self._machines.values())
        began = self.clock()
        with held.lock:
            self.ledger.change(wanted.job, slots=wanted.instances)
            held.groups = tables.push(self.control, held.job, wanted, held.groups)
            held.allocation = wanted
            code, message = self._switch(held)
        return Outcome(Status.DONE, code, message, took_s=self.clock() - began)

    def _switch(self, held: _Held) -> tuple[str, str]:
        """Where a key's records must stay in order, a new table counts from the next batch on: the
        running one is ended for it, if that can be.
        """
        ordered = held.job.bounds.preserve_order and tables.keyed(held.job)
        if not ordered or held.running is None:
            return "", ""
        with self._reading:
            self._hear()
        if self.boundaries.end(held.job.id, sum(held.running.chain.readers)):
            return "AT_BOUNDARY", "It takes effect in the next batch, for which this one is ended."
        return (
            "AT_BOUNDARY",
            "It takes effect when the running batch ends: a reader has no records.",
        )

    def _own_report(self, now_s: float) -> Report:
        self._sequence += 1
        runs = [(held, held.running) for held in list(self.held.values())]
        ends = self._ends([held.job for held, running in runs if running is not None])
        standing = []
        for held, running in runs:
            if running is None:
                continue
            job, arrived = held.job, {}
            for i, source in enumerate(job.sources):
                if held.base is not None and all(topic in ends for topic in source.topics):
                    end = sum(ends[topic] for topic in source.topics)
                    arrived[source.name] = float(end - held.base[i])
            names = [source.name for source in job.sources]
            readers = dict(zip(names, running.chain.readers, strict=True))
            life = running.incarnation
            standing.append(Standing(job, held.allocation, life, arrived, readers))
        lost, self._lost = self._lost, []
        placed = tables.placed(self.control, [one.allocation for one in standing])
        return host_report(self._sequence, now_s, standing, lost, placed, self._application)

    def _ends(self, jobs: Sequence[Job]) -> dict[str, int]:
        """Where the logs end. A Kafka that does not answer hides the lag, and nothing else."""
        topics = {topic for job in jobs for source in job.sources for topic in source.topics}
        try:
            return self._logs.ends(topics) if topics else {}
        except KafkaUnreachable:
            return {}

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


@dataclass(frozen=True, slots=True)
class _Before:
    """What a job was before it was started anew."""

    job: Job
    allocation: Allocation
    checkpoint: str
    entry: Entry


def _check_same_job(before: Job, after: Job) -> None:
    if before.id != after.id:
        raise NeedsNewCheckpoint(f"{after.id} is another job than {before.id}.")


def _check_same_log(before: Job, after: Job) -> None:
    """A checkpoint says how far each source was read, in their order."""
    if before.topics != after.topics:
        raise NeedsNewCheckpoint(
            f"{after.id} reads other topics than before, or in another order: its checkpoint does not "
            "say how far they were read.",
            "End the job and submit it anew.",
        )


def _refused(error: TrilithonError) -> Outcome:
    if isinstance(error, InvalidJob):
        told = " ".join(str(problem) for problem in error.problems)
        return Outcome(Status.REFUSED, error.problems[0].code, told)
    return Outcome(Status.REFUSED, error.code, f"{error.message} {error.hint}".strip())


def _unknown(job: str) -> Outcome:
    return Outcome(Status.REFUSED, "NOT_FOUND", f"There is no job {job}.")


def _told(error: Exception) -> str:
    """An error in a line."""
    if isinstance(error, TrilithonError):
        return error.message
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} {lines[0]}"[:500]


def _reason(running: Running) -> str:
    failure = running.query.exception()
    return "it ended by itself" if failure is None else first_line(failure)[:500]
