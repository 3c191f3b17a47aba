"""Holds what the engine knows of an accepted job: its desired state and its current state."""

import threading
from dataclasses import dataclass, field

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
    # What the owner should know though the job runs.
    note: str = ""
    # A failure of the supervision itself, so that a repeated one is logged once.
    looked_after: str = ""
    # The supervisor starts queries in a separate thread: no other thread may change the job then.
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class PreviousState:
    """The state of a job before a restart, for rolling back."""

    job: Job
    allocation: Allocation
    checkpoint: str
    entry: Entry | None
    supervision: Supervision
