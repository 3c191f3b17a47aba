"""Turns on a live cluster, over one that exists on paper."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from trilithon.experiments.stela.live_scaling import (
    Arrival,
    LiveTurn,
    goals,
    longest_gap_s,
    run_turns,
    turn_keys,
)


class PaperCluster:
    """Ten records a second arrive, more after a scale-out; each action stops them for `gap_s`."""

    def __init__(self, gain: int, gap_s: float, lost: int, doubled: int) -> None:
        self.at_s, self.rate, self.gain, self.gap_s = 0.0, 10, gain, gap_s
        self.ids: list[str] = []
        self.lost, self.doubled = lost, doubled
        self.written: list[Arrival] = []

    def now_s(self) -> float:
        return self.at_s

    def wait(self, seconds: float) -> None:
        for i in range(round(seconds * self.rate)):
            self.ids.append(str(len(self.ids)))
            self.written.append(Arrival(self.at_s + i / self.rate, self.ids[-1]))
        self.at_s += seconds

    def scale_out(self) -> None:
        self.at_s += self.gap_s
        self.rate += self.gain

    def scale_in(self) -> None:
        self.at_s += self.gap_s
        self.rate -= self.gain

    def stop_sending(self) -> Sequence[str]:
        return [*self.ids, *(f"lost {i}" for i in range(self.lost))]

    def arrivals(self) -> Sequence[Arrival]:
        return [*self.written, *self.written[: self.doubled]]


def turns(gap_s: float = 0.5, lost: int = 0, stela: int = 10) -> list[LiveTurn]:
    gains = {"stela": stela, "round_robin": 5, "default": 0}

    @contextmanager
    def start(job: str, strategy: str) -> Iterator[PaperCluster]:
        yield PaperCluster(gains[strategy] if job != "c" else 5, gap_s, lost, doubled=2)

    keys = turn_keys(["a", "b", "c"])
    return list(run_turns(start, keys, settle_s=5, measured_s=10))


def test_a_turn_measures_throughput_gap_lost_and_doubles() -> None:
    first = turns()[0]
    assert (first.job, first.strategy) == ("a", "stela")
    assert first.before_per_s == pytest.approx(10)
    assert first.after_per_s == pytest.approx(20)
    assert first.end_per_s == pytest.approx(10)
    assert first.gap_out_s == pytest.approx(0.5, abs=0.11)
    assert (first.lost, first.doubles) == (0, 2)


def test_jobs_and_strategies_take_turns() -> None:
    order = [(turn.job, turn.strategy) for turn in turns()]
    assert len(order) == 27
    assert order[:9] == order[9:18] == order[18:]


def test_each_goal_can_fail() -> None:
    assert all(goals(turns()).values())
    missed = [name for name, met in goals(turns(gap_s=2.0)).items() if not met]
    assert missed == ["gap at most 1.5 s"]
    missed = [name for name, met in goals(turns(lost=1)).items() if not met]
    assert missed == ["nothing lost"]
    missed = [name for name, met in goals(turns(stela=5)).items() if not met]
    assert missed == ["above the fair rival in 2 jobs"]
    missed = [name for name, met in goals(turns(stela=2)).items() if not met]
    assert missed == ["at least the fair rival everywhere", "above the fair rival in 2 jobs"]


def test_a_gap_reaches_to_the_ends_of_its_time() -> None:
    assert longest_gap_s([Arrival(3.0, "1"), Arrival(4.0, "2")], 0.0, 5.0) == 3.0
    assert longest_gap_s([], 0.0, 5.0) == 5.0
