"""Holds what the engine knows of an accepted job: its desired state and its current state."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from trilithon.engines.spark.cuts import job_of
from trilithon.engines.spark.ledger import Entry
from trilithon.engines.spark.start import RunningQuery
from trilithon.engines.spark.supervisor import Supervision
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job


@dataclass
class ManagedJob:
    """An accepted job."""

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
    # The tasks that each operator holds.
    tasks: dict[str, int] = field(default_factory=dict)
    # What the owner should know though the job runs: partitions without a reader, and a batch that
    # was told to end and has not.
    unread_partitions: str = ""
    overrun: str = ""
    # A failure of the supervision itself, so that a repeated one is logged once.
    looked_after: str = ""
    # The supervisor starts queries in a separate thread: no other thread may change the job then.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def note(self) -> str:
        return " ".join(filter(None, (self.unread_partitions, self.overrun)))


def live_growth(jobs: Iterable[ManagedJob]) -> dict[str, dict[str, int]]:
    """By job, the operators that hold fewer tasks than they may, with their number: up to so many
    instances they grow while records flow.
    """
    tasks_held: dict[str, dict[str, int]] = {}
    for managed in list(jobs):
        for operator in managed.job.operators:
            tasks = managed.tasks.get(operator.name, operator.tasks)
            if tasks < operator.tasks:
                tasks_held.setdefault(job_of(managed.job.id), {})[operator.name] = tasks
    return tasks_held


@dataclass(frozen=True, slots=True)
class PreviousState:
    """The state of a job before a restart, for rolling back."""

    job: Job
    allocation: Allocation
    checkpoint: str
    entry: Entry | None
    tasks: dict[str, int]
    supervision: Supervision
