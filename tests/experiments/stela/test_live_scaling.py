"""Turns on a live cluster, over one that exists on paper."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from trilithon.experiments.stela.live_scaling import (
    ActionThroughput,
    Arrival,
    LiveTurn,
    branch_gaps_s,
    goals,
    longest_gap_s,
    run_turns,
    stored_turns,
    turn_keys,
    unequal,
)
from trilithon.policies.requests import ScalingKind


class PaperCluster:
    """Ten records a second arrive, more after a scale-out; each action stops them for `gap_s`."""

    def __init__(self, gain: int, gap_s: float, lost: int, doubled: int) -> None:
        self.at_s, self.rate, self.gain, self.gap_s = 0.0, 10, gain, gap_s
        self.ids: list[str] = []
        self.lost, self.doubled = lost, doubled
        self.written: list[Arrival] = []

    given: Mapping[str, int] = {"b": 2, "a": 1}

    def prediction(self, kind: ScalingKind) -> ActionThroughput:
        gain = self.gain if kind is ScalingKind.OUT else 0
        return ActionThroughput(10.0 + gain, 11.0 + gain)

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


def test_a_turn_says_what_was_given_predicted_and_realised() -> None:
    first = turns()[0]
    assert (first.given, first.given_in_all) == ({"a": 1, "b": 2}, 3)
    assert (first.predicted_out_per_s, first.realised_out_per_s) == (20, 21)
    assert (first.predicted_in_per_s, first.realised_in_per_s) == (10, 11)


def test_turns_in_which_one_gave_more_than_the_other_are_found() -> None:
    done = turns()
    assert unequal(done) == []
    more = replace(done[1], given={"a": 1, "b": 3})
    assert (more.job, more.strategy) == ("a", "round_robin")
    assert unequal([done[0], more, *done[2:]]) == [(done[0], more)]


def test_stored_turns_that_do_not_say_what_was_given_are_left_out() -> None:
    full = turns()[0].to_json()
    old = {name: value for name, value in full.items() if name != "given"}
    kept, again = stored_turns({"turns": [old, full]})
    assert ([turn.to_json() for turn in kept], again) == ([full], 1)


def test_a_branch_that_is_silent_does_not_hide_behind_the_others() -> None:
    busy = [Arrival(i / 10, f"{i}/left") for i in range(100)]
    silent = [Arrival(0.0, "0/middle"), Arrival(7.0, "1/middle")]
    assert longest_gap_s([*busy, *silent], 0.0, 10.0) == pytest.approx(0.1)
    assert branch_gaps_s([*busy, *silent], 0.0, 10.0) == pytest.approx({"left": 0.1, "middle": 7})
    # One that has no record at all in this time.
    assert branch_gaps_s([*busy, *silent], 1.0, 5.0)["middle"] == 4


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
