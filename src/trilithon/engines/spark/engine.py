"""Runs jobs as real-time queries of one Spark application, behind the engine contract.

The ledger admits a job before Spark sees its query. A query that dies is restarted from its
checkpoint, with back-off, in the order of priority if the live executors have too few tasks.
Parallelism, weights, key groups and placement are routing tables that are pushed while records
flow. A job is restarted between two batches, so that nothing is replayed.

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
from trilithon.contract.condition import Cause, Condition
from trilithon.contract.engine import (
    Accepted,
    Action,
    Capabilities,
    Outcome,
    Reallocate,
    RestartJob,
    Status,
)
from trilithon.contract.outcome_log import log_outcome
from trilithon.engines.abilities import REAL_TIME, fixed_operators
from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.backlog import Backlogs
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import (
    clear_fault,
    last_committed,
    offsets_at,
    partition_offsets,
    read_fault,
    write_fault,
)
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.failures import Failure, classify, describe
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka, Logs, check_not_expired
from trilithon.engines.spark.kafka_monitor import KafkaMonitor
from trilithon.engines.spark.ledger import Entry, Ledger, no_room
from trilithon.engines.spark.pacing import BatchPacer, RunningBatch
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.start import (
    RunningQuery,
    plan_mismatch,
    plan_with_partitions,
    start_frame,
)
from trilithon.engines.spark.supervisor import (
    Health,
    RestartBackoff,
    Supervision,
    WaitingJob,
    to_start,
)
from trilithon.engines.spark.telemetry import RunningJob, host_report, report_of, sender_of
from trilithon.engines.spark.watchdog import LeftThreads, StuckRecord, Watchdog
from trilithon.errors import (
    EngineFailed,
    InvalidJob,
    KafkaUnreachable,
    NeedsNewCheckpoint,
    TrilithonError,
)
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job
from trilithon.model.report import Report

UNCHANGED: Final = Outcome(Status.UNCHANGED)
# Half the executors' reporting period: a caller that polls every second gets a new count each time.
LAG_EVERY_S: Final = 0.5
# The engine ends batches. If nobody asks it for reports, Spark does after so many times the length.
UNPACED_BATCHES: Final = 2.0
# A hundred jobs that are submitted while Kafka is away wait for it once, not a hundred times.
KAFKA_MISSED_S: Final = 5.0
# A query that dies so soon after an executor was lost, of a connection that closed, died of that.
EXECUTOR_LOST_S: Final = 30.0
# Starts take seconds of CPU: with more at a time, the first ones, which matter most, come later.
STARTS_AT_A_TIME: Final = 3
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
    # What the owner should know though the job runs.
    note: str = ""
    # A failure of the supervision itself, so that a repeated one is logged once.
    looked_after: str = ""
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
        steady_clock: Callable[[], float] = time.monotonic,
        replace_host: Callable[[str], None] | None = None,
    ) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.control = ProbeControl(spark)
        self.boundaries = Boundaries(self.control, clock)
        self.watchdog = Watchdog(self.control, replace_host)
        self.pacer, self.backlogs = BatchPacer(), Backlogs()
        self.ledger = Ledger(tasks(), slots, quotas or {})
        self._max_tasks = tasks
        self.backoff = backoff or RestartBackoff()
        self.clock, self.steady_clock = clock, steady_clock
        self.managed: dict[str, _ManagedJob] = {}
        self._ids: set[str] = set()
        self._sequence = 0
        self._next_lag_s = 0.0
        self._reports_lock = threading.Lock()
        self._collected: list[Report] = []
        self._lost_senders: list[str] = []
        self._machines: dict[str, str] = {}
        self._logs = Logs(spark, kafka, self._topics_read_committed)
        self.monitor = KafkaMonitor(self._logs.ends, self._topics_read, steady_clock)
        self._kafka_was_away = False
        # Until when, and why, no start is tried: each would wait ten seconds for Kafka.
        self._kafka_missed: tuple[float, KafkaUnreachable | None] = (0.0, None)
        self._starting: set[str] = set()
        self._executors_lost_s = float("-inf")
        self._application = str(spark.sparkContext.applicationId)
        self._closed = False

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.managed:
            return UNCHANGED
        began = self.clock()
        managed = _ManagedJob(job, allocation, checkpoint)
        try:
            routing_tables.check(job, allocation, self._machines.values())
            self._refuse_without_kafka()
            chain = plan_with_partitions(self.spark, job, self.kafka)
            tasks = sum(chain.tasks_per_stage)
            self.ledger.tasks = self._max_tasks()
            if fault := read_fault(self._checkpoints(job.id), job):
                # An earlier host stopped this version for good: it would do the same again.
                managed.supervision = self._fault(fault)
            else:
                self.ledger.reserve(job.id, Entry(job.tenant, tasks, allocation.instances))
                self.ledger.occupy(job.id)
                self._start(managed, chain)
        except BaseException as error:
            self.ledger.release(job.id)
            self.control.end_job(job.id)
            if isinstance(error, KafkaUnreachable) and error is not self._kafka_missed[1]:
                self._kafka_missed = (self.steady_clock() + KAFKA_MISSED_S, error)
            if isinstance(error, TrilithonError):
                return _refused(error)
            raise
        self.managed[job.id] = managed
        self.monitor.start()
        return Outcome(Status.DONE, took_s=self.clock() - began)

    def _refuse_without_kafka(self) -> None:
        """Raises what the last start met, if that was Kafka's silence a moment ago."""
        until_s, error = self._kafka_missed
        if error is not None and self.steady_clock() < until_s:
            raise error

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        managed, message = self.managed.get(job), ""
        if managed is not None:
            with managed.lock:
                try:
                    self._stop(managed, clean=keep)
                    message, ended = self.watchdog.await_end(job)
                except TrilithonError as error:
                    # It is known still: it occupies its tasks, and the caller tries again.
                    return Outcome(Status.FAILED, error.code, error.message)
                if not ended:
                    managed.supervision = self._fault(message)
                    return Outcome(Status.FAILED, "THREADS_LEFT", message)
                self.managed.pop(job, None)
                self.control.end_job(job)
                self.boundaries.forget(job)
                self.backlogs.forget(job)
                self.watchdog.records.forget(job)
                self.ledger.release(job)
                clear_fault(self._checkpoints(job))
        if not keep:
            self._delete_checkpoints(job)
        if managed is None:
            return UNCHANGED
        return Outcome(Status.DONE, "EXECUTOR_REPLACED" if message else "", message)

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
        self._pace()
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
        if drained["lost"]:
            self._executors_lost_s = self.steady_clock()
        for name in drained["lost"]:
            self._machines.pop(name, None)
        jobs = {name: managed.job for name, managed in list(self.managed.items())}
        self.backlogs.observe(drained["reports"])
        self.watchdog.observe(drained, jobs)
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
        self.monitor.close()
        for managed in list(self.managed.values()):
            with managed.lock:
                try:
                    self._stop(managed, clean=False)
                except Exception:  # noqa: BLE001 - the others are stopped, and Spark ends with all
                    _log.exception("job_not_stopped", job=managed.job.id)
        self.managed.clear()
        self._logs.close()

    def jobs(self) -> Mapping[str, Accepted]:
        conditions = self.conditions()
        return {
            name: Accepted(
                managed.job,
                managed.allocation,
                conditions.get(name, Condition()),
                managed.checkpoint,
            )
            for name, managed in list(self.managed.items())
        }

    def conditions(self) -> Mapping[str, Condition]:
        offset_s, outage = self.clock() - self.steady_clock(), self.monitor.outage
        conditions = {}
        for name, managed in list(self.managed.items()):
            condition = managed.supervision.condition(offset_s)
            if condition.health is Health.RUNNING:
                condition = replace(condition, reason=managed.note)
            if outage is not None and condition.health is not Health.FAILED:
                # A query waits for Kafka for minutes before it dies: that is not to run.
                since_s = outage.since_s + offset_s
                if condition.health is Health.DEGRADED and condition.since_s is not None:
                    since_s = condition.since_s
                next_s = outage.next_try_s + offset_s
                condition = Condition(Health.DEGRADED, outage.reason, Cause.KAFKA, since_s, next_s)
            conditions[name] = condition
        return conditions

    def supervise(self) -> None:
        """Detects queries that died and restarts those whose back-off is over, in the order of
        priority. A job that throws does not keep the others from being looked after.
        """
        if self._closed:
            return
        now = self.steady_clock()
        if (tasks := self._max_tasks()) < self.ledger.tasks:
            self._executors_lost_s = now
        self.ledger.tasks = tasks
        kafka_back = self._kafka_was_away and self.monitor.outage is None
        self._kafka_was_away = self.monitor.outage is not None
        for managed in list(self.managed.values()):
            if not managed.lock.acquire(blocking=False):
                continue  # another thread is changing the job
            try:
                if kafka_back:
                    managed.supervision = managed.supervision.at_once(now)
                self._look_after(managed, now)
                managed.looked_after = ""
            except Exception as error:  # noqa: BLE001 - the next call tries again
                if (failure := describe(error)) != managed.looked_after:
                    _log.exception("supervision_failed", job=managed.job.id)
                managed.looked_after = failure
            finally:
                managed.lock.release()
        if not self._kafka_was_away:
            self._restart_waiting(now)

    def _pace(self) -> None:
        """Ends the batch of at most one job: the stalls of several must not coincide."""
        if self._closed:
            return
        batches, ends = self.control.batches(), self.monitor.ends
        running = [
            RunningBatch(
                name,
                batches[name],
                managed.job.batch_s,
                self.backlogs.behind(managed.job, ends),
            )
            for name, managed in list(self.managed.items())
            if managed.running is not None and name in batches
        ]
        if (job := self.pacer.next_end(time.monotonic(), running)) is not None:
            self.boundaries.end(job)

    def _look_after(self, managed: _ManagedJob, now_s: float) -> None:
        """Updates the state of a job's query."""
        running, name = managed.running, managed.job.id
        incarnation = None if running is None else running.incarnation
        for left in self.watchdog.threads.left(name, incarnation, now_s):
            self._threads_left(managed, left)
        if running is None:
            return
        if not running.active:
            error = running.query.exception() or EngineFailed("The query ended without an error.")
            managed.running = None
            self.boundaries.forget(managed.job.id)
            self._query_died(managed, now_s, error)
        elif (stuck := self.watchdog.records.stuck(managed.job)) is not None:
            self._fail(managed, stuck)
        elif self.watchdog.records.working(name):
            return  # its batch overruns because of a record that may still end
        elif self.boundaries.stuck(name):
            self._abandon(managed, EngineFailed("A batch was told to end and did not."))
        else:
            managed.supervision = managed.supervision.observed(now_s, self.backoff)
            self._check_plan(managed, running)
            self._check_partitions(managed, running)

    def _restart_waiting(self, now_s: float) -> None:
        """Starts the queries for which it is time and for which there is room."""
        waiting = {
            name: managed
            for name, managed in list(self.managed.items())
            if managed.running is None and managed.supervision.retry_at_s is not None
        }
        entries = self.ledger.entries
        waiting = {name: managed for name, managed in waiting.items() if name in entries}
        starts, short = to_start(
            (
                WaitingJob(
                    name,
                    managed.job.intent.priority,
                    entries[name].tasks,
                    managed.supervision.since_s or 0.0,
                    managed.supervision.due(now_s),
                )
                for name, managed in waiting.items()
            ),
            self.ledger.unoccupied_tasks,
        )
        for name, free in short.items():
            if (managed := waiting[name]).supervision.due(now_s):
                text = no_room(entries[name].tasks, free, self.ledger.tasks)
                managed.supervision = managed.supervision.waits(text)
        for name in starts[: max(0, STARTS_AT_A_TIME - len(self._starting))]:
            self._begin_restart(waiting[name])

    def _begin_restart(self, managed: _ManagedJob) -> None:
        """Starts a query in a thread: the other jobs' reports must not wait for it."""
        if not managed.lock.acquire(blocking=False):
            return
        try:
            self.ledger.occupy(managed.job.id)
            self._starting.add(managed.job.id)
            managed.supervision = managed.supervision.restarting()
        finally:
            managed.lock.release()
        threading.Thread(target=self._restart_query, args=(managed,), daemon=True).start()

    def _restart_query(self, managed: _ManagedJob) -> None:
        name = managed.job.id
        try:
            with managed.lock:
                gone = self._closed or self.managed.get(name) is not managed
                if gone or managed.running is not None:
                    return
                try:
                    self._start(managed)
                    failures = managed.supervision.failures
                    _log.info("query_restarted", job=name, failures=failures)
                except Exception as error:  # noqa: BLE001 - the next attempt may succeed
                    self._query_died(managed, self.steady_clock(), error)
        finally:
            self._starting.discard(name)

    def _position(self, managed: _ManagedJob) -> str:
        """The last committed batch of a job: where its query starts again."""
        try:
            return str(last_committed(self._checkpoint(managed)))
        except OSError:
            return ""

    def _query_died(self, managed: _ManagedJob, now_s: float, error: BaseException) -> None:
        """Schedules the restart of a query that died or did not start, or fails the job."""
        name, lost = managed.job.id, now_s - self._executors_lost_s < EXECUTOR_LOST_S
        failure = classify(error, executor_lost=lost)
        self.ledger.vacate(name)
        managed.supervision = after = managed.supervision.died(
            now_s,
            failure,
            self.backoff,
            job=name,
            position=self._position(managed),
        )
        fields = {"job": name, "cause": failure.cause.value, "reason": failure.reason}
        if after.health is Health.FAILED:
            # Its tasks and slots are for others, until its owner starts it again.
            self.ledger.release(name)
            _log.error("query_failed", **fields, failures=after.failures, exc_info=error)
            return
        wait_s = round((after.retry_at_s or now_s) - now_s, 3)
        _log.warning(
            "query_died", **fields, failures=after.failures, restart_in_s=wait_s, exc_info=error
        )

    def _check_plan(self, managed: _ManagedJob, running: RunningQuery) -> None:
        """Spark plans each batch anew. A difference would attribute metrics to the wrong operators:
        the query is stopped.
        """
        planned = self.control.tasks_per_stage(managed.job.id)
        if planned and planned != running.chain.tasks_per_stage:
            self._abandon(managed, plan_mismatch(running.chain, planned))

    def _check_partitions(self, managed: _ManagedJob, running: RunningQuery) -> None:
        """A query reads the partitions that it was started with. For those that a topic got since
        then it is restarted between two batches, as soon as there is room for their readers.
        """
        known = running.chain.partitions
        counts = self._logs.partitions
        more = {t: counts[t] - n for t, n in known.items() if counts.get(t, n) > n}
        managed.note = ""
        if not more:
            return
        needed, free = sum(more.values()), self.ledger.free_tasks
        if needed > free:
            topics = ", ".join(f"{topic} ({count})" for topic, count in more.items())
            managed.note = (
                f"New partitions are not read yet: {topics}. Their readers need {needed} tasks, "
                f"free {max(0, free)} of {self.ledger.tasks}."
            )
            return
        restart = RestartJob(
            f"{managed.job.id}@partitions.{sorted(counts.items())}", managed.job.id
        )
        if restart.id not in self._ids and managed.job.id not in self._starting:
            self._starting.add(managed.job.id)
            threading.Thread(target=self._restart_for, args=(restart,), daemon=True).start()

    def _restart_for(self, restart: RestartJob) -> None:
        """Restarts a job on the engine's own account."""
        try:
            log_outcome(self.apply(restart), "restart", restart.job, reason="new partitions")
        finally:
            self._starting.discard(restart.job)

    def _abandon(self, managed: _ManagedJob, error: TrilithonError) -> None:
        """Stops a query that misbehaves; the supervisor restarts it."""
        self._stop(managed, clean=False)
        self._query_died(managed, self.steady_clock(), error)

    def _fail(self, managed: _ManagedJob, stuck: StuckRecord) -> None:
        """Stops a job with a record that never ends. It stays stopped, on a new host too: the
        record would be read again.
        """
        name, now_s = managed.job.id, self.steady_clock()
        failure = Failure(Cause.RECORD, stuck.describe())
        managed.supervision = managed.supervision.failed(now_s, failure, name)
        reason = managed.supervision.reason
        _log.error("record_never_ends", job=name, operator=stuck.operator, reason=reason)
        write_fault(self._checkpoints(name), managed.job, reason)
        self._stop(managed, clean=False)
        self.watchdog.records.forget(name)
        self.ledger.vacate(name)
        self.ledger.release(name)

    def _fault(self, reason: str) -> Supervision:
        """The state of a job that is not started again by itself."""
        return Supervision(
            Health.FAILED, reason=reason, cause=Cause.RECORD, since_s=self.steady_clock()
        )

    def _threads_left(self, managed: _ManagedJob, left: LeftThreads) -> None:
        """Threads of a stopped query go on: what holds them is replaced, and the job says so."""
        message, supervision = self.watchdog.replace(left), managed.supervision
        if managed.running is None and message not in supervision.reason:
            reason = f"{supervision.reason} {message}".strip()
            managed.supervision = replace(supervision, reason=reason)

    def _start(self, managed: _ManagedJob, chain: Chain | None = None) -> None:
        """Starts the job's query from its checkpoint. Without a chain the job is planned anew: its
        topics may have more partitions by now.
        """
        if chain is None:
            chain = plan_with_partitions(self.spark, managed.job, self.kafka)
            self.ledger.change(managed.job.id, tasks=sum(chain.tasks_per_stage))
        checkpoint = self._checkpoint(managed)
        if (committed := last_committed(checkpoint)) is not None:
            offsets = partition_offsets(checkpoint, committed, len(chain.sources))
            check_not_expired(self.spark, self.kafka, offsets)
        self._run(managed, chain, build_frame(self.spark, chain, self.kafka))

    def _run(self, managed: _ManagedJob, chain: Chain, frame: DataFrame) -> None:
        """Starts the query of a frame with the routing tables of the desired allocation."""
        self.watchdog.records.forget(managed.job.id)
        clear_fault(self._checkpoints(managed.job.id))
        managed.groups = routing_tables.push(
            self.control, managed.job, managed.allocation, managed.groups
        )
        checkpoint, sources = self._checkpoint(managed), len(chain.sources)
        committed = last_committed(checkpoint)
        managed.running = start_frame(
            self.spark,
            chain,
            frame,
            self.kafka,
            checkpoint,
            batch_s=UNPACED_BATCHES * managed.job.batch_s,
        )
        managed.base = offsets_at(checkpoint, committed, sources)
        managed.supervision = managed.supervision.started(self.steady_clock())

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
                managed.job,
                managed.allocation,
                managed.checkpoint,
                self.ledger.entries.get(job.id),
                managed.supervision,
            )
            self.ledger.tasks = self._max_tasks()
            self.ledger.reserve(job.id, entry)
            try:
                self.ledger.occupy(job.id)
            except TrilithonError:
                self._restore_entry(job.id, before.entry)
                raise
            self._ids.add(action.id)
            began = self.clock()
            try:
                replayed = self._stop(managed, clean=True)
                managed.job, managed.allocation, managed.checkpoint = job, allocation, checkpoint
                # A restart on request begins with a clean failure count.
                managed.supervision = Supervision()
                self._run(managed, chain, frame)
            except Exception as error:  # noqa: BLE001 - any failure rolls back
                if action.spec is None and managed.running is None:
                    # There is no other version to return to: the supervisor retries.
                    self._query_died(managed, self.steady_clock(), error)
                    message = f"{job.id} did not start: {describe(error)}"
                    return Outcome(Status.FAILED, getattr(error, "code", "ENGINE_FAILED"), message)
                return self._roll_back(managed, before, error)
        if not replayed:
            return Outcome(Status.DONE, took_s=self.clock() - began)
        message = f"Records since the last commit are replayed: {replayed}."
        return Outcome(Status.DONE, "REPLAYED", message, took_s=self.clock() - began)

    def _restore_entry(self, job: str, entry: Entry | None) -> None:
        if entry is None:
            self.ledger.release(job)
        else:
            self.ledger.reserve(job, entry)

    def _stop(self, managed: _ManagedJob, *, clean: bool) -> str:
        """Stops the job's query; with `clean`, between two batches. Returns why records will be
        replayed, or an empty string if none will. A query that does not end stays the job's, and
        `EngineFailed` is raised.
        """
        if (running := managed.running) is None:
            return ""
        why = "the query was stopped at once"
        if clean:
            name = managed.job.id
            try:
                why = self.boundaries.end_and_hold(
                    name, self._checkpoint(managed), lambda: running.active
                )
            except Exception as error:  # noqa: BLE001 - it is stopped all the same
                _log.exception("batch_not_ended", job=name)
                why = f"the batch could not be ended ({describe(error)})"
        if not running.end():
            raise EngineFailed(f"The query of {managed.job.id} does not stop.")
        managed.running = None
        self.boundaries.forget(managed.job.id)
        return why

    def _roll_back(
        self, managed: _ManagedJob, before: "_PreviousState", error: Exception
    ) -> Outcome:
        """Returns to the previous version of the job; if that fails, the supervisor retries. A job
        that had failed before has failed still.
        """
        name, generation = managed.job.id, managed.allocation.generation + 1
        managed.job, managed.checkpoint = before.job, before.checkpoint
        managed.allocation = replace(before.allocation, generation=generation)
        _log.error("job_restart_failed", job=name, exc_info=error)
        code, why = getattr(error, "code", "ENGINE_FAILED"), describe(error)
        self._restore_entry(name, before.entry)
        if managed.running is not None:
            return Outcome(Status.FAILED, code, f"{name} did not restart: {why}")
        if before.entry is None:
            managed.supervision = before.supervision
            return Outcome(Status.FAILED, code, f"{name} did not start: {why}")
        try:
            self._start(managed)
        except Exception as again:  # noqa: BLE001 - the supervisor retries
            self._query_died(managed, self.steady_clock(), again)
            message = (
                f"{name} did not restart ({why}), and neither did its previous version: "
                f"{describe(again)}"
            )
            return Outcome(Status.FAILED, code, message)
        message = f"{name} did not restart ({why}); its previous version runs."
        return Outcome(Status.FAILED, code, message)

    def _reallocate(self, wanted: Allocation) -> Outcome:
        if (managed := self.managed.get(wanted.job)) is None:
            return _unknown_job(wanted.job)
        if wanted.generation <= managed.allocation.generation:
            return UNCHANGED
        routing_tables.check(managed.job, wanted, self._machines.values())
        began = self.clock()
        with managed.lock:
            if managed.supervision.health is Health.FAILED:
                # It has no entry. Its tables are pushed when it is started again.
                managed.allocation = wanted
                return Outcome(Status.DONE, took_s=self.clock() - began)
            self.ledger.change(wanted.job, slots=wanted.instances)
            managed.groups = routing_tables.push(self.control, managed.job, wanted, managed.groups)
            managed.allocation = wanted
            code, message = self._end_batch_for_order(managed)
        return Outcome(Status.DONE, code, message, took_s=self.clock() - began)

    def _end_batch_for_order(self, managed: _ManagedJob) -> tuple[str, str]:
        """With `preserve_order` a new routing table takes effect in the next batch: the running
        batch is ended early. Returns the outcome's code and message.
        """
        ordered = managed.job.bounds.preserve_order and routing_tables.keyed(managed.job)
        if not ordered or managed.running is None:
            return "", ""
        self.boundaries.end(managed.job.id)
        return "AT_BOUNDARY", "It takes effect in the next batch; the running one is ended now."

    def _host_report(self, now_s: float) -> Report:
        self._sequence += 1
        runs = [(managed, managed.running) for managed in list(self.managed.values())]
        ends = self.monitor.ends
        self.backlogs.observe_ends(ends, self.clock())
        running_jobs = []
        for managed, running in runs:
            if running is None:
                continue
            job, arrived = managed.job, {}
            for i, source in enumerate(job.sources):
                if managed.base is not None and all(topic in ends for topic in source.topics):
                    end = sum(ends[topic] for topic in source.topics)
                    empty = self.backlogs.without_record(job.id, running.incarnation, source.topics)
                    arrived[source.name] = float(end - managed.base[i] - empty)
            names = [source.name for source in job.sources]
            readers = dict(zip(names, running.chain.readers, strict=True))
            running_jobs.append(
                RunningJob(job, managed.allocation, running.incarnation, arrived, readers)
            )
        lost, self._lost_senders = self._lost_senders, []
        allocations = [running_job.allocation for running_job in running_jobs]
        placed = routing_tables.placed(self.control, allocations)
        return host_report(self._sequence, now_s, running_jobs, lost, placed, self._application)

    def _topics_read(self) -> set[str]:
        """The topics that jobs read, or will read when they are restarted."""
        jobs = [
            managed.job
            for managed in list(self.managed.values())
            if managed.supervision.health is not Health.FAILED
        ]
        return {topic for job in jobs for source in job.sources for topic in source.topics}

    def _topics_read_committed(self) -> set[str]:
        """The topics of which a job reads only records of committed transactions."""
        sources = [s for managed in list(self.managed.values()) for s in managed.job.sources]
        return {topic for s in sources if s.committed_only for topic in s.topics}

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
    entry: Entry | None
    supervision: Supervision


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
        if len(error.problems) == 1:
            return Outcome(Status.REFUSED, error.problems[0].code, error.problems[0].sentence)
        message = " ".join(str(problem) for problem in error.problems)
        return Outcome(Status.REFUSED, error.code, message)
    return Outcome(Status.REFUSED, error.code, f"{error.message} {error.hint}".strip())


def _unknown_job(job: str) -> Outcome:
    return Outcome(Status.REFUSED, "NOT_FOUND", f"There is no job {job}.")
