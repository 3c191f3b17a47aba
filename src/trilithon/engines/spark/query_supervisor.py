"""Looks after the queries of an application: detects those that died and starts them again.

Queries whose back-off is over start in the order of priority, as far as the live executors have
room. Each starts in a thread of its own, so that no report waits for it.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from trilithon import logs
from trilithon.contract.condition import Cause, Condition, Health
from trilithon.engines.spark.deaths import Deaths
from trilithon.engines.spark.failures import describe
from trilithon.engines.spark.kafka import Logs
from trilithon.engines.spark.kafka_monitor import KafkaMonitor
from trilithon.engines.spark.ledger import Ledger, no_room
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.overruns import Overruns
from trilithon.engines.spark.queries import JobQueries
from trilithon.engines.spark.restarts import JobRestarts
from trilithon.engines.spark.start import RunningQuery, plan_mismatch
from trilithon.engines.spark.supervisor import WaitingJob, to_start
from trilithon.engines.spark.watchdog import LeftThreads
from trilithon.errors import EngineFailed

# Starts take seconds of CPU: with more at a time, the first ones, which matter most, come later.
STARTS_AT_A_TIME: Final = 3
_log = logs.logger()


@dataclass
class QuerySupervisor:
    """Supervises the managed jobs. `supervise` is called about once a second, by one thread."""

    managed: Mapping[str, ManagedJob]
    queries: JobQueries
    deaths: Deaths
    restarts: JobRestarts
    overruns: Overruns
    ledger: Ledger
    monitor: KafkaMonitor
    logs: Logs
    max_tasks: Callable[[], int]
    # The jobs that a thread of the engine starts or restarts.
    starting: set[str]
    steady_clock: Callable[[], float] = time.monotonic
    closed: bool = False
    _kafka_was_away: bool = False

    def supervise(self) -> None:
        """Detects queries that died and restarts those whose back-off is over, in the order of
        priority. A job that throws does not keep the others from being looked after.
        """
        if self.closed:
            return
        now = self.steady_clock()
        if (tasks := self.max_tasks()) < self.ledger.tasks:
            self.deaths.executors_lost_s = now
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

    def conditions(self, offset_s: float) -> dict[str, Condition]:
        """The condition of each job. `offset_s` turns the steady clock's times into those of the
        day.
        """
        outage = self.monitor.outage
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

    def _look_after(self, managed: ManagedJob, now_s: float) -> None:
        """Updates the state of a job's query."""
        running, name = managed.running, managed.job.id
        watchdog, boundaries = self.queries.watchdog, self.queries.boundaries
        incarnation = None if running is None else running.incarnation
        for left in watchdog.threads.left(name, incarnation, now_s):
            self._threads_left(managed, left)
        if running is None:
            return
        if not running.active:
            error = running.query.exception() or EngineFailed("The query ended without an error.")
            managed.running = None
            boundaries.forget(managed.job.id)
            self.deaths.query_died(managed, now_s, error)
        elif (stuck := watchdog.records.stuck(managed.job)) is not None:
            self.deaths.record_never_ends(managed, stuck)
        elif watchdog.records.working(name):
            # Its batch stays open for a record that may still end.
            managed.overrun = self.overruns.problem(managed.job, running.incarnation)
        elif boundaries.stuck(name):
            self.deaths.abandon(managed, EngineFailed("A batch was told to end and did not."))
        else:
            managed.supervision = managed.supervision.observed(now_s, self.deaths.backoff)
            if managed.supervision.executor_deaths_s:
                self._clear_suspicion(managed, now_s)
            self._check_plan(managed, running)
            unread = self.restarts.for_new_partitions(managed, running, self.logs.partitions)
            managed.unread_partitions = unread
            managed.overrun = self.overruns.problem(managed.job, running.incarnation)

    def _clear_suspicion(self, managed: ManagedJob, now_s: float) -> None:
        """A job that commits what it has read did not kill an executor by it. On probation its
        batch is ended early, so that it can show that, and the next suspect need not wait.
        """
        position, supervision = self.queries.position(managed), managed.supervision
        managed.supervision = after = supervision.progressed(position)
        ran_s = now_s - supervision.started_s
        if after.on_probation and ran_s >= self.deaths.backoff.probation_s:
            self.queries.boundaries.end(managed.job.id)

    def _threads_left(self, managed: ManagedJob, left: LeftThreads) -> None:
        """Threads of a stopped query go on: what holds them is replaced, and the job says so."""
        message, supervision = self.queries.watchdog.replace(left), managed.supervision
        if managed.running is None and message not in supervision.reason:
            reason = f"{supervision.reason} {message}".strip()
            managed.supervision = replace(supervision, reason=reason)

    def _check_plan(self, managed: ManagedJob, running: RunningQuery) -> None:
        """Spark plans each batch anew. A difference would attribute metrics to the wrong operators:
        the query is stopped.
        """
        planned = self.queries.control.tasks_per_stage(managed.job.id)
        if planned and planned != running.chain.tasks_per_stage:
            self.deaths.abandon(managed, plan_mismatch(running.chain, planned))

    def _restart_waiting(self, now_s: float) -> None:
        """Starts the queries for which it is time and for which there is room."""
        waiting = {
            name: managed
            for name, managed in list(self.managed.items())
            if managed.running is None and managed.supervision.retry_at_s is not None
        }
        entries, backoff = self.ledger.entries, self.deaths.backoff
        waiting = {name: managed for name, managed in waiting.items() if name in entries}
        probation = [name for name, m in list(self.managed.items()) if m.supervision.on_probation]
        starts, short = to_start(
            (
                WaitingJob(
                    name,
                    managed.job.intent.priority,
                    entries[name].tasks,
                    managed.supervision.since_s or 0.0,
                    managed.supervision.due(now_s),
                    managed.supervision.suspect(backoff),
                )
                for name, managed in waiting.items()
            ),
            self.ledger.unoccupied_tasks,
            probation=bool(probation),
        )
        for name in probation:
            for managed in waiting.values():
                if managed.supervision.suspect(backoff) and managed.supervision.due(now_s):
                    text = f"Executors died while it and {name} ran: it starts after {name}."
                    managed.supervision = managed.supervision.waits(text, Cause.EXECUTOR)
        for name, free in short.items():
            if (managed := waiting[name]).supervision.due(now_s):
                text = no_room(entries[name].tasks, free, self.ledger.tasks)
                managed.supervision = managed.supervision.waits(text)
        for name in starts[: max(0, STARTS_AT_A_TIME - len(self.starting))]:
            self._begin_restart(waiting[name])

    def _begin_restart(self, managed: ManagedJob) -> None:
        """Starts a query in a thread: the other jobs' reports must not wait for it."""
        if not managed.lock.acquire(blocking=False):
            return
        try:
            self.ledger.occupy(managed.job.id)
            self.starting.add(managed.job.id)
            managed.supervision = managed.supervision.restarting(self.deaths.backoff)
        finally:
            managed.lock.release()
        threading.Thread(target=self._restart_query, args=(managed,), daemon=True).start()

    def _restart_query(self, managed: ManagedJob) -> None:
        name = managed.job.id
        try:
            with managed.lock:
                gone = self.closed or self.managed.get(name) is not managed
                if gone or managed.running is not None:
                    return
                try:
                    self.queries.start(managed)
                    failures = managed.supervision.failures
                    _log.info("query_restarted", job=name, failures=failures)
                except Exception as error:  # noqa: BLE001 - the next attempt may succeed
                    self.deaths.query_died(managed, self.steady_clock(), error)
        finally:
            self.starting.discard(name)
