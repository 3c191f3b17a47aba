"""Defines the condition of a job on an engine: its health, why it is not running, the next try."""

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    RUNNING = "running"
    DEGRADED = "degraded"  # does not process records now; the engine retries for ever
    FAILED = "failed"  # a fault of the job's own; it starts again when its owner says so


class Cause(StrEnum):
    """Why a job does not run."""

    KAFKA = "kafka"
    TASKS = "tasks"  # the live executors have no room
    EXECUTOR = "executor"
    STORAGE = "storage"
    TIMEOUT = "timeout"
    HOST = "host"
    UNKNOWN = "unknown"
    PLAN = "plan"
    EXPRESSION = "expression"
    RECORD = "record"
    DATA_LOSS = "data_loss"

    @property
    def outside(self) -> bool:
        """Whether the job has no part in it: then no version of the job is blamed for it."""
        return self in _OUTSIDE


_OUTSIDE = frozenset(
    {Cause.KAFKA, Cause.TASKS, Cause.EXECUTOR, Cause.STORAGE, Cause.TIMEOUT, Cause.HOST}
)


@dataclass(frozen=True, slots=True)
class Condition:
    """The health of a job since a time, with the reason and the time of the next try."""

    health: Health = Health.RUNNING
    reason: str = ""
    cause: Cause | None = None
    since_s: float | None = None
    next_try_s: float | None = None

    @property
    def outside(self) -> bool:
        return self.cause is not None and self.cause.outside


RUNNING = Condition()
