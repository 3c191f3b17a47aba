"""Which jobs work off a backlog, by the positions that executors report."""

from dataclasses import replace
from typing import Any

from tests.model.test_validation import GOOD
from trilithon.engines.spark.backlog import BEHIND_RECORDS, Backlogs

TWO = replace(GOOD, sources=(replace(GOOD.sources[0], options=(("subscribe", "in"),)),))


def report(
    at_s: float,
    *readers: tuple[str, int, int],
    incarnation: int = 1,
    idle: bool = False,
    skipped: int = 0,
    executor: str = "0",
) -> dict[str, Any]:
    """Partition, batch and next offset of each reader."""
    return {
        "time_us": at_s * 1e6,
        "executor": executor,
        "readers": [
            {
                "job": TWO.id,
                "incarnation": incarnation,
                "partition": partition,
                "batch": batch,
                "next": offset,
                "idle": idle,
                "skipped": skipped,
            }
            for partition, batch, offset in readers
        ],
    }


def test_the_lag_is_what_the_readers_have_not_reached() -> None:
    backlogs = Backlogs()
    assert backlogs.lag(TWO, {"in": 100}) is None
    backlogs.observe([report(1.0, ("in-0", 0, 30), ("in-1", 0, 20))])
    assert backlogs.lag(TWO, {"in": 100}) == 50
    assert backlogs.lag(TWO, {"other": 100}) is None
    backlogs.forget(TWO.id)
    assert backlogs.lag(TWO, {"in": 100}) is None


def test_a_topic_whose_name_ends_with_a_number_is_not_taken_for_another() -> None:
    backlogs = Backlogs()
    backlogs.observe([report(1.0, ("in-1-0", 0, 30))])
    assert backlogs.lag(TWO, {"in": 100}) is None


def test_a_position_of_an_executor_that_has_no_reader_any_more_does_not_count() -> None:
    backlogs = Backlogs()
    backlogs.observe([report(1.0, ("in-0", 5, 80)), report(1.0, ("in-0", 4, 60))])
    assert backlogs.lag(TWO, {"in": 100}) == 20


def test_a_restart_may_read_records_again() -> None:
    backlogs = Backlogs()
    backlogs.observe([report(1.0, ("in-0", 5, 80))])
    backlogs.observe([report(2.0, ("in-0", 5, 40), incarnation=2)])
    backlogs.observe([report(2.0, ("in-0", 6, 90), incarnation=1)])
    assert backlogs.lag(TWO, {"in": 100}) == 60


def test_a_job_is_behind_if_reading_the_rest_takes_seconds() -> None:
    backlogs = Backlogs()
    backlogs.observe([report(1.0, ("in-0", 0, 0)), report(2.0, ("in-0", 0, 1000))])
    assert not backlogs.behind(TWO, {"in": 1000 + 4000})
    assert backlogs.behind(TWO, {"in": 1000 + 6000})
    backlogs.observe([report(3.0, ("in-0", 0, 1000))])  # it is held back
    assert not backlogs.behind(TWO, {"in": 1000 + BEHIND_RECORDS})
    assert backlogs.behind(TWO, {"in": 1001 + BEHIND_RECORDS})


def test_offsets_without_a_record_are_counted_over_all_executors() -> None:
    backlogs = Backlogs()
    backlogs.observe([report(1.0, ("in-0", 0, 30), skipped=2)])
    backlogs.observe([report(2.0, ("in-0", 1, 40), skipped=3, executor="1")])
    backlogs.observe([report(2.0, ("in-0", 0, 30), skipped=2)])
    assert backlogs.without_record(TWO.id, 1, ["in"]) == 5
    assert backlogs.without_record(TWO.id, 1, ["other"]) == 0
    assert backlogs.without_record(TWO.id, 2, ["in"]) == 0


def test_what_is_left_when_no_reader_finds_a_record_is_none() -> None:
    """A transaction ends with a marker, which no reader gets."""
    backlogs = Backlogs()
    backlogs.observe_ends({"in": 102}, 0.5)
    backlogs.observe([report(1.0, ("in-0", 0, 50), ("in-1", 0, 50), idle=True)])
    assert backlogs.without_record(TWO.id, 1, ["in"]) == 2
    assert backlogs.lag(TWO, {"in": 102}) == 0
    assert backlogs.lag(TWO, {"in": 105}) == 3
    # The next records may have come after the reader looked.
    backlogs.observe_ends({"in": 105}, 1.95)
    backlogs.observe([report(2.0, ("in-0", 0, 50), ("in-1", 0, 50), idle=True)])
    assert backlogs.lag(TWO, {"in": 105}) == 3
    # Of one reader that finds records nothing can be said.
    backlogs.observe([report(3.0, ("in-0", 0, 51), ("in-1", 0, 50))])
    assert backlogs.lag(TWO, {"in": 105}) == 4


def test_what_lost_executors_skipped_stays_counted_and_nothing_grows() -> None:
    backlogs = Backlogs()
    for number in range(50):
        name = str(number)
        backlogs.observe([report(1.0 + number, ("in-0", number, 30), skipped=2, executor=name)])
        backlogs.lose(name)
    assert backlogs.without_record(TWO.id, 1, ["in"]) == 100
    assert len(backlogs._jobs[TWO.id].skipped) == 1
