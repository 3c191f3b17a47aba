"""What waits in the topics between parts, and when the parts before them are held back."""

from itertools import pairwise

import pytest

from trilithon.engines.spark.backlog import Backlogs
from trilithon.engines.spark.cut_lags import BOUND_RECORDS, BOUND_S, FREE, CutLags

PART, TOPIC = "t/j~b", "trilithon.x.t.j.a.b"


def read(lags: CutLags, at_s: float, *offsets: int, partitions: int = 2) -> None:
    """The readers of a topic's partitions report where they are."""
    backlogs = Backlogs()
    readers = [
        {
            "job": PART,
            "incarnation": 1,
            "partition": f"{TOPIC}-{i}",
            "batch": 0,
            "next": offset,
            "idle": False,
            "skipped": 0,
        }
        for i, offset in enumerate(offsets)
    ]
    backlogs.observe([{"executor": "1", "time_us": at_s * 1e6, "readers": readers}])
    lags.observe_read(backlogs, PART, {TOPIC: partitions}, at_s)


def lag(lags: CutLags, now_s: float) -> float | None:
    return lags.lag(PART, [TOPIC], now_s, lambda: {TOPIC: 7})


def test_ends_and_positions_of_different_times_are_compared_at_one_time() -> None:
    lags = CutLags()
    # 1,000 records per second come and are read at once. The reader reports 0.4 s after the end
    # was asked for: the difference of the last numbers would be -400, or 600 before.
    for second in range(4):
        lags.observe_ends({TOPIC: 1000 * second}, second)
        read(lags, second + 0.4, 500 * second + 200, 500 * second + 200)
        assert lag(lags, second + 0.5) == pytest.approx(0)
        lags.observe_ends({TOPIC: 1000 * second + 500}, second + 0.5)
        assert lag(lags, second + 0.5) == pytest.approx(0)


def test_a_part_that_stands_still_has_all_that_came_since_before_it() -> None:
    lags = CutLags()
    lags.observe_ends({TOPIC: 100}, 1.0)
    read(lags, 1.0, 50, 50)
    lags.observe_ends({TOPIC: 900}, 9.0)
    assert lag(lags, 9.0) == 800


def test_before_its_readers_report_a_part_is_where_it_has_committed() -> None:
    lags = CutLags()
    assert lag(lags, 1.0) is None  # nobody knows where the topic ends
    lags.observe_ends({TOPIC: 100}, 1.0)
    assert lag(lags, 1.0) == 93
    read(lags, 1.0, 40)  # one of two partitions
    assert lag(lags, 1.0) == 93


def test_the_fuller_a_cut_is_the_slower_are_its_writers() -> None:
    lags = CutLags()
    for second in range(5):
        read(lags, second, 50 * second, 50 * second)
    waiting = (0, 249, 500, 750, 999, BOUND_RECORDS, 2 * BOUND_RECORDS)
    paces = [lags.pace_per_s(PART, TOPIC, lag, 5.0) for lag in waiting]
    assert paces == pytest.approx([FREE, FREE, 100, 50, 0.2, 0, 0])
    assert lags.writers_wait(PART, TOPIC)
    assert lags.pace_per_s(PART, TOPIC, None, 5.0) == FREE  # what is unknown holds nobody back
    assert not lags.writers_wait(PART, TOPIC)


def test_a_part_that_does_not_read_yet_is_given_time_until_its_cut_is_full() -> None:
    lags = CutLags()
    paces = [lags.pace_per_s(PART, TOPIC, lag, 1.0) for lag in (BOUND_RECORDS - 1, BOUND_RECORDS)]
    assert paces == [FREE, 0]


@pytest.mark.parametrize("capacity_per_s", [20, 100, 190, 2000])
def test_writers_settle_at_the_pace_of_the_reader_and_neither_burst_nor_starve(
    capacity_per_s: float,
) -> None:
    """Five times what the reader takes is to be written. Ends are seen twice a second, positions
    once, and a new pace takes effect a moment later, as on Spark.
    """
    lags, written, taken, step_s = CutLags(), 0.0, 0.0, 0.1
    pace, next_pace, per_second = FREE, FREE, []
    for step in range(1, 900):
        now_s = step * step_s
        arriving = min(5 * capacity_per_s, pace) * step_s
        written += arriving
        taken += min(capacity_per_s * step_s, written - taken)
        if step % 5 == 0:
            lags.observe_ends({TOPIC: round(written)}, now_s)
            pace = next_pace
            next_pace = lags.pace_per_s(PART, TOPIC, lag(lags, now_s), now_s)
        if step % 10 == 3:
            read(lags, now_s, round(taken / 2), round(taken / 2))
        if step % 10 == 0:
            per_second.append((written, taken))
    rates = [b - a for (a, _), (b, _) in pairwise(per_second)][40:]
    assert min(rates) > 0.7 * capacity_per_s
    assert max(rates) < 1.4 * capacity_per_s
    assert per_second[-1][1] - per_second[40][1] > 0.99 * capacity_per_s * (len(per_second) - 41)


def test_a_fast_part_may_have_more_before_it() -> None:
    lags = CutLags()
    for second in range(5):
        read(lags, second, 5000 * second, 5000 * second)
    assert lags.bound(PART, TOPIC, 5.0) == BOUND_S * 10_000
    assert lags.bound(PART, TOPIC, 60.0) == BOUND_RECORDS  # it stands still
    lags.forget(PART)
    assert lags.bound(PART, TOPIC, 5.0) == BOUND_RECORDS


def test_a_part_that_reads_again_is_set_back() -> None:
    lags = CutLags()
    lags.observe_ends({TOPIC: 1000}, 1.0)
    read(lags, 1.0, 500, 500)
    read(lags, 2.0, 100, 100)
    lags.observe_ends({TOPIC: 1000}, 2.0)
    assert lag(lags, 2.0) == 800
