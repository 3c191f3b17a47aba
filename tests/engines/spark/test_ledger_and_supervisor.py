"""The ledger admits no job without room; the supervisor restarts with back-off and gives up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.supervisor import Health, RestartBackoff, Supervision
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


def test_waits_grow_and_end_with_a_reason() -> None:
    backoff = RestartBackoff(initial_s=1, maximum_s=10, max_restarts=5)
    state = Supervision().started(0)
    waits = []
    now = 0.0
    while state.health is not Health.FAILED:
        state = state.died(now, "executor lost", backoff)
        if state.retry_at_s is not None:
            assert state.health is Health.DEGRADED
            assert not state.due(now)
            waits.append(state.retry_at_s - now)
            now = state.retry_at_s
            assert state.due(now)
            state = state.started(now)
    assert waits == [1, 2, 4, 8, 10]
    assert state.reason == "The query died 6 times; the last reason: executor lost"
    assert not state.due(1e9)


def test_a_query_that_ran_well_for_long_enough_is_well_again() -> None:
    backoff = RestartBackoff(healthy_after_s=100)
    state = Supervision().started(0).died(50, "oops", backoff).started(51)
    assert state.health is Health.DEGRADED
    assert state.observed(100, backoff).health is Health.DEGRADED
    healed = state.observed(151, backoff)
    assert healed.health is Health.RUNNING
    assert healed.failures == 0


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=30))
def test_the_number_of_tries_is_bounded_unless_it_ran_well_in_between(gaps: list[float]) -> None:
    backoff = RestartBackoff(max_restarts=4, healthy_after_s=100)
    state, now, since = Supervision().started(0), 0.0, 0
    for gap in gaps:
        now += gap
        state = state.observed(now, backoff)
        since = since if state.failures else 0
        state = state.died(now, "x", backoff)
        since += 1
        assert (state.health is Health.FAILED) == (since > 4)
        if state.health is Health.FAILED:
            break
        now = state.retry_at_s or now
        state = state.started(now)
