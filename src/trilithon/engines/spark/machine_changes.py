"""Plans and carries out changes of machines on Spark: what has to happen, and in which order.

Tasks are placed when a batch begins, and used or idle they run until it ends. So

- a scale-out ends the batch of each job that gets instances on new executors; when the next batch
  has tasks there, the routing table activates them. A job without spare tasks is restarted once
  with more.
- a scale-in excludes the leaving executors, checks that the tasks of all jobs fit on the others,
  ends the batch of every job (idle tasks run on the leaving executors, too, and a query fails with
  its task), sees the executors empty, and removes them then.

The order is here; what it is made of is the `ExecutorControl` that is given. Before the removal
everything can be taken back, and a failure takes it back.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from trilithon.errors import DoesNotFit, EngineFailed

_POLL_S: Final = 0.1


class MachineStepKind(StrEnum):
    CHECK_SLOTS = "check_slots"
    EXCLUDE = "exclude"
    RESTART = "restart"
    END_BATCH = "end_batch"
    AWAIT_TASKS = "await_tasks"
    PUSH_TABLE = "push_table"
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

    def running(self, executors: Sequence[str]) -> int:
        """The tasks that run on these executors."""

    def remove(self, executors: Sequence[str]) -> None:
        """Ends the executors. Their tasks would fail."""


def scale_out_steps(
    wanted: Mapping[str, Mapping[str, int]],
    spare: Mapping[str, Mapping[str, int]],
    executors: Sequence[str],
) -> tuple[MachineStep, ...]:
    """The steps for new instances (`wanted`, by job and operator) on new executors. `spare` are the
    tasks of each operator that no instance uses.
    """
    steps: list[MachineStep] = []
    new = tuple(executors)
    for job in sorted(wanted):
        short = any(count > spare.get(job, {}).get(name, 0) for name, count in wanted[job].items())
        # Either begins a new batch, with tasks on all executors that there are by then.
        steps.append(
            MachineStep(MachineStepKind.RESTART if short else MachineStepKind.END_BATCH, job)
        )
        steps.append(MachineStep(MachineStepKind.AWAIT_TASKS, job, new))
        steps.append(MachineStep(MachineStepKind.PUSH_TABLE, job, new))
    return tuple(steps)


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
        while (running := control.running(step.executors)) > 0:
            if clock() > deadline_s:
                raise EngineFailed(
                    f"{running} tasks still run on {', '.join(step.executors)}.",
                    "Nothing was removed; try again.",
                )
            sleep(_POLL_S)
