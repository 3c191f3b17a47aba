"""When batches end, with a clock of the test's own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilithon.engines.spark.pacing import (
    BACKLOG_BATCH_S,
    END_TIMEOUT_S,
    QUIET_S,
    SHORTEST,
    SHORTEST_FIRST,
    BatchPacer,
    RunningBatch,
    farthest,
)

TICK_S = 0.25


@dataclass
class Cluster:
    """Jobs whose batches end some time after they are told to, and the pacer that tells them."""

    lengths_s: dict[str, float]
    stall_s: float = 0.5
    pacer: BatchPacer = field(default_factory=BatchPacer)
    now_s: float = 100.0
    backlogs: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    hold: bool = False
    number: dict[str, int] = field(default_factory=dict)
    began_s: dict[str, float] = field(default_factory=dict)
    # The job, the length of the batch, and when it stalled.
    ends: list[tuple[str, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.number = dict.fromkeys(self.lengths_s, 0)
        self.began_s = dict.fromkeys(self.lengths_s, self.now_s)
        self.stalled_until_s: dict[str, float] = {}

    def run(self, for_s: float) -> None:
        until_s = self.now_s + for_s
        while self.now_s < until_s:
            for job, back_s in list(self.stalled_until_s.items()):
                if back_s <= self.now_s:
                    del self.stalled_until_s[job]
                    self.number[job] += 1
                    self.began_s[job] = self.now_s
            ending = self.pacer.next_end(self.now_s, self.batches(), hold=self.hold)
            if ending is not None and ending not in self.deaf:
                assert ending not in self.stalled_until_s
                self.ends.append((ending, self.now_s - self.began_s[ending], self.now_s))
                self.stalled_until_s[ending] = self.now_s + self.stall_s
            self.now_s += TICK_S

    def batches(self) -> Iterator[RunningBatch]:
        for job, length_s in self.lengths_s.items():
            batch = f"run:{self.number[job]}"
            yield RunningBatch(job, batch, length_s, job in self.backlogs)

    def lengths_of(self, job: str) -> list[float]:
        return [length_s for name, length_s, _ in self.ends if name == job]


def even(count: int, length_s: float) -> dict[str, float]:
    return {f"j{i}": length_s for i in range(count)}


@pytest.mark.parametrize(("count", "length_s"), [(1, 300.0), (8, 300.0), (8, 15.0), (40, 300.0)])
def test_stalls_are_never_within_a_second_of_each_other(count: int, length_s: float) -> None:
    """All jobs begin at the same time, as after a start of the host."""
    cluster = Cluster(even(count, length_s))
    cluster.run(8 * length_s)
    times = [at_s for _, _, at_s in cluster.ends]
    assert len(times) >= 7 * count
    assert all(b - a >= cluster.stall_s + QUIET_S for a, b in pairwise(times))
    # The first batches are shorter. The longest may have waited for another job's turn.
    assert all(s >= SHORTEST_FIRST * length_s for _, s, _ in cluster.ends)
    assert all(s >= SHORTEST * length_s for _, s, _ in cluster.ends[count:])
    assert max(s for _, s, _ in cluster.ends) <= length_s + cluster.stall_s + QUIET_S + 2 * TICK_S


def test_ends_are_spread_over_the_time() -> None:
    cluster = Cluster(even(8, 300.0))
    cluster.run(3000)
    gaps = [b - a for (_, _, a), (_, _, b) in pairwise(cluster.ends)]
    assert min(gaps) >= 300 / 8 / 2


@given(st.lists(st.sampled_from([5.0, 10.0, 30.0, 60.0, 300.0]), min_size=1, max_size=5))
def test_jobs_with_other_lengths_keep_them_too(lengths_s: list[float]) -> None:
    cluster = Cluster({f"j{i}": length_s for i, length_s in enumerate(lengths_s)}, stall_s=0.25)
    cluster.run(700)
    times = [at_s for _, _, at_s in cluster.ends]
    assert all(b - a >= cluster.stall_s + QUIET_S for a, b in pairwise(times))
    for job, length_s in cluster.lengths_s.items():
        lengths = cluster.lengths_of(job)
        # One at a time: a job may have to wait until each other has had its turn.
        turns_s = len(lengths_s) * (cluster.stall_s + QUIET_S + 2 * TICK_S)
        assert max(lengths) <= length_s + turns_s
        assert len(lengths) >= 700 / max(length_s + cluster.stall_s + TICK_S, turns_s) - 2


def test_with_more_jobs_than_the_time_allows_all_take_turns() -> None:
    cluster = Cluster(even(20, 5.0), stall_s=1.0)
    cluster.run(400)
    times = [at_s for _, _, at_s in cluster.ends]
    assert all(b - a >= cluster.stall_s + QUIET_S for a, b in pairwise(times))
    counts = [len(cluster.lengths_of(job)) for job in cluster.lengths_s]
    assert max(counts) - min(counts) <= 2


def test_batches_are_short_while_a_backlog_is_read_and_the_last_of_them_too() -> None:
    cluster = Cluster({"behind": 300.0, "other": 300.0})
    cluster.run(40)
    assert cluster.ends == []
    cluster.backlogs.add("behind")
    cluster.run(60)
    lengths = cluster.lengths_of("behind")
    assert lengths[0] == pytest.approx(40, abs=1)  # at once: the batch is longer than that already
    assert len(lengths) >= 4
    assert all(length_s <= BACKLOG_BATCH_S + 2 * TICK_S for length_s in lengths[1:])
    cluster.backlogs.clear()
    before = len(lengths)
    cluster.run(20)
    # The records of the catch-up are in the open batch: it ends soon, too.
    assert len(cluster.lengths_of("behind")) == before + 1
    cluster.run(100)
    assert len(cluster.lengths_of("behind")) == before + 1
    assert len(cluster.lengths_of("other")) <= 1  # its first batch


def test_a_job_that_does_not_end_does_not_keep_the_others_waiting_for_ever() -> None:
    cluster = Cluster(even(3, 10.0), deaf={"j1"})
    cluster.run(200)
    assert cluster.lengths_of("j1") == []
    for job in ("j0", "j2"):
        assert max(cluster.lengths_of(job)) < 10 + END_TIMEOUT_S + 5
        assert len(cluster.lengths_of(job)) > 10


def test_a_stall_for_another_reason_counts_as_one() -> None:
    pacer = BatchPacer()
    first, second = RunningBatch("a", "r:0", 10.0), RunningBatch("b", "r:0", 10.0)
    assert pacer.next_end(0.0, [first, second]) is None
    # A restart of b: a, which is due, waits.
    restarted = RunningBatch("b", "s:1", 10.0)
    assert pacer.next_end(10.0, [first, restarted]) is None
    assert pacer.next_end(10.9, [first, restarted]) is None
    assert pacer.next_end(11.0, [first, restarted]) == "a"
    assert pacer.next_end(11.1, [first, restarted]) is None


def test_a_job_that_is_gone_is_forgotten() -> None:
    pacer = BatchPacer()
    pacer.next_end(0.0, [RunningBatch("a", "r:0", 10.0), RunningBatch("b", "r:0", 10.0)])
    pacer.next_end(1.0, [RunningBatch("b", "r:0", 10.0)])
    assert pacer.planned().keys() == {"b"}


def test_the_farthest_time_is_between_the_others() -> None:
    assert farthest(0.0, 10.0, []) == 10.0
    assert farthest(0.0, 10.0, [10.0]) == 0.0
    assert farthest(0.0, 10.0, [0.0, 8.0]) == 4.0
    assert farthest(7.0, 10.0, [0.0, 8.0, 20.0]) == 10.0


def test_no_batch_is_ended_while_ends_are_held_and_the_next_follows_at_once() -> None:
    """A scale-out met ends of a job with a backlog: its next batch waited for a cold machine."""
    cluster = Cluster(even(2, 300.0), backlogs={"j0"})
    cluster.hold = True
    cluster.run(120.0)
    assert cluster.ends == []
    cluster.hold = False
    cluster.run(1.0)
    assert [job for job, *_ in cluster.ends] == ["j0"]
