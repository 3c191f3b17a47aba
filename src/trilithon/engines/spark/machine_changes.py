"""Plans and carries out the removal of executors: what has to happen, and in which order.

Tasks are placed when a batch begins, and used or idle they run until it ends. So a scale-in
excludes the leaving executors, checks that the tasks of all jobs fit on the others, ends the batch
of every job (idle tasks run on the leaving executors, too, and a query fails with its task), sees
the executors empty, and removes them then.

The order is here; what it is made of is the `ExecutorControl` that is given. Before the removal
everything can be taken back, and a failure takes it back.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from trilithon.errors import DoesNotFit, EngineFailed

_POLL_S: Final = 0.1
# A batch that was placed just before its executors were excluded may start its tasks there after
# they were seen empty: they must stay so for a while, and a batch that came is ended again.
EMPTY_S: Final = 0.5
END_AGAIN_S: Final = 3.0


class MachineStepKind(StrEnum):
    CHECK_SLOTS = "check_slots"
    EXCLUDE = "exclude"
    END_BATCH = "end_batch"
    AWAIT_EMPTY = "await_empty"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class MachineStep:
    """One step: of a job, of executors, or of both."""

    kind: MachineStepKind
    job: str | None = None
    executors: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f" {', '.join(self.executors)}" if self.executors else ""
        return f"{self.kind.value.replace('_', ' ')}{where}{f' ({self.job})' if self.job else ''}"


class ExecutorControl(Protocol):
    """What the steps need of an engine on Spark."""

    def slots(self, without: Sequence[str]) -> int:
        """The tasks that the executors can run at once, without those."""

    def tasks(self) -> int:
        """The tasks that all jobs hold, used or idle."""

    def exclude(self, executors: Sequence[str]) -> None:
        """No task is placed there from now on."""

    def include(self, executors: Sequence[str]) -> None:
        """Takes an exclusion back."""

    def end_batch(self, job: str) -> None:
        """Ends the batch of a job and waits until the next has begun."""

    def jobs(self) -> Sequence[str]:
        """The jobs that have a batch now."""

    def running(self, executors: Sequence[str]) -> int:
        """The tasks that run on these executors."""

    def remove(self, executors: Sequence[str]) -> None:
        """Ends the executors. Their tasks would fail."""


def scale_in_steps(jobs: Sequence[str], executors: Sequence[str]) -> tuple[MachineStep, ...]:
    leaving = tuple(executors)
    return (
        MachineStep(MachineStepKind.CHECK_SLOTS, executors=leaving),
        MachineStep(MachineStepKind.EXCLUDE, executors=leaving),
        *(MachineStep(MachineStepKind.END_BATCH, job) for job in sorted(jobs)),
        MachineStep(MachineStepKind.AWAIT_EMPTY, executors=leaving),
        MachineStep(MachineStepKind.REMOVE, executors=leaving),
    )


def remove_executors(
    control: ExecutorControl,
    jobs: Sequence[str],
    executors: Sequence[str],
    timeout_s: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Removes executors whole or not at all: refused if the tasks would not fit on the others, and
    taken back if one of them does not get empty.
    """
    for step in scale_in_steps(jobs, executors):
        try:
            _do(control, step, clock() + timeout_s, clock, sleep)
        except BaseException:
            if step.kind not in {MachineStepKind.CHECK_SLOTS, MachineStepKind.REMOVE}:
                control.include(executors)
            raise


def _do(
    control: ExecutorControl,
    step: MachineStep,
    deadline_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    if step.kind is MachineStepKind.CHECK_SLOTS:
        left, needed = control.slots(without=step.executors), control.tasks()
        if needed > left:
            raise DoesNotFit(
                f"Without {', '.join(step.executors)} the executors run {left} tasks; jobs hold "
                f"{needed}.",
                "End a job, lower `parallelism.max` of one, or remove fewer machines.",
            )
    elif step.kind is MachineStepKind.EXCLUDE:
        control.exclude(step.executors)
    elif step.kind is MachineStepKind.END_BATCH and step.job is not None:
        control.end_batch(step.job)
    elif step.kind is MachineStepKind.REMOVE:
        control.remove(step.executors)
    else:
        _await_empty(control, step.executors, deadline_s, clock, sleep)


def _await_empty(
    control: ExecutorControl,
    executors: Sequence[str],
    deadline_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Waits until no task has run on these executors for a while."""
    empty_since_s, ended_s = None, clock()
    while empty_since_s is None or clock() - empty_since_s < EMPTY_S:
        running = control.running(executors)
        if running == 0:
            empty_since_s = clock() if empty_since_s is None else empty_since_s
        elif clock() > deadline_s:
            raise EngineFailed(
                f"{running} tasks still run on {', '.join(executors)}.",
                "Nothing was removed; try again.",
            )
        else:
            empty_since_s = None
            if clock() - ended_s > END_AGAIN_S:
                for job in sorted(control.jobs()):
                    control.end_batch(job)
                ended_s = clock()
        sleep(_POLL_S)
