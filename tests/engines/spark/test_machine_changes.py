"""The order of steps when machines change on Spark, over a control that only writes down."""

from collections.abc import Sequence

import pytest

from trilithon.engines.spark.machine_changes import remove_executors, scale_in_steps
from trilithon.errors import DoesNotFit, EngineFailed


class Written:
    """Writes down what is asked for; executors get empty when their last batch has ended."""

    def __init__(self, slots: int = 20, tasks: int = 16, *, stuck: bool = False) -> None:
        self.log: list[str] = []
        self._slots, self._tasks, self._stuck, self._running = slots, tasks, stuck, 2

    def slots(self, without: Sequence[str]) -> int:
        return self._slots - 4 * len(without)

    def tasks(self) -> int:
        return self._tasks

    def exclude(self, executors: Sequence[str]) -> None:
        self.log.append(f"exclude {' '.join(executors)}")

    def include(self, executors: Sequence[str]) -> None:
        self.log.append(f"include {' '.join(executors)}")

    def end_batch(self, job: str) -> None:
        self.log.append(f"end {job}")
        self._running -= not self._stuck

    def jobs(self) -> Sequence[str]:
        return ["t/a"]

    def running(self, executors: Sequence[str]) -> int:
        return self._running if executors else 0

    def remove(self, executors: Sequence[str]) -> None:
        assert self._running == 0
        self.log.append(f"remove {' '.join(executors)}")


def test_an_executor_goes_after_every_job_has_left_it() -> None:
    control = Written()
    remove_executors(control, ["t/b", "t/a"], ["e3"])
    assert control.log == ["exclude e3", "end t/a", "end t/b", "remove e3"]


def test_tasks_that_would_not_fit_are_refused_before_anything_is_done() -> None:
    control = Written(tasks=17)
    with pytest.raises(DoesNotFit, match="run 16 tasks; jobs hold 17"):
        remove_executors(control, ["t/a"], ["e3"])
    assert not control.log


def test_an_executor_that_does_not_get_empty_stays_and_is_used_again() -> None:
    control = Written(stuck=True)
    seconds = iter(range(1000))
    with pytest.raises(EngineFailed, match="2 tasks still run on e3"):
        remove_executors(
            control,
            ["t/a"],
            ["e3"],
            clock=lambda: float(next(seconds)) * 10,
            sleep=lambda _: None,
        )
    assert control.log[:2] == ["exclude e3", "end t/a"]
    assert control.log[-1] == "include e3"
    assert "remove e3" not in control.log


def test_a_batch_that_starts_its_tasks_after_its_executor_was_seen_empty_is_ended_again() -> None:
    class Late(Written):
        looks = 0

        def running(self, executors: Sequence[str]) -> int:
            self.looks += 1
            # Placed before the exclusion, and there from the second look on until it is ended.
            late = self.looks > 1 and self.log.count("end t/a") == 1
            return len(executors) if late else 0

    control, seconds = Late(), iter(range(1000))
    remove_executors(
        control, ["t/a"], ["e3"], clock=lambda: next(seconds) / 10, sleep=lambda _: None
    )
    assert control.log == ["exclude e3", "end t/a", "end t/a", "remove e3"]


def test_a_step_says_what_it_does_and_to_what() -> None:
    steps = [str(step) for step in scale_in_steps(["t/a"], ["e3"])]
    assert steps == [
        "check slots e3",
        "exclude e3",
        "end batch (t/a)",
        "await empty e3",
        "remove e3",
    ]
