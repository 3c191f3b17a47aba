"""Adaptive output batching: what a promise leaves for it, edge by edge."""

from dataclasses import replace

import pytest

from tests.policies.latency.model import Operating, QueueCluster, limit, line
from trilithon.model.capability import Ability, How
from trilithon.model.change import BatchingChange
from trilithon.model.intent import Constraint, EdgeName
from trilithon.policies.latency import messages
from trilithon.policies.latency.latency_parameters import UNCHANGED, LatencyParameters
from trilithon.policies.latency.output_batching import batching_limits_ms, longest_batching_s
from trilithon.policies.latency.sequence import (
    ConstrainedEdge,
    ConstrainedOperator,
    ConstrainedSequence,
)

INTO, OUT = EdgeName("in", "a"), EdgeName("a", "b")
PROMISE = limit(20.0, "in->a", "a", "a->b")


def sequence(waiting_s: float = 0.001, task_s: float = 0.002) -> ConstrainedSequence:
    """`a` between two edges, each of which takes 0.5 ms in any case."""
    operator = ConstrainedOperator(
        "a", "in->a", 4, 1, 10, False, 100.0, task_s, task_s, waiting_s, 0.001
    )
    edges = (ConstrainedEdge(INTO, 0.0, 0.0005), ConstrainedEdge(OUT, 0.0, 0.0005))
    return ConstrainedSequence(0, PROMISE, (operator,), edges, task_s)


def test_edges_share_what_waiting_and_transport_leave() -> None:
    """0.9 · 20 − 2 ms of work leave 16 ms: four fifths, less 1 ms of transport, for two edges."""
    assert longest_batching_s(sequence(), 0.2) == pytest.approx((0.8 * 0.016 - 0.001) / 2)


def test_batching_gives_way_while_queues_are_long() -> None:
    assert longest_batching_s(sequence(waiting_s=0.009), 0.2) == pytest.approx(0.006 / 2)


def test_at_the_end_of_a_batch_it_does_not_follow_queues() -> None:
    full_s = longest_batching_s(sequence(), 0.5)
    assert longest_batching_s(sequence(waiting_s=0.009), 0.5, live=False) == full_s
    assert longest_batching_s(sequence(waiting_s=0.009), 0.5) < full_s


def test_at_the_end_of_a_batch_only_large_differences_count() -> None:
    now = {INTO: 5.0, OUT: 3.0}
    assert batching_limits_ms([sequence()], now, 0.2, live=False) == {OUT: 5.9}


def test_it_stays_where_its_end_would_not_keep_the_promise() -> None:
    assert longest_batching_s(sequence(waiting_s=1.0), 0.2) == longest_batching_s(sequence(), 0.2)


def test_work_that_fills_the_promise_leaves_nothing() -> None:
    assert longest_batching_s(sequence(task_s=0.019), 0.2) == 0


def test_an_edge_in_several_sequences_has_the_smallest_time() -> None:
    tight = replace(sequence(), constraint=replace(PROMISE, mean_latency_ms=10.0))
    limits = batching_limits_ms([sequence(), tight], {}, 0.2)
    assert limits == {INTO: 2.3, OUT: 2.3}


def test_small_differences_change_nothing() -> None:
    limits = batching_limits_ms([sequence()], {}, 0.2)
    assert limits == {INTO: 5.9, OUT: 5.9}
    assert batching_limits_ms([sequence()], {INTO: 5.5, OUT: 2.0}, 0.2) == {OUT: 5.9}


def rounds(how: How, parameters: LatencyParameters | None = None) -> list[BatchingChange]:
    job = line("a", "b", constraints=(limit(50.0, "in->a", "a", "a->b", "b"),))
    stage = QueueCluster.of(
        (job, {"a": Operating(100.0), "b": Operating(100.0, service_s=0.001)}),
        how={Ability.BATCHING: how},
        parameters=parameters or LatencyParameters(),
    )
    decisions = stage.rounds(1)
    return [c for d in decisions for c in d.changes if isinstance(c, BatchingChange)]


def test_the_policy_batches_where_the_engine_can_do_so_live() -> None:
    (change,) = rounds(How.LIVE)
    assert set(change.batching_ms) == {EdgeName("in", "a"), EdgeName("a", "b")}
    assert all(10 < ms < 20 for ms in change.batching_ms.values())
    assert not rounds(How.LIVE, LatencyParameters(batching=UNCHANGED))


def test_where_batching_changes_at_the_end_of_a_batch_waiting_keeps_its_half() -> None:
    """0.9 · 50 ms less the operators' work: half for waiting, the other for two edges."""
    (live,), (change,) = rounds(How.LIVE), rounds(How.AT_BOUNDARY)
    assert change.batching_ms.keys() == live.batching_ms.keys()
    assert all(ms < live.batching_ms[edge] for edge, ms in change.batching_ms.items())
    assert not rounds(How.AT_BOUNDARY, LatencyParameters(batching=UNCHANGED))
    assert not rounds(How.NOT_AT_ALL)


def test_a_promise_that_is_not_measured_keeps_its_edges_from_gathering_longer() -> None:
    """A quiet operator on its path let an edge gather for as long as a looser promise allows."""
    loose, strict = limit(100.0, "in->a", "a"), limit(10.0, "in->a", "a", "a->b", "b", "b->out")
    into = EdgeName("in", "a")

    def changes(now_ms: float, *constraints: Constraint) -> dict[EdgeName, float]:
        job = line("a", "b", constraints=constraints)
        stage = QueueCluster.of(
            (job, {"a": Operating(100.0), "b": Operating(100.0, service_s=0.001)}),
            how={Ability.BATCHING: How.LIVE},
            parameters=LatencyParameters(),
        )
        ((name, status),) = stage.statuses.items()
        allocation = replace(status.allocation, batching_ms={into: now_ms})
        stage.statuses[name] = replace(status, allocation=allocation)
        decided = [c for d in stage.rounds(1) for c in d.changes if isinstance(c, BatchingChange)]
        return dict(decided[0].batching_ms) if decided else {}

    assert changes(2.0, loose)[into] > 2.0
    assert changes(2.0, loose, strict) == {}
    assert changes(500.0, loose, strict)[into] < 500.0


def test_its_sentence_names_edges_and_times() -> None:
    assert messages.batching_text({INTO: 5.9}) == "in->a gathers for 5.9 ms"
