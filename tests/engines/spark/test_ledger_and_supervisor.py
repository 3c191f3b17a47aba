"""The ledger admits no job without room; the supervisor retries outages for ever and fails a job
only by its own fault.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trilithon.contract.condition import Cause, Condition, Health
from trilithon.engines.spark.failures import Failure
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.supervisor import (
    RestartBackoff,
    Supervision,
    WaitingJob,
    to_start,
)
from trilithon.errors import DoesNotFit


def test_a_refusal_says_the_numbers() -> None:
    ledger = Ledger(tasks=20, slots=10)
    ledger.reserve("ads/one", Entry("ads", 13, 4))
    with pytest.raises(DoesNotFit) as refused:
        ledger.reserve("ads/two", Entry("ads", 12, 4))
    assert "needs 12 tasks; 7 of 20 are free, held by ads/one (13)" in refused.value.message
    with pytest.raises(DoesNotFit, match="needs 7 slots; 6 of 10 are free"):
        ledger.reserve("ads/two", Entry("ads", 1, 7))
    assert set(ledger.entries) == {"ads/one"}


def test_a_tenant_cannot_use_more_than_its_quota() -> None:
    ledger = Ledger(tasks=100, slots=50, quotas={"ads": 10})
    ledger.reserve("ads/one", Entry("ads", 8, 6))
    ledger.reserve("search/one", Entry("search", 8, 30))
    with pytest.raises(DoesNotFit, match="a quota of 10 and uses 6"):
        ledger.reserve("ads/two", Entry("ads", 8, 5))


def test_a_change_that_does_not_fit_leaves_what_there_was() -> None:
    ledger = Ledger(tasks=20, slots=10)
    ledger.reserve("ads/one", Entry("ads", 8, 4))
    with pytest.raises(DoesNotFit):
        ledger.reserve("ads/one", Entry("ads", 8, 11))
    assert ledger.entries["ads/one"].slots == 4
    ledger.reserve("ads/one", Entry("ads", 8, 10))
    assert ledger.free_slots == 0


class LedgerMachine(RuleBasedStateMachine):
    """Whatever jobs come, change and go, the ledger never admits more than there is."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(tasks=40, slots=20, quotas={"a": 8})

    @rule(
        job=st.sampled_from(["a/1", "a/2", "b/1", "b/2"]),
        tasks=st.integers(1, 30),
        slots=st.integers(1, 15),
    )
    def reserve(self, job: str, tasks: int, slots: int) -> None:
        before = dict(self.ledger.entries)
        try:
            self.ledger.reserve(job, Entry(job[0], tasks, slots))
        except DoesNotFit:
            assert self.ledger.entries == before

    @rule(job=st.sampled_from(["a/1", "b/1", "nobody"]))
    def release(self, job: str) -> None:
        self.ledger.release(job)

    @invariant()
    def holds(self) -> None:
        assert self.ledger.free_tasks >= 0
        assert self.ledger.free_slots >= 0
        assert self.ledger.used_by("a") <= 8


TestLedger = LedgerMachine.TestCase


def test_a_job_that_was_admitted_keeps_its_entry_when_executors_are_lost_and_waits_for_room() -> (
    None
):
    ledger = Ledger(tasks=24, slots=20)
    for name in ("ads/a", "ads/b"):
        ledger.reserve(name, Entry("ads", 12, 2))
        ledger.occupy(name)
    ledger.vacate("ads/a")
    ledger.vacate("ads/b")
    ledger.tasks = 19
    ledger.occupy("ads/a")
    with pytest.raises(DoesNotFit, match=r"needs 12, free 7 of 19"):
        ledger.occupy("ads/b")
    # Neither a new job nor more tasks of an old one get what a job waits for.
    with pytest.raises(DoesNotFit):
        ledger.reserve("ads/new", Entry("ads", 1, 1))
    with pytest.raises(DoesNotFit):
        ledger.change("ads/a", tasks=13)
    # What a job has already is not questioned.
    ledger.change("ads/a", tasks=12, slots=2)
    ledger.change("ads/b", tasks=11)
    ledger.tasks = 24
    ledger.occupy("ads/b")
    assert ledger.unoccupied_tasks == 1
    ledger.release("ads/a")
    assert (ledger.unoccupied_tasks, set(ledger.running)) == (13, {"ads/b"})


KAFKA = Failure(Cause.KAFKA, "Kafka does not answer at broker:9092.")
UNKNOWN = Failure(Cause.UNKNOWN, "Something threw")


