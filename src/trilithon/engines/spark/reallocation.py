"""Brings the query of a job to an allocation: by routing tables, or by a restart with more tasks.

Tables are pushed while records flow. An allocation that needs more tasks than the query holds is
done by a restart between two batches, tables and tasks together, or not at all.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from trilithon.contract.condition import Health
from trilithon.contract.engine import Ability, Outcome, Status
from trilithon.engines.spark import routing_tables
from trilithon.engines.spark.ledger import Ledger
from trilithon.engines.spark.managed_job import ManagedJob
from trilithon.engines.spark.queries import JobQueries
from trilithon.engines.spark.restarts import JobRestarts, unknown_job
from trilithon.model.allocation import Allocation, facets_between

# The code of a change that takes effect in the next batch, for which the running one is ended.
AT_BOUNDARY: Final = "AT_BOUNDARY"


@dataclass
class Reallocations:
    """Changes the allocations of jobs that are managed already: each of one query."""

    managed: Mapping[str, ManagedJob]
    queries: JobQueries
    restarts: JobRestarts
    ledger: Ledger
    max_tasks: Callable[[], int]
    machines: Callable[[], Collection[str]]
    steady_clock: Callable[[], float] = time.monotonic

    def grown_tasks(self, wanted: Allocation, free: int) -> dict[str, int] | None:
        """The tasks of each operator for the restart that an allocation needs; None if it needs
        none. `free` are the tasks that no job holds.
        """
        managed = self.managed[wanted.job]
        if managed.supervision.health is Health.FAILED:
            return None  # it gets its tasks when it is started again
        return self.queries.grown(managed, wanted, free)

    def apply(self, wanted: Allocation, tasks: dict[str, int] | None = None) -> Outcome:
        """Brings a query to an allocation. `tasks` are those of its operators if it needs more than
        it holds and the caller has reserved them.
        """
        if (managed := self.managed.get(wanted.job)) is None:
            return unknown_job(wanted.job)
        if wanted.generation <= managed.allocation.generation:
            return Outcome(Status.UNCHANGED)
        routing_tables.check(managed.job, wanted, self.machines())
        began = self.steady_clock()
        with managed.lock:
            if managed.supervision.health is Health.FAILED:
                # It has no entry. Its tables are pushed when it is started again.
                managed.allocation = wanted
                return Outcome(Status.DONE, took_s=self.steady_clock() - began)
            self.ledger.tasks = self.max_tasks()
            grown = tasks or self.grown_tasks(wanted, self.ledger.free_tasks)
            if grown is not None and managed.running is not None:
                return self.restarts.grow(managed, wanted, grown)
            self._reserve(managed, wanted, grown, reserved=tasks is not None)
            if facets_between(managed.allocation, wanted) == (Ability.BATCHING,):
                managed.allocation = wanted
                return Outcome(Status.DONE, took_s=self.steady_clock() - began)
            managed.groups = routing_tables.push(
                self.queries.control, managed.job, wanted, managed.groups, managed.tasks
            )
            managed.allocation = wanted
            code, message = self._end_batch_for_table(managed)
        return Outcome(Status.DONE, code, message, took_s=self.steady_clock() - began)

    def _reserve(
        self,
        managed: ManagedJob,
        wanted: Allocation,
        grown: dict[str, int] | None,
        *,
        reserved: bool,
    ) -> None:
        """Reserves what an allocation needs, unless its tasks are reserved. A query that does not
        run gets more tasks when it is started.
        """
        name, more = managed.job.id, None
        if grown is not None and not reserved:
            others = self.ledger.entries[name].tasks - sum(managed.tasks.values())
            more = others + sum(grown.values())
        self.ledger.change(name, tasks=more, slots=wanted.instances)
        managed.tasks = grown or managed.tasks

    def _end_batch_for_table(self, managed: ManagedJob) -> tuple[str, str]:
        """With `preserve_order` a new routing table takes effect in the next batch, and so does a
        placement on an executor that joined during the running one and has no tasks: that batch is
        ended early. Returns the outcome's code and message.
        """
        control, boundaries = self.queries.control, self.queries.boundaries
        ordered = managed.job.bounds.preserve_order and routing_tables.keyed(managed.job)
        waits = ordered or routing_tables.without_tasks(control, managed.allocation)
        if not waits or managed.running is None:
            return "", ""
        boundaries.end(managed.job.id)
        return AT_BOUNDARY, "It takes effect in the next batch; the running one is ended now."
