"""Runs jobs as real-time queries of one Spark application, behind the engine contract.

The ledger admits a job before Spark sees its query. A query that dies is restarted from its
checkpoint, with back-off. Parallelism, weights, key groups and placement are routing tables that
are pushed while records flow. A job is restarted between two batches, so that nothing is replayed.

Thread-safe for one caller that changes jobs and another that reads reports.
"""

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from trilithon import logs
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
from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import last_committed, offsets_at
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka, Logs
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.start import (
    RunningQuery,
    first_line,
    plan_mismatch,
    plan_with_partitions,
    start_frame,
)
from trilithon.engines.spark.supervisor import RestartBackoff, Supervision
from trilithon.engines.spark.telemetry import RunningJob, host_report, report_of, sender_of
from trilithon.errors import InvalidJob, KafkaUnreachable, NeedsNewCheckpoint, TrilithonError
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job
from trilithon.model.report import Report

UNCHANGED: Final = Outcome(Status.UNCHANGED)
# Half the executors' reporting period: a caller that polls every second gets a new count each time.
LAG_EVERY_S: Final = 0.5
_log = logs.logger()


@dataclass
class _ManagedJob:
    """An accepted job: its desired state and its current state."""

    job: Job
    allocation: Allocation
    checkpoint: str = ""
    running: RunningQuery | None = None
    supervision: Supervision = field(default_factory=Supervision)
    # The offsets of each source when this incarnation began. Arrivals count from there, like the
    # records taken, so that their difference is the lag.
    base: list[int] | None = None
    # The instance of each key group, per operator with a keyed input.
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # The supervisor starts queries in a separate thread: no other thread may change the job then.
    lock: threading.Lock = field(default_factory=threading.Lock)


