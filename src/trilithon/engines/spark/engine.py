"""Runs jobs as real-time queries of one Spark application, behind the engine contract.

The ledger admits a job before Spark sees its query. A query that dies is restarted from its
checkpoint, with back-off, in the order of priority if the live executors have too few tasks.
Parallelism, weights, key groups and placement are routing tables that are pushed while records
flow. A job is restarted between two batches, so that nothing is replayed.

Thread-safe for one caller that changes jobs and another that reads reports.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from trilithon import logs
from trilithon.contract.condition import Condition
from trilithon.contract.engine import (
    Accepted,
    Action,
    AddMachines,
    Capabilities,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartJob,
    Status,
)
from trilithon.engines.abilities import REAL_TIME, fixed_operators
from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.backlog import Backlogs
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.checkpoint import checkpoint_root, clear_fault, read_fault
from trilithon.engines.spark.cuts import cut_into_parts, is_part
from trilithon.engines.spark.dags import Dags, not_restarted
from trilithon.engines.spark.deaths import Deaths
from trilithon.engines.spark.edge_records import edge_records
from trilithon.engines.spark.executors import Executors
from trilithon.engines.spark.flush_time import own_flush_ms
from trilithon.engines.spark.incarnations import Incarnations
from trilithon.engines.spark.internal_topics import InternalTopics
from trilithon.engines.spark.kafka import Kafka, Logs
from trilithon.engines.spark.kafka_monitor import KafkaMonitor
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.machine_pool import MachinePool
from trilithon.engines.spark.managed_job import ManagedJob, live_growth
from trilithon.engines.spark.overruns import Overruns
from trilithon.engines.spark.pacing import BatchPacer, RunningBatch
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.queries import JobQueries
from trilithon.engines.spark.query_supervisor import QuerySupervisor
from trilithon.engines.spark.reallocation import Reallocations
from trilithon.engines.spark.report_collector import ReportCollector
from trilithon.engines.spark.restarts import JobRestarts, unknown_job
from trilithon.engines.spark.shared_flush_time import SharedFlushTime
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.engines.spark.start import RunningQuery
from trilithon.engines.spark.supervisor import Health, RestartBackoff
from trilithon.engines.spark.warm_up import RunningChain, WarmUp
from trilithon.engines.spark.watchdog import Watchdog
from trilithon.errors import (
    InvalidJob,
    KafkaUnreachable,
    NeedsNewCheckpoint,
    NotObservable,
    TrilithonError,
)
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job
from trilithon.model.report import Report

UNCHANGED: Final = Outcome(Status.UNCHANGED)
# A hundred jobs that are submitted while Kafka is away wait for it once, not a hundred times.
KAFKA_MISSED_S: Final = 5.0
_log = logs.logger()


class SparkEngine:
    """Runs jobs on one Spark application: one query for each part of a job."""

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
        cluster: StandaloneCluster | None = None,
    ) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.control = control or ProbeControl(spark)
        self.flush_time = SharedFlushTime(self.control.set_flush_time, own_flush_ms(spark))
        self.boundaries = Boundaries(self.control, steady_clock)
        self.watchdog = Watchdog(self.control, replace_host)
        self.overruns = Overruns(self.boundaries, self.watchdog.records)
        self.pacer, self.backlogs = BatchPacer(), Backlogs()
        self.ledger = Ledger(tasks(), slots, quotas or {})
        self._max_tasks = tasks
        self.clock, self.steady_clock = clock, steady_clock
        self.incarnations = Incarnations(folder / "incarnation", clock)
        self.control.set_least_incarnation(self.incarnations.least)
        self.managed: dict[str, ManagedJob] = {}
        self._machines: dict[str, str] = {}
        self.machines = MachinePool(
            Executors(spark),
            self.control,
            self.boundaries,
            self.ledger,
            self._machines,
            cluster,
            steady_clock,
            self._running_queries,
            WarmUp(spark, self.control, self.ledger, tasks, self._running_chains).run,
        )
        self.logs = Logs(spark, kafka, self._topics_read_committed)
        self.monitor = KafkaMonitor(self._read_ends, self._topics_read, steady_clock)
        # Until when, and why, no start is tried: each would wait ten seconds for Kafka.
        self._kafka_missed: tuple[float, KafkaUnreachable | None] = (0.0, None)
        self._closed = False
        # The jobs that a thread of the engine starts or restarts.
        self.starting: set[str] = set()
        self.queries = JobQueries(
            spark,
            kafka,
            checkpoint_root(spark, folder),
            self.control,
            self.boundaries,
            self.watchdog,
            self.ledger,
            self._machines.values,
            self.incarnations,
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
            steady_clock,
        )
        self.reallocations = Reallocations(
            self.managed,
            self.queries,
            self.restarts,
            self.ledger,
            tasks,
            self._machines.values,
            steady_clock,
        )
        self.supervisor = QuerySupervisor(
            self.managed,
            self.queries,
            self.deaths,
            self.restarts,
            self.overruns,
            self.ledger,
            self.monitor,
            self.logs,
            tasks,
            self.starting,
            steady_clock,
        )
        self.collector = ReportCollector(
            str(spark.sparkContext.applicationId),
            self.managed,
            self.control,
            self.backlogs,
            self.watchdog,
            self.overruns,
            self.deaths,
            self.monitor,
            self._machines,
            clock,
            steady_clock,
        )
        self.dags = Dags(
            self,
            self.queries,
            self.ledger,
            self.control,
            InternalTopics(spark, kafka, self.queries.root),
            self.logs.ends,
            self.collector.collect,
            self.collector.driver_time_s,
            steady_clock,
            self.collector.lags,
            self.collector.whole,
        )

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        if job.id in self.managed or job.id in self.dags.accepted:
            return UNCHANGED
        with self.flush_time.starting(job, allocation):
            self._update_flush_time()
            if len(cut_into_parts(job).parts) == 1:
                return self.submit_chain(job, allocation, checkpoint)
            return self._submit_parts(job, allocation, checkpoint)

    def _submit_parts(self, job: Job, allocation: Allocation, checkpoint: str) -> Outcome:
        try:
            routing_tables.check(job, allocation, self._machines.values())
            self._refuse_without_kafka()
            self.ledger.tasks = self._max_tasks()
            outcome = self.dags.submit(job, allocation, checkpoint)
        except TrilithonError as error:
            self._note_missed(error)
            return _refused(error)
        return outcome

    def submit_chain(self, job: Job, allocation: Allocation, checkpoint: str) -> Outcome:
        """Starts a part of a job."""
        began = self.steady_clock()
        managed = ManagedJob(job, allocation, checkpoint)
        try:
            routing_tables.check(job, allocation, self._machines.values())
            self._refuse_without_kafka()
            chain = self.queries.plan(job, allocation)
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
            self._note_missed(error)
            if isinstance(error, TrilithonError):
                return _refused(error)
            raise
        self.managed[job.id] = managed
        self.monitor.start()
        return Outcome(Status.DONE, took_s=self.steady_clock() - began)

    def _note_missed(self, error: BaseException) -> None:
        if isinstance(error, KafkaUnreachable) and error is not self._kafka_missed[1]:
            self._kafka_missed = (self.steady_clock() + KAFKA_MISSED_S, error)

    def _refuse_without_kafka(self) -> None:
        """Raises what the last start met, if that was Kafka's silence a moment ago."""
        until_s, error = self._kafka_missed
        if error is not None and self.steady_clock() < until_s:
            raise error

    def cancel(self, job: str, keep: bool = False) -> Outcome:
        outcome = self._cancel(job, keep=keep)
        self._update_flush_time()
        return outcome

    def _cancel(self, job: str, *, keep: bool) -> Outcome:
        if job in self.dags.accepted:
            return self.dags.cancel(job, keep=keep)
        outcome = self.cancel_chain(job, keep)
        if not keep and (parts := self.queries.parts_of(job)):
            # An earlier host ran it, in several parts.
            for part in parts:
                self.queries.delete_checkpoints(part)
            if left := self.dags.delete_topics(job):
                outcome = replace(outcome, code="TOPICS_LEFT", message=left)
        return outcome

    def cancel_chain(self, job: str, keep: bool) -> Outcome:
        """Stops a part of a job."""
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
                return self._with_flush_time(action.allocation)
            if isinstance(action, RestartJob):
                return self._restart(action)
            if isinstance(action, AddMachines):
                return self.machines.add_machines(action)
            if isinstance(action, RemoveMachines):
                return self.machines.remove_machines(action)
        except TrilithonError as error:
            return _refused(error)
        name = type(action).__name__
        return Outcome(Status.REFUSED, "NOT_AT_ALL", f"The Spark engine does not support {name}.")

    def _restart(self, action: RestartJob) -> Outcome:
        """Restarts a job of one part by itself, and the parts of a job one by one. From one form to
        the other, and with several parts from another checkpoint, a job starts over.
        """
        in_parts, known = action.job in self.dags.accepted, self.jobs().get(action.job)
        if known is None:
            return unknown_job(action.job)
        spec = action.spec or known.job
        other_form = in_parts != (len(cut_into_parts(spec).parts) > 1)
        other_start = action.checkpoint not in {None, known.checkpoint}
        if other_form and not other_start:
            raise NeedsNewCheckpoint(
                f"{action.job} has other parts than before: no checkpoint has their offsets.",
                "Delete the job and submit it again.",
            )
        wanted = action.allocation or carried_over(known.allocation, spec)
        with self.flush_time.starting(spec, wanted):
            self._update_flush_time()
            if other_form or (in_parts and other_start):
                return self._start_over(action, known)
            return self.dags.restart(action) if in_parts else self.restarts.restart(action)

    def _start_over(self, action: RestartJob, before: Accepted) -> Outcome:
        """Starts a version from a checkpoint of its own; what the parts of the old one have not
        passed on to each other yet stays with that one.
        """
        if action.id in self.dags.done:
            return UNCHANGED
        self.dags.done.add(action.id)
        began, job = self.steady_clock(), action.spec or before.job
        wanted = action.allocation or carried_over(before.allocation, job).next_generation()
        outcome = self.cancel(job.id, keep=True)
        if outcome.status is Status.FAILED:
            return outcome
        outcome = self.submit(job, wanted, action.checkpoint or "")
        if outcome.status is Status.DONE:
            return Outcome(Status.DONE, took_s=self.steady_clock() - began)
        again = replace(before.allocation, generation=wanted.generation + 1)
        returned = self.submit(before.job, again, before.checkpoint)
        failed = None if returned.status is Status.DONE else returned
        return not_restarted(job.id, outcome, failed)

    def restart_chain(self, action: RestartJob) -> Outcome:
        """Restarts a part of a job."""
        return self.restarts.restart(action)

    def reallocate_chain(self, wanted: Allocation, tasks: dict[str, int] | None = None) -> Outcome:
        """Changes the allocation of a part of a job, with a restart if it needs more tasks."""
        return self.reallocations.apply(wanted, tasks)

    def grown_tasks(self, wanted: Allocation, free: int) -> dict[str, int] | None:
        """The tasks of each operator of a part if its allocation needs more than it holds."""
        return self.reallocations.grown_tasks(wanted, free)

    def reports(self) -> Sequence[Report]:
        """The executors' reports and the engine's own. Also supervises the queries."""
        self.supervise()
        self._pace()
        reports = self.collector.take(self.dags.waiting)
        if not self._closed:
            self.dags.hold_back()
            self._update_flush_time()
        return reports

    def _update_flush_time(self) -> bool:
        """Whether the smallest flush time that a job needs is another one now."""
        chains = [
            (managed.job, managed.allocation)
            for name, managed in list(self.managed.items())
            if not is_part(name)
        ]
        dags = [(dag.job, dag.allocation) for dag in list(self.dags.accepted.values())]
        return self.flush_time.update([*chains, *dags])

    def _with_flush_time(self, wanted: Allocation) -> Outcome:
        """Changes an allocation; the outcome says when its batching times take effect."""
        known = self.dags.accepted.get(wanted.job) or self.managed.get(wanted.job)
        before = None if known is None else known.allocation
        outcome = self._reallocate(wanted)
        if outcome.status is not Status.DONE or known is None or before is None:
            return outcome
        updated = self._update_flush_time()
        return self.flush_time.outcome(outcome, known.job, before, wanted, updated=updated)

    def _read_ends(self, topics: Collection[str]) -> Mapping[str, int]:
        began_s = self.collector.driver_time_s()
        ends = self.logs.ends(topics)
        self.dags.lags.observe_ends(ends, (began_s + self.collector.driver_time_s()) / 2)
        self.dags.purge()
        return ends

    def edge_records(self, job: str, edge: str, count: int) -> list[dict[str, Any]]:
        """The latest records of an edge between two operators of one query."""
        part = self.dags.part_with(job, edge)
        managed = None if part is None else self.managed.get(part)
        if part is None or managed is None or managed.running is None:
            raise NotObservable(
                f"No query of {job} runs that has the edge {edge}.", "See its state, and try again."
            )
        return edge_records(self.control, part, edge, count)

    def capabilities(self) -> Capabilities:
        jobs = [accepted.job for accepted in self.jobs().values()]
        fixed = fixed_operators(jobs, state_moves=False)
        self.ledger.tasks = self._max_tasks()
        machine_slots = self.machines.slots_per_machine()
        return Capabilities(
            {**REAL_TIME, **self.machines.abilities()},
            slots=self.ledger.slots,
            tasks=self.ledger.tasks,
            fixed=fixed,
            machine_slots=machine_slots,
            machine_tasks=self.machines.tasks_per_machine(),
            tasks_used=self.machines.tasks_of_jobs(),
            tasks_spread=True,
            tasks_held=live_growth(self.managed.values()),
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
        self.dags.accepted.clear()
        self._update_flush_time()
        self.logs.close()

    def jobs(self) -> Mapping[str, Accepted]:
        conditions = self.conditions()
        chains = {
            name: Accepted(
                managed.job,
                managed.allocation,
                conditions.get(name, Condition()),
                managed.checkpoint,
            )
            for name, managed in list(self.managed.items())
            if not is_part(name)
        }
        return chains | self.dags.jobs(conditions)

    def conditions(self) -> Mapping[str, Condition]:
        parts = self.supervisor.conditions(self.clock() - self.steady_clock())
        return self.dags.joined(parts)

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
        now_s, hold = self.steady_clock(), self.machines.joining
        if (job := self.pacer.next_end(now_s, running, hold=hold)) is not None:
            self.boundaries.end(job)

    def _reallocate(self, wanted: Allocation) -> Outcome:
        if (dag := self.dags.accepted.get(wanted.job)) is None:
            return self.reallocations.apply(wanted)
        routing_tables.check(dag.job, wanted, self._machines.values())
        self.ledger.tasks = self._max_tasks()
        return self.dags.reallocate(wanted)

    def _running_queries(self) -> dict[str, RunningQuery]:
        runs = {name: managed.running for name, managed in list(self.managed.items())}
        return {name: run for name, run in runs.items() if run is not None and run.active}

    def _running_chains(self) -> list[RunningChain]:
        return [
            RunningChain(
                running.chain,
                self.kafka.of_tenant(running.chain.job.tenant),
                self.backlogs.next_offsets(name),
            )
            for name, running in self._running_queries().items()
        ]

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
    return Outcome.of_error(error)
