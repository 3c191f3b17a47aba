"""Runs jobs as real-time queries of one Spark application, behind the engine contract.

The ledger admits a job before Spark sees its query. A query that dies is restarted from its
checkpoint, with back-off, in the order of priority if the live executors have too few tasks.
Parallelism, weights, key groups and placement are routing tables that are pushed while records
flow. A job is restarted between two batches, so that nothing is replayed.

Thread-safe for one caller that changes jobs and another that reads reports.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from trilithon import logs
from trilithon.contract.condition import Condition
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
from trilithon.engines.spark.backlog import Backlogs
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import clear_fault, read_fault
from trilithon.engines.spark.deaths import Deaths
from trilithon.engines.spark.kafka import Kafka, Logs
from trilithon.engines.spark.kafka_monitor import KafkaMonitor
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.pacing import BatchPacer, RunningBatch
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.queries import JobQueries
from trilithon.engines.spark.query_supervisor import QuerySupervisor
from trilithon.engines.spark.restarts import JobRestarts, unknown_job
from trilithon.engines.spark.supervisor import Health, RestartBackoff
from trilithon.engines.spark.telemetry import RunningJob, host_report, report_of, sender_of
from trilithon.engines.spark.watchdog import Watchdog
from trilithon.errors import InvalidJob, KafkaUnreachable, TrilithonError
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job
from trilithon.model.report import Report

UNCHANGED: Final = Outcome(Status.UNCHANGED)
# Half the executors' reporting period: a caller that polls every second gets a new count each time.
LAG_EVERY_S: Final = 0.5
# A hundred jobs that are submitted while Kafka is away wait for it once, not a hundred times.
KAFKA_MISSED_S: Final = 5.0
_log = logs.logger()


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
        control: ProbeControl | None = None,
    ) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.control = control or ProbeControl(spark)
        self.boundaries = Boundaries(self.control, clock)
        self.watchdog = Watchdog(self.control, replace_host)
        self.pacer, self.backlogs = BatchPacer(), Backlogs()
        self.ledger = Ledger(tasks(), slots, quotas or {})
        self._max_tasks = tasks
        self.clock, self.steady_clock = clock, steady_clock
        self.managed: dict[str, ManagedJob] = {}
        self._sequence = 0
        self._next_lag_s = 0.0
        self._reports_lock = threading.Lock()
        self._collected: list[Report] = []
        self._lost_senders: list[str] = []
        self._machines: dict[str, str] = {}
        self.logs = Logs(spark, kafka, self._topics_read_committed)
        self.monitor = KafkaMonitor(self.logs.ends, self._topics_read, steady_clock)
        # Until when, and why, no start is tried: each would wait ten seconds for Kafka.
        self._kafka_missed: tuple[float, KafkaUnreachable | None] = (0.0, None)
        self._application = str(spark.sparkContext.applicationId)
        self._closed = False
        # The jobs that a thread of the engine starts or restarts.
        self.starting: set[str] = set()
        self.queries = JobQueries(
            spark,
            kafka,
            folder,
            self.control,
            self.boundaries,
            self.watchdog,
            self.ledger,
            steady_clock,
        )
        self.deaths = Deaths(self.queries, self.ledger, backoff or RestartBackoff(), steady_clock)
        self.restarts = JobRestarts(
            self.managed,
            self.queries,
            self.deaths,
            self.ledger,
            tasks,
            self._machines.values,
            self.starting,
            clock,
            steady_clock,
        )
        self.supervisor = QuerySupervisor(
            self.managed,
            self.queries,
            self.deaths,
            self.restarts,
            self.ledger,
            self.monitor,
            self.logs,
            tasks,
            self.starting,
            steady_clock,
        )

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.managed:
            return UNCHANGED
        began = self.clock()
        managed = ManagedJob(job, allocation, checkpoint)
        try:
            routing_tables.check(job, allocation, self._machines.values())
            self._refuse_without_kafka()
            chain = self.queries.plan(job)
            tasks = sum(chain.tasks_per_stage)
            self.ledger.tasks = self._max_tasks()
            if fault := read_fault(self.queries.checkpoints(job.id), job):
                # An earlier host stopped this version for good: it would do the same again.
                managed.supervision = self.deaths.fault(fault)
            else:
                self.ledger.reserve(job.id, Entry(job.tenant, tasks, allocation.instances))
                self.ledger.occupy(job.id)
                self.queries.start(managed, chain)
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
                    self.queries.stop(managed, clean=keep)
                    message, ended = self.watchdog.await_end(job)
                except TrilithonError as error:
                    # It is known still: it occupies its tasks, and the caller tries again.
                    return Outcome(Status.FAILED, error.code, error.message)
                if not ended:
                    managed.supervision = self.deaths.fault(message)
                    return Outcome(Status.FAILED, "THREADS_LEFT", message)
                self.managed.pop(job, None)
                self.control.end_job(job)
                self.boundaries.forget(job)
                self.backlogs.forget(job)
                self.watchdog.records.forget(job)
                self.ledger.release(job)
                clear_fault(self.queries.checkpoints(job))
        if not keep:
            self.queries.delete_checkpoints(job)
        if managed is None:
            return UNCHANGED
        return Outcome(Status.DONE, "EXECUTOR_REPLACED" if message else "", message)

    def apply(self, action: Action) -> Outcome:
        try:
            if isinstance(action, Reallocate):
                return self._reallocate(action.allocation)
            if isinstance(action, RestartJob):
                return self.restarts.restart(action)
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
            self.deaths.executors_lost_s = self.steady_clock()
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
        self._closed = self.supervisor.closed = True
        # Each shuffle reader would log at ERROR that its writer is gone, which is intended here.
        self.spark.sparkContext.setLogLevel("OFF")
        self.monitor.close()
        for managed in list(self.managed.values()):
            with managed.lock:
                try:
                    self.queries.stop(managed, clean=False)
                except Exception:  # noqa: BLE001 - the others are stopped, and Spark ends with all
                    _log.exception("job_not_stopped", job=managed.job.id)
        self.managed.clear()
        self.logs.close()

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
        return self.supervisor.conditions(self.clock() - self.steady_clock())

    def supervise(self) -> None:
        self.supervisor.supervise()

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

    def _reallocate(self, wanted: Allocation) -> Outcome:
        if (managed := self.managed.get(wanted.job)) is None:
            return unknown_job(wanted.job)
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

    def _end_batch_for_order(self, managed: ManagedJob) -> tuple[str, str]:
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


def _refused(error: TrilithonError) -> Outcome:
    if isinstance(error, InvalidJob):
        if len(error.problems) == 1:
            return Outcome(Status.REFUSED, error.problems[0].code, error.problems[0].sentence)
        message = " ".join(str(problem) for problem in error.problems)
        return Outcome(Status.REFUSED, error.code, message)
    return Outcome(Status.REFUSED, error.code, f"{error.message} {error.hint}".strip())