def test_an_outage_is_retried_for_ever_with_a_capped_wait() -> None:
    backoff = RestartBackoff(initial_s=1, maximum_s=10)
    state, now, waits = Supervision().started(0), 0.0, []
    for _ in range(500):
        state = state.died(now, KAFKA, backoff, job="ads/a", position="3")
        assert state.health is Health.DEGRADED
        assert state.retry_at_s is not None
        assert not state.due(now)
        waits.append(state.retry_at_s - now)
        now = state.retry_at_s
        assert state.due(now)
        state = state.restarting(backoff)
        assert not state.due(now)
    assert waits[:6] == [1, 2, 4, 8, 10, 10]
    assert max(waits) == 10
    condition = state.condition(offset_s=1000.0)
    assert (condition.health, condition.cause) == ("degraded", Cause.KAFKA)
    assert condition.since_s == 1000.0
    # When Kafka is back, nobody waits for the end of a back-off.
    waiting = state.died(now, KAFKA, backoff)
    assert waiting.at_once(now).due(now)
    again = state.started(now)
    assert again.condition() == Condition(Health.RUNNING, "", None, now)


def test_a_fault_of_the_job_fails_it_with_the_remedy() -> None:
    backoff = RestartBackoff(own_fault_tries=3)
    broken = Failure(Cause.EXPRESSION, "[CAST_INVALID_INPUT] The value cannot be cast.")
    state = Supervision().started(0)
    for now in range(2):
        state = state.died(now, broken, backoff, job="ads/a", position="3").started(now)
    state = state.died(9, broken, backoff, job="ads/a", position="3")
    assert (state.health, state.since_s, state.retry_at_s) == (Health.FAILED, 9, None)
    assert state.reason == (
        "[CAST_INVALID_INPUT] The value cannot be cast. Correct the expression and apply the new "
        "version; `trilithon job resume ads/a` starts it again from its checkpoint."
    )
    assert not state.due(1e9)


def test_only_deaths_at_the_same_offsets_count_as_a_record_that_kills() -> None:
    backoff = RestartBackoff(unknown_tries=4)
    state = Supervision().started(0)
    for batch in range(20):
        # It ran for long in between: the back-off is short again, the suspicion stays.
        state = state.observed(1000.0 * batch, backoff)
        state = state.died(1000.0 * batch, UNKNOWN, backoff, position=str(batch)).started(batch)
    assert state.suspicions == 1
    for _ in range(2):
        state = state.observed(1e6, backoff).died(1e6, UNKNOWN, backoff, position="19")
        assert state.health is Health.DEGRADED
        # An outage in between neither adds to the suspicion nor clears it.
        state = state.started(1e6).died(1e6, KAFKA, backoff, position="19").started(1e6)
    state = state.died(2e6, UNKNOWN, backoff, job="ads/a", position="19")
    assert (state.health, state.cause) == (Health.FAILED, Cause.RECORD)
    assert state.reason.startswith(
        "The query died 4 times at the same offsets: Something threw. Remove or skip the record"
    )


def test_a_query_that_ran_well_for_long_enough_has_a_short_wait_again() -> None:
    backoff = RestartBackoff(initial_s=1, healthy_after_s=100)
    state = Supervision().started(0)
    for _ in range(4):
        state = state.died(50, KAFKA, backoff)
    state = state.started(51)
    # It runs: that is what is shown.
    assert state.health is Health.RUNNING
    assert state.observed(100, backoff).failures == 4
    state = state.observed(151, backoff).died(151, KAFKA, backoff)
    assert state.retry_at_s == 152


def waiting(job: str, priority: float, tasks: int, *, due: bool = True) -> WaitingJob:
    return WaitingJob(job, priority, tasks, since_s=0.0, due=due)


def test_jobs_start_in_the_order_of_priority_and_those_that_do_not_fit_know_what_was_free() -> None:
    jobs = [waiting("low", 1, 6), waiting("high", 9, 12), waiting("middle", 5, 12)]
    assert to_start(jobs, 19) == (["high", "low"], {"middle": 7})
    assert to_start(jobs, 12) == (["high"], {"middle": 0, "low": 0})
    assert to_start(jobs, 30) == (["high", "middle", "low"], {})
    # The cluster lost more than the running jobs leave: nobody starts.
    assert to_start(jobs, -5) == ([], {"high": 0, "middle": 0, "low": 0})


def test_a_job_in_its_back_off_keeps_its_room() -> None:
    jobs = [waiting("low", 1, 12), waiting("high", 9, 12, due=False)]
    assert to_start(jobs, 19) == ([], {"low": 7})
    assert to_start(jobs, 24) == (["low"], {})


@given(
    st.lists(
        st.builds(
            waiting,
            st.uuids().map(str),
            st.floats(0.1, 10),
            st.integers(1, 12),
            due=st.booleans(),
        ),
        max_size=12,
    ),
    st.integers(-5, 40),
)
def test_no_start_takes_more_than_is_free_and_none_of_equal_size_overtakes(
    jobs: list[WaitingJob], free: int
) -> None:
    by_name = {job.job: job for job in jobs}
    starts, short = to_start(jobs, free)
    assert sum(by_name[name].tasks for name in starts) <= max(0, free)
    assert not set(starts) & set(short)
    for left in short:
        for started in starts:
            smaller = by_name[started].tasks < by_name[left].tasks
            assert smaller or by_name[started].priority >= by_name[left].priority
