"""The watchdog: endless records against slow ones, threads that outlive their query."""

from dataclasses import replace
from typing import Any

from tests.engines.spark.flow import job_named
from trilithon.engines.spark.watchdog import LeftThreads, RecordWatch, ThreadWatch
from trilithon.model.job import Job
from trilithon.model.profile import Profile

JOB = job_named("watched")


def report(*instances: dict[str, Any], executor: str = "1") -> dict[str, Any]:
    return {"executor": executor, "instances": list(instances)}


def instance(
    operator: str, index: int = 0, *, longest_s: float = 0.0, stalled_s: float = 0.0
) -> dict[str, Any]:
    sent = {"job": JOB.id, "operator": operator, "index": index, "origin_us": 1_700_000_000_123_000}
    sent |= {"service": {"max_us": longest_s * 1e6}}
    return {**sent, "stalled_us": int(stalled_s * 1e6)} if stalled_s else sent


def watched(*reports: dict[str, Any], job: Job = JOB) -> RecordWatch:
    watch = RecordWatch()
    watch.observe(reports, {JOB.id: job})
    return watch


def test_a_record_that_takes_far_longer_than_all_before_is_stuck() -> None:
    stuck = watched(report(instance("spread", 1, longest_s=0.01, stalled_s=21))).stuck(JOB)
    assert stuck is not None
    assert (stuck.operator, stuck.index, stuck.executor) == ("spread", 1, "1")
    text = stuck.describe()
    assert "the operator spread" in text
    assert "2023-11-14 22:13:20.123 UTC" in text


def test_a_slow_job_is_not_stopped_for_being_slow() -> None:
    assert watched(report(instance("spread", longest_s=2, stalled_s=39))).stuck(JOB) is None
    assert watched(report(instance("spread", longest_s=2, stalled_s=41))).stuck(JOB) is not None


def test_the_records_of_other_instances_raise_the_bound() -> None:
    """If the machine is slow, those that go on are slow, too."""
    on = report(instance("spread", 0, longest_s=3), executor="2")
    assert watched(on, report(instance("spread", 1, stalled_s=50))).stuck(JOB) is None


def test_a_declared_service_time_counts_before_the_first_record_has_ended() -> None:
    first = replace(JOB.operators[0], profile=Profile(service_ms=10_000))
    declared = replace(JOB, operators=(first, *JOB.operators[1:]))
    sent = report(instance("spread", stalled_s=30))
    assert watched(sent, job=declared).stuck(declared) is None
    assert watched(sent).stuck(JOB) is not None


def test_a_record_that_ended_is_forgotten_and_so_is_a_job() -> None:
    watch = watched(report(instance("spread", stalled_s=30)))
    watch.observe([report(instance("spread", longest_s=31))], {JOB.id: JOB})
    assert watch.stuck(JOB) is None
    assert watch.bound_s(JOB, "spread") == 620
    watch.forget(JOB.id)
    assert watch.bound_s(JOB, "spread") == 20


def test_readers_are_not_watched() -> None:
    """A reader of a held batch waits with a record in its hands."""
    assert watched(report(instance("in", stalled_s=100))).stuck(JOB) is None


def test_threads_of_a_stopped_query_are_left_after_a_while() -> None:
    watch = ThreadWatch(retry_s=5)
    watch.observe({"1": {JOB.id: {"7": 2}}, "2": {JOB.id: {"7": 1, "8": 4}}})
    assert watch.left(JOB.id, 8, now_s=100) == []
    assert watch.left(JOB.id, 8, now_s=106) == [
        LeftThreads(JOB.id, "1", 2),
        LeftThreads(JOB.id, "2", 1),
    ]
    # Without a running query all of them should have ended.
    assert watch.left(JOB.id, None, now_s=106) == [
        LeftThreads(JOB.id, "1", 2),
        LeftThreads(JOB.id, "2", 5),
    ]


def test_a_thread_that_tries_to_reach_a_dead_executor_has_the_time_to_give_up() -> None:
    """An executor died, and the one that was left was replaced for a thread that only waited."""
    watch = ThreadWatch()
    watch.observe({"2": {JOB.id: {"7": 1}}})
    assert watch.left(JOB.id, 8, now_s=100) == []
    assert watch.left(JOB.id, 8, now_s=120) == []
    assert watch.left(JOB.id, 8, now_s=126) == [LeftThreads(JOB.id, "2", 1)]


def test_threads_that_end_are_not_left() -> None:
    watch = ThreadWatch(retry_s=5)
    watch.observe({"1": {JOB.id: {"7": 2}}})
    assert watch.left(JOB.id, None, now_s=100) == []
    watch.observe({"1": {}})
    assert watch.left(JOB.id, None, now_s=106) == []
    watch.observe({"1": {JOB.id: {"9": 2}}})
    assert watch.left(JOB.id, None, now_s=200) == []