class SparkEngine:
    """Runs jobs that compile to a chain of operators, on one Spark application."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        folder: Path,
        *,
        tasks: Callable[[], int],
        slots: int,
        quotas: Mapping[str, int] | None = None,
        backoff: RestartBackoff | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.control = ProbeControl(spark)
        self.boundaries = Boundaries(self.control, clock)
        self.ledger = Ledger(tasks(), slots, quotas or {})
        self._max_tasks = tasks
        self.backoff = backoff or RestartBackoff()
        self.clock = clock
        self.managed: dict[str, _ManagedJob] = {}
        self._ids: set[str] = set()
        self._sequence = 0
        self._next_lag_s = 0.0
        self._reports_lock = threading.Lock()
        self._collected: list[Report] = []
        self._lost_senders: list[str] = []
        self._machines: dict[str, str] = {}
        self._logs = Logs(spark, kafka)
        self._application = str(spark.sparkContext.applicationId)
        self._closed = False

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.managed:
            return UNCHANGED
        began = self.clock()
        managed = _ManagedJob(job, allocation, checkpoint)
        try:
            routing_tables.check(job, allocation, self._machines.values())
            chain = plan_with_partitions(self.spark, job, self.kafka)
            tasks = sum(chain.tasks_per_stage)
            self.ledger.tasks = self._max_tasks()
            self.ledger.reserve(job.id, Entry(job.tenant, tasks, allocation.instances))
            self._start(managed, chain)
        except BaseException as error:
            self.ledger.release(job.id)
            self.control.end_job(job.id)
            if isinstance(error, TrilithonError):
                return _refused(error)
            raise
        self.managed[job.id] = managed
        return Outcome(Status.DONE, took_s=self.clock() - began)

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        managed = self.managed.pop(job, None)
        if managed is not None:
            with managed.lock:
                self._stop(managed, clean=keep)
                self.control.end_job(job)
            self.boundaries.forget(job)
            self.ledger.release(job)
        if not keep:
            self._delete_checkpoints(job)
        return UNCHANGED if managed is None else Outcome(Status.DONE)

    def apply(self, action: Action) -> Outcome:
        try:
            if isinstance(action, Reallocate):
                return self._reallocate(action.allocation)
            if isinstance(action, RestartJob):
                return self._restart_job(action)
        except TrilithonError as error:
            return _refused(error)
        name = type(action).__name__
        return Outcome(Status.REFUSED, "NOT_AT_ALL", f"The Spark engine does not support {name}.")

    def reports(self) -> Sequence[Report]:
        """The executors' reports and the engine's own. Also supervises the queries."""
        self.supervise()
        with self._reports_lock:
            self._collect_reports()
            reports, self._collected = self._collected, []
            now = self.clock()
            if (self.managed and now >= self._next_lag_s) or self._lost_senders:
                self._next_lag_s = now + LAG_EVERY_S
                reports.append(self._host_report(now))
        return reports

    def _collect_reports(self) -> None:
        """Drains the executors' reports and keeps them for the next call of `reports`."""
        drained = self.control.drain_reports()
        self._lost_senders += [sender_of(self._application, name) for name in drained["lost"]]
        for name in drained["lost"]:
            self._machines.pop(name, None)
        jobs = {name: managed.job for name, managed in list(self.managed.items())}
        self.boundaries.observe(drained["reports"], jobs)
        for sent in drained["reports"]:
            report = report_of(sent, jobs, self._application)
            if sent["executor"] not in drained["lost"]:
                self._machines[sent["executor"]] = report.machine_keys[0]
            self._collected.append(report)

    def capabilities(self) -> Capabilities:
        jobs = [managed.job for managed in list(self.managed.values())]
        fixed = fixed_operators(jobs, state_moves=False)
        self.ledger.tasks = self._max_tasks()
        return Capabilities(
            REAL_TIME, slots=self.ledger.slots, tasks=self.ledger.tasks, fixed=fixed
        )

    def close(self) -> None:
        """Stops all queries at once. Checkpoints stay: a job that is submitted again replays its
        open batch.
        """
        if self._closed:
            return
        self._closed = True
        # Each shuffle reader would log at ERROR that its writer is gone, which is intended here.
        self.spark.sparkContext.setLogLevel("OFF")
        for managed in list(self.managed.values()):
            with managed.lock:
                self._stop(managed, clean=False)
        self.managed.clear()
        self._logs.close()

    def jobs(self) -> Mapping[str, Accepted]:
        return {
            name: Accepted(
                managed.job,
                managed.allocation,
                managed.supervision.health.value,
                managed.supervision.reason,
                managed.checkpoint,
            )
            for name, managed in list(self.managed.items())
        }

    def supervise(self) -> None:
        """Detects queries that died and restarts those whose back-off is over."""
        now = self.clock()
        for managed in () if self._closed else list(self.managed.values()):
            if not managed.lock.acquire(blocking=False):
                continue  # another thread is changing the job
            try:
                if self._restart_due(managed, now):
                    # A start takes seconds: the other jobs' reports must not wait for it.
                    threading.Thread(
                        target=self._restart_query, args=(managed,), daemon=True
                    ).start()
            finally:
                managed.lock.release()

    def _restart_due(self, managed: _ManagedJob, now_s: float) -> bool:
        """Updates the state of a job's query; true if it must be restarted now."""
        running = managed.running
        if running is not None and not running.query.isActive:
            self._query_died(managed, now_s, _why_it_ended(running))
            managed.running = None
        elif running is not None and self.boundaries.stuck(managed.job.id):
            self._abandon(managed, running, "a batch was told to end and did not")
        elif running is not None:
            managed.supervision = managed.supervision.observed(now_s, self.backoff)
            self._check_plan(managed, running)
        elif managed.supervision.due(now_s):
            managed.supervision = managed.supervision.restarting()
            return True
        return False

    def _restart_query(self, managed: _ManagedJob) -> None:
        with managed.lock:
            gone = self._closed or self.managed.get(managed.job.id) is not managed
            if gone or managed.running is not None:
                return
            try:
                self._start(managed)
                failures = managed.supervision.failures
                _log.info("query_restarted", job=managed.job.id, failures=failures)
            except Exception as error:  # noqa: BLE001 - the next attempt may succeed
                _log.exception("query_restart_failed", job=managed.job.id)
                self._query_died(managed, self.clock(), _describe(error))

    def _query_died(self, managed: _ManagedJob, now_s: float, reason: str) -> None:
        """Schedules the restart of a query that died or did not start, or gives it up."""
        managed.supervision = after = managed.supervision.died(now_s, reason, self.backoff)
        wait_s = None if after.retry_at_s is None else round(after.retry_at_s - now_s, 3)
        fields = {"job": managed.job.id, "reason": reason, "failures": after.failures}
        if wait_s is None:
            _log.error("query_failed", **fields)
        else:
            _log.warning("query_died", **fields, restart_in_s=wait_s)

    def _check_plan(self, managed: _ManagedJob, running: RunningQuery) -> None:
        """Spark plans each batch anew. New partitions of a topic bring more readers, which the
        ledger must admit. Any other difference would attribute metrics to the wrong operators: the
        query is stopped.
        """
        planned = self.control.tasks_per_stage(managed.job.id)
        if not planned or planned == running.chain.tasks_per_stage:
            return
        try:
            chain = plan_with_partitions(self.spark, managed.job, self.kafka)
            if planned != chain.tasks_per_stage:
                raise plan_mismatch(chain, planned)
            self.ledger.change(managed.job.id, tasks=sum(planned))
            managed.running = replace(running, chain=chain)
        except KafkaUnreachable:
            return  # the next call tries again
        except TrilithonError as error:
            self._abandon(managed, running, error.message)

    def _abandon(self, managed: _ManagedJob, running: RunningQuery, why: str) -> None:
        """Stops a query that misbehaves; the supervisor restarts it."""
        managed.running = None
        running.stop()
        self.boundaries.forget(managed.job.id)
        self._query_died(managed, self.clock(), why)

    def _start(self, managed: _ManagedJob, chain: Chain | None = None) -> None:
        """Starts the job's query from its checkpoint. Without a chain the job is planned anew: its
        topics may have more partitions by now.
        """
        if chain is None:
            chain = plan_with_partitions(self.spark, managed.job, self.kafka)
            self.ledger.change(managed.job.id, tasks=sum(chain.tasks_per_stage))
        self._run(managed, chain, build_frame(self.spark, chain, self.kafka))

    def _run(self, managed: _ManagedJob, chain: Chain, frame: DataFrame) -> None:
        """Starts the query of a frame with the routing tables of the desired allocation."""
        managed.groups = routing_tables.push(
            self.control, managed.job, managed.allocation, managed.groups
        )
        checkpoint, sources = self._checkpoint(managed), len(chain.sources)
        committed = last_committed(checkpoint)
        managed.running = start_frame(self.spark, chain, frame, self.kafka, checkpoint)
        managed.base = offsets_at(checkpoint, committed, sources)
        managed.supervision = managed.supervision.started(self.clock())

    def _restart_job(self, action: RestartJob) -> Outcome:
        if (managed := self.managed.get(action.job)) is None:
            return _unknown_job(action.job)
        if action.id in self._ids:
            return UNCHANGED
        with managed.lock:
            job = action.spec or managed.job
            checkpoint = managed.checkpoint if action.checkpoint is None else action.checkpoint
            # Every check comes before the query is stopped.
            _check_same_job(managed.job, job)
            if checkpoint == managed.checkpoint:
                _check_same_log(managed.job, job)
            chain = plan_with_partitions(self.spark, job, self.kafka)
            frame = build_frame(self.spark, chain, self.kafka)
            allocation = action.allocation or (
                managed.allocation
                if action.spec is None
                else carried_over(managed.allocation, job).next_generation()
            )
            routing_tables.check(job, allocation, self._machines.values())
            entry = Entry(job.tenant, sum(chain.tasks_per_stage), allocation.instances)
            before = _PreviousState(
                managed.job, managed.allocation, managed.checkpoint, self.ledger.entries[job.id]
            )
            self.ledger.tasks = self._max_tasks()
            self.ledger.reserve(job.id, entry)
            self._ids.add(action.id)
            began = self.clock()
            try:
                replayed = self._stop(managed, clean=True)
                managed.job, managed.allocation, managed.checkpoint = job, allocation, checkpoint
                # A restart on request begins with a clean failure count.
                managed.supervision = Supervision()
                self._run(managed, chain, frame)
            except Exception as error:  # noqa: BLE001 - any failure rolls back
                return self._roll_back(managed, before, error)
        if not replayed:
            return Outcome(Status.DONE, took_s=self.clock() - began)
        message = f"Records since the last commit are replayed: {replayed}."
        return Outcome(Status.DONE, "REPLAYED", message, took_s=self.clock() - began)

    def _stop(self, managed: _ManagedJob, *, clean: bool) -> str:
        """Stops the job's query; with `clean`, between two batches. Returns why records will be
        replayed, or an empty string if none will.
        """
        if (running := managed.running) is None:
            return ""
        why = "the query was stopped at once"
        if clean:
            with self._reports_lock:
                self._collect_reports()
            readers, name = sum(running.chain.readers), managed.job.id
            why = self.boundaries.end_and_hold(
                name, readers, self._checkpoint(managed), lambda: running.query.isActive
            )
        managed.running = None
        running.stop()
        self.boundaries.forget(managed.job.id)
        return why

    def _roll_back(
        self, managed: _ManagedJob, before: "_PreviousState", error: Exception
    ) -> Outcome:
        """Returns to the previous version of the job; if that fails, the supervisor retries."""
        generation = managed.allocation.generation + 1
        managed.job, managed.checkpoint, entry = before.job, before.checkpoint, before.entry
        managed.allocation = replace(before.allocation, generation=generation)
        message = (
            f"{managed.job.id} did not restart ({_describe(error)}); its previous version runs."
        )
        _log.error("job_restart_failed", job=managed.job.id, exc_info=error)
        try:
            self.ledger.reserve(managed.job.id, entry)
            self._start(managed)
        except Exception as again:  # noqa: BLE001 - the supervisor retries
            _log.exception("job_rollback_failed", job=managed.job.id)
            self._query_died(managed, self.clock(), _describe(again))
            message = (
                f"{managed.job.id} did not restart ({_describe(error)}), and neither did its "
                f"previous version: {_describe(again)}"
            )
        return Outcome(Status.FAILED, getattr(error, "code", "ENGINE_FAILED"), message)

    def _reallocate(self, wanted: Allocation) -> Outcome:
        if (managed := self.managed.get(wanted.job)) is None:
            return _unknown_job(wanted.job)
        if wanted.generation <= managed.allocation.generation:
            return UNCHANGED
        routing_tables.check(managed.job, wanted, self._machines.values())
        began = self.clock()
        with managed.lock:
            self.ledger.change(wanted.job, slots=wanted.instances)
            managed.groups = routing_tables.push(self.control, managed.job, wanted, managed.groups)
            managed.allocation = wanted
            code, message = self._end_batch_for_order(managed)
        return Outcome(Status.DONE, code, message, took_s=self.clock() - began)

    def _end_batch_for_order(self, managed: _ManagedJob) -> tuple[str, str]:
        """With `preserve_order` a new routing table takes effect in the next batch: the running
        batch is ended early, if possible. Returns the outcome's code and message.
        """
        ordered = managed.job.bounds.preserve_order and routing_tables.keyed(managed.job)
        if not ordered or managed.running is None:
            return "", ""
        with self._reports_lock:
            self._collect_reports()
        if self.boundaries.end(managed.job.id, sum(managed.running.chain.readers)):
            return "AT_BOUNDARY", "It takes effect in the next batch; the running one is ended now."
        return (
            "AT_BOUNDARY",
            "It takes effect when the running batch ends by itself: a reader has no records.",
        )

    def _host_report(self, now_s: float) -> Report:
        self._sequence += 1
        runs = [(managed, managed.running) for managed in list(self.managed.values())]
        ends = self._log_ends([managed.job for managed, running in runs if running is not None])
        running_jobs = []
        for managed, running in runs:
            if running is None:
                continue
            job, arrived = managed.job, {}
            for i, source in enumerate(job.sources):
                if managed.base is not None and all(topic in ends for topic in source.topics):
                    end = sum(ends[topic] for topic in source.topics)
                    arrived[source.name] = float(end - managed.base[i])
            names = [source.name for source in job.sources]
            readers = dict(zip(names, running.chain.readers, strict=True))
            running_jobs.append(
                RunningJob(job, managed.allocation, running.incarnation, arrived, readers)
            )
        lost, self._lost_senders = self._lost_senders, []
        allocations = [running_job.allocation for running_job in running_jobs]
        placed = routing_tables.placed(self.control, allocations)
        return host_report(self._sequence, now_s, running_jobs, lost, placed, self._application)

    def _log_ends(self, jobs: Sequence[Job]) -> dict[str, int]:
        """The end offset of each topic; empty if Kafka does not answer (no lag then)."""
        topics = {topic for job in jobs for source in job.sources for topic in source.topics}
        try:
            return self._logs.ends(topics) if topics else {}
        except KafkaUnreachable:
            return {}

    def _checkpoint(self, managed: _ManagedJob) -> Path:
        return self._checkpoints(managed.job.id) / (managed.checkpoint or "first")

    def _checkpoints(self, job: str) -> Path:
        tenant, _, name = job.partition("/")
        return self.folder / "checkpoints" / tenant / name

    def _delete_checkpoints(self, job: str) -> None:
        folder = self._checkpoints(job)
        # The name comes from the caller: never delete anything outside the checkpoint folder.
        if folder.resolve().parent.parent == (self.folder / "checkpoints").resolve():
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _PreviousState:
    """The state of a job before a restart, for rolling back."""

    job: Job
    allocation: Allocation
    checkpoint: str
    entry: Entry


def _check_same_job(before: Job, after: Job) -> None:
    if before.id != after.id:
        raise NeedsNewCheckpoint(f"{after.id} is another job than {before.id}.")


def _check_same_log(before: Job, after: Job) -> None:
    """A checkpoint stores the offsets of the sources in their order."""
    if before.topics != after.topics:
        raise NeedsNewCheckpoint(
            f"{after.id} reads other topics than before, or in another order: its checkpoint has "
            "no offsets for them.",
            "Delete the job and submit it again.",
        )


def _refused(error: TrilithonError) -> Outcome:
    if isinstance(error, InvalidJob):
        message = " ".join(str(problem) for problem in error.problems)
        return Outcome(Status.REFUSED, error.problems[0].code, message)
    return Outcome(Status.REFUSED, error.code, f"{error.message} {error.hint}".strip())


def _unknown_job(job: str) -> Outcome:
    return Outcome(Status.REFUSED, "NOT_FOUND", f"There is no job {job}.")


def _describe(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, TrilithonError):
        return error.message
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__} {lines[0]}"[:500]


def _why_it_ended(running: RunningQuery) -> str:
    failure = running.query.exception()
    return "the query ended without an error" if failure is None else first_line(failure)[:500]
