"""Restarts jobs between two batches, with another version if asked, and rolls back a failed one."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from trilithon import logs
from trilithon.contract.engine import Outcome, RestartJob, Status
from trilithon.contract.outcome_log import log_outcome
from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.deaths import Deaths
from trilithon.engines.spark.failures import describe
from trilithon.engines.spark.held_tasks import growth_text
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.managed_job import ManagedJob, PreviousState
from trilithon.engines.spark.queries import JobQueries
from trilithon.engines.spark.start import RunningQuery
from trilithon.engines.spark.state_partitions import check_same_state
from trilithon.engines.spark.supervisor import Supervision
from trilithon.errors import NeedsNewCheckpoint, TrilithonError
from trilithon.model.action import REPLAYED, RESTARTED
from trilithon.model.allocation import Allocation, carried_over
from trilithon.model.job import Job

_log = logs.logger()


@dataclass
class JobRestarts:
    """Restarts the queries of jobs that are managed already."""

    managed: Mapping[str, ManagedJob]
    queries: JobQueries
    deaths: Deaths
    ledger: Ledger
    max_tasks: Callable[[], int]
    machines: Callable[[], Collection[str]]
    # The jobs that a thread of the engine starts or restarts.
    starting: set[str]
    steady_clock: Callable[[], float] = time.monotonic
    # One-shot actions are done at most once.
    _done: set[str] = field(default_factory=set)

    def restart(self, action: RestartJob) -> Outcome:
        """Restarts a job; a version that does not start is rolled back."""
        if (managed := self.managed.get(action.job)) is None:
            return unknown_job(action.job)
        if action.id in self._done:
            return Outcome(Status.UNCHANGED)
        with managed.lock:
            job = action.spec or managed.job
            checkpoint = managed.checkpoint if action.checkpoint is None else action.checkpoint
            # Every check comes before the query is stopped.
            _check_same_job(managed.job, job)
            if checkpoint == managed.checkpoint:
                _check_same_log(managed.job, job)
                check_same_state(managed.job, job)
            allocation = action.allocation or (
                managed.allocation
                if action.spec is None
                else carried_over(managed.allocation, job).next_generation()
            )
            routing_tables.check(job, allocation, self.machines())
            chain = self.queries.plan(job, allocation, managed.tasks)
            frame = self.queries.frame(chain)
            before = self._reserve(managed, chain, allocation)
            self._done.add(action.id)
            began = self.steady_clock()
            try:
                replayed = self.queries.stop(managed, clean=True)
                managed.job, managed.allocation, managed.checkpoint = job, allocation, checkpoint
                # A restart on request begins with a clean failure count.
                managed.supervision = Supervision()
                self.queries.run(managed, chain, frame)
            except Exception as error:  # noqa: BLE001 - any failure rolls back
                if action.spec is None and managed.running is None:
                    # There is no other version to return to: the supervisor retries.
                    self.deaths.query_died(managed, self.steady_clock(), error)
                    message = f"{job.id} did not start: {describe(error)}"
                    return Outcome(Status.FAILED, getattr(error, "code", "ENGINE_FAILED"), message)
                return self._roll_back(managed, before, error)
        took_s = self.steady_clock() - began
        if not replayed:
            return Outcome(Status.DONE, took_s=took_s)
        return Outcome(Status.DONE, REPLAYED, _replayed_text(replayed), took_s=took_s)

    def grow(self, managed: ManagedJob, wanted: Allocation, tasks: dict[str, int]) -> Outcome:
        """Restarts the running query of a job for an allocation that needs more tasks than it
        holds. If it does not start, the job runs as before. The caller holds the lock.
        """
        assert managed.running is not None  # noqa: S101 - the caller has checked
        chain = replace(managed.running.chain, tasks=tasks)
        frame = self.queries.frame(chain)
        before = self._reserve(managed, chain, wanted)
        began = self.steady_clock()
        try:
            replayed = self.queries.stop(managed, clean=True)
            managed.allocation = wanted
            self.queries.run(managed, chain, frame)
        except Exception as error:  # noqa: BLE001 - any failure rolls back
            return self._roll_back(managed, before, error, "it runs as before")
        took_s = self.steady_clock() - began
        message = f"It was restarted with more tasks ({growth_text(before.tasks, tasks)})."
        code = REPLAYED if replayed else RESTARTED
        if replayed:
            message = f"{message} {_replayed_text(replayed)}"
        return Outcome(Status.DONE, code, message, took_s=took_s)

    def _reserve(self, managed: ManagedJob, chain: Chain, allocation: Allocation) -> PreviousState:
        """Reserves what a query needs; without room raises `DoesNotFit`, unchanged. Returns what to
        return to.
        """
        job = managed.job.id
        entry = Entry(chain.job.tenant, sum(chain.tasks_per_stage), allocation.instances)
        before = PreviousState(
            managed.job,
            managed.allocation,
            managed.checkpoint,
            self.ledger.entries.get(job),
            managed.tasks,
            managed.supervision,
        )
        self.ledger.tasks = self.max_tasks()
        self.ledger.reserve(job, entry)
        try:
            self.ledger.occupy(job)
        except TrilithonError:
            self._restore_entry(job, before.entry)
            raise
        return before

    def for_new_partitions(
        self, managed: ManagedJob, running: RunningQuery, counts: dict[str, int]
    ) -> str:
        """A query reads the partitions that it was started with. For those that a topic got since
        then it is restarted between two batches, as soon as there is room for their readers.
        Without room it returns what the owner should know.
        """
        known = running.chain.partitions
        more = {t: counts[t] - n for t, n in known.items() if counts.get(t, n) > n}
        if not more:
            return ""
        needed, free = sum(more.values()), self.ledger.free_tasks
        if needed > free:
            topics = ", ".join(f"{topic} ({count})" for topic, count in more.items())
            return (
                f"New partitions are not read yet: {topics}. Their readers need {needed} tasks, "
                f"free {max(0, free)} of {self.ledger.tasks}."
            )
        action = RestartJob(f"{managed.job.id}@partitions.{sorted(counts.items())}", managed.job.id)
        if action.id not in self._done and managed.job.id not in self.starting:
            self.starting.add(managed.job.id)
            threading.Thread(target=self._on_own_account, args=(action,), daemon=True).start()
        return ""

    def _on_own_account(self, action: RestartJob) -> None:
        try:
            try:
                outcome = self.restart(action)
            except TrilithonError as error:
                outcome = Outcome(Status.REFUSED, error.code, error.message)
            log_outcome(outcome, "restart", action.job, reason="new partitions")
        finally:
            self.starting.discard(action.job)

    def _restore_entry(self, job: str, entry: Entry | None) -> None:
        if entry is None:
            self.ledger.release(job)
        else:
            self.ledger.reserve(job, entry)

    def _roll_back(
        self,
        managed: ManagedJob,
        before: PreviousState,
        error: Exception,
        returned: str = "its previous version runs",
    ) -> Outcome:
        """Returns to the previous version of the job; if that fails, the supervisor retries. A job
        that had failed before has failed still.
        """
        name, generation = managed.job.id, managed.allocation.generation + 1
        managed.job, managed.checkpoint = before.job, before.checkpoint
        managed.tasks = before.tasks
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
            self.queries.start(managed)
        except Exception as again:  # noqa: BLE001 - the supervisor retries
            self.deaths.query_died(managed, self.steady_clock(), again)
            message = (
                f"{name} did not restart ({why}), and neither did its previous version: "
                f"{describe(again)}"
            )
            return Outcome(Status.FAILED, code, message)
        message = f"{name} did not restart ({why}); {returned}."
        return Outcome(Status.FAILED, code, message)


def _replayed_text(why: str) -> str:
    return f"Records since the last commit are replayed: {why}."


def unknown_job(job: str) -> Outcome:
    return Outcome(Status.REFUSED, "NOT_FOUND", f"There is no job {job}.")


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
