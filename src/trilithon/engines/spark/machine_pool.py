"""Adds and removes the machines of the engine, which are the executors of its application.

A machine is added where the application runs on the standalone cluster of this state folder: a
worker is started, and its executor registers by itself and is warmed up (`warm_up`). It gets tasks
when the next batch of a job begins; no batch is ended early before the machine is warm. A machine
is drained before it is removed (`machine_changes`), on any cluster.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trilithon.contract.engine import Ability, AddMachines, How, Outcome, RemoveMachines, Status
from trilithon.engines.spark.boundary import Boundaries
from trilithon.engines.spark.executors import Executors
from trilithon.engines.spark.ledger import Ledger
from trilithon.engines.spark.machine_changes import remove_executors
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.engines.spark.warm_up import WARM_UP
from trilithon.errors import DoesNotFit, EngineFailed, TrilithonError, UnknownMachine

# How long a new executor may take to register, and a removed one to be gone.
REGISTER_S: Final = 120.0
GONE_S: Final = 30.0
# How long a job may take to end its batch and to begin the next.
END_BATCH_S: Final = 60.0
_POLL_S: Final = 0.05


@dataclass
class MachinePool:
    """The machines of an application. One change happens at a time."""

    executors: Executors
    control: ProbeControl
    boundaries: Boundaries
    ledger: Ledger
    # The name of the machine of each executor that has reported.
    names: Mapping[str, str]
    # The cluster whose workers the engine may start and stop.
    cluster: StandaloneCluster | None = None
    steady_clock: Callable[[], float] = time.monotonic
    # The jobs whose queries run. The probe may know batches of others, whose queries have died.
    queries: Callable[[], Collection[str]] = frozenset
    # Lets new executors compute what the jobs run, before they get tasks of them.
    warm_up: Callable[[int], None] = lambda _: None
    # The slots that the engine was given, the machines that they are for, and those there are.
    _slots: int = field(init=False)
    _first: int = field(init=False)
    _count: int = field(init=False)
    # One-shot actions are done at most once.
    _done: set[str] = field(default_factory=set)
    _leaving: tuple[str, ...] = ()
    # Whether machines are being started and warmed up. Who ends batches meanwhile gives them tasks
    # before they are warm.
    joining: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._slots = self.ledger.slots
        registered = max(1, len(self.executors.list()))
        # A host that is started again after machines were added divides as the first one did.
        self._first = (self.cluster and self.cluster.asked_for) or registered
        self._set_count(registered)

    # What the engine says of its machines.

    def abilities(self) -> dict[Ability, How]:
        adds = self.executors.removable and self.cluster is not None
        return {
            Ability.ADD_MACHINES: How.LIVE if adds else How.NOT_AT_ALL,
            Ability.REMOVE_MACHINES: How.AT_BOUNDARY
            if self.executors.removable
            else How.NOT_AT_ALL,
        }

    def slots_per_machine(self) -> dict[str, int]:
        """The slots that each machine brings: an equal share. Also updates the cluster's slots,
        which grow with machines that join, and stay when one is lost: it comes back.
        """
        if not self.executors.removable:
            return {}
        registered = self.executors.list()
        self._set_count(max(self._count, len(registered)))
        share = self._slots // self._first
        return {self.names[id_]: share for id_ in registered if id_ in self.names}

    def tasks_per_machine(self) -> dict[str, int]:
        """The tasks that each machine can run at once; none in local mode."""
        if not self.executors.removable:
            return {}
        return {
            self.names[id_]: executor.slots
            for id_, executor in self.executors.list().items()
            if id_ in self.names and not executor.excluded
        }

    def tasks_of_jobs(self) -> int:
        """The tasks that all jobs hold, without those by which a new machine is warmed up."""
        return sum(entry.tasks for job, entry in self.ledger.entries.items() if job != WARM_UP)

    def _set_count(self, count: int) -> None:
        self._count = count
        self.ledger.slots = self._slots * count // self._first

    # Actions.

    def add_machines(self, action: AddMachines) -> Outcome:
        """Starts workers and waits until their executors have registered."""
        if self.cluster is None or not self.executors.removable:
            return Outcome(
                Status.REFUSED,
                "CANNOT_ADD_MACHINES",
                "This engine cannot start machines: its cluster is not one that `trilithon cluster "
                "start` started. Start a worker yourself; it is used when it has registered.",
            )
        with self._lock:
            if action.id in self._done:
                return Outcome(Status.UNCHANGED)
            self._done.add(action.id)
            began, self.joining = self.steady_clock(), True
            try:
                self._start_workers(self.cluster, action.count)
            except TrilithonError as error:
                return Outcome.of_error(error, Status.FAILED)
            finally:
                self.joining = False
            self.slots_per_machine()
            return Outcome(Status.DONE, took_s=self.steady_clock() - began)

    def _start_workers(self, cluster: StandaloneCluster, count: int) -> None:
        before = set(self.executors.list())
        workers = cluster.add_workers(count)
        try:
            self._await(
                lambda: len(set(self.executors.list()) - before) >= count,
                REGISTER_S,
                f"The executors of {count} new workers did not register",
            )
        except BaseException:
            cluster.remove_workers(workers)
            raise
        self.warm_up(len(self.executors.list()))

    def remove_machines(self, action: RemoveMachines) -> Outcome:
        """Drains machines and removes them, all or none."""
        if not self.executors.removable:
            return Outcome(
                Status.REFUSED, "CANNOT_REMOVE_MACHINES", "In local mode there is one machine."
            )
        with self._lock:
            if action.id in self._done:
                return Outcome(Status.UNCHANGED)
            leaving = self._executors_of(action.machines)
            if len(leaving) >= len(self.executors.list()):
                raise DoesNotFit(
                    f"{', '.join(action.machines)}: these are all machines; one must stay."
                )
            began = self.steady_clock()
            try:
                remove_executors(self, self.jobs(), leaving, END_BATCH_S)
            except EngineFailed as error:
                return self._not_removed(error, leaving)
            finally:
                self._leaving = ()
            self._done.add(action.id)
            self._set_count(self._count - len(leaving))
            return Outcome(Status.DONE, took_s=self.steady_clock() - began)

    def _not_removed(self, error: EngineFailed, leaving: Sequence[str]) -> Outcome:
        """The outcome of a removal that failed: unknown if it came as far as ending executors."""
        listed = self.executors.list()
        back = all(id_ in listed and not listed[id_].excluded for id_ in leaving)
        status = Status.FAILED if back else Status.UNKNOWN
        return Outcome.of_error(error, status)

    def _executors_of(self, machines: Sequence[str]) -> tuple[str, ...]:
        registered = self.executors.list()
        ids = {name: id_ for id_, name in self.names.items() if id_ in registered}
        if unknown := [name for name in machines if name not in ids]:
            raise UnknownMachine(
                f"There is no machine {', '.join(unknown)}.",
                f"There are: {', '.join(sorted(ids)) or 'none'}.",
            )
        return tuple(dict.fromkeys(ids[name] for name in machines))

    # What the steps of a removal need.

    def slots(self, without: Sequence[str]) -> int:
        executors = self.executors.list().values()
        return sum(e.slots for e in executors if e.id not in without and not e.excluded)

    def tasks(self) -> int:
        return sum(entry.tasks for entry in self.ledger.entries.values())

    def exclude(self, executors: Sequence[str]) -> None:
        self._leaving = tuple(executors)
        self.executors.exclude(executors)

    def include(self, executors: Sequence[str]) -> None:
        self.executors.include(executors)

    def jobs(self) -> Sequence[str]:
        running = set(self.queries())
        return [job for job in self.control.batches() if job in running]

    def end_batch(self, job: str) -> None:
        batch = self.control.batch(job)
        if not self.boundaries.end(job):
            return  # it has no batch yet
        self._await(
            lambda: (
                self.control.batch(job) != batch
                or self.running(self._leaving) == 0
                or job not in self.queries()
            ),
            END_BATCH_S,
            f"The batch of {job} did not end",
        )

    def running(self, executors: Sequence[str]) -> int:
        listed = self.executors.list()
        return sum(listed[id_].running for id_ in executors if id_ in listed)

    def remove(self, executors: Sequence[str]) -> None:
        """Ends the workers of these executors where they are ours, else the executors."""
        listed = self.executors.list()
        gone = [id_ for id_ in executors if id_ in listed]
        workers = [
            worker.number
            for id_ in gone
            if self.cluster is not None
            and (port := listed[id_].worker_port) is not None
            and (worker := self.cluster.worker_at(port)) is not None
        ]
        if self.cluster is not None and len(workers) == len(gone):
            self.cluster.remove_workers(workers)
        else:
            self.executors.kill(gone, keep=len(listed) - len(gone))
        self._await(
            lambda: not set(gone) & set(self.executors.list()),
            GONE_S,
            f"The executors {', '.join(gone)} were told to end and did not",
        )

    def _await(self, condition: Callable[[], bool], within_s: float, failure: str) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise EngineFailed(f"{failure} within {within_s:g} s.")
            time.sleep(_POLL_S)
