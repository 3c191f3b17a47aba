"""What Henge may change, what it maximises, and what its sentences say: modes, holds, fixed
operators, goals, kinds of intents.
"""

from dataclasses import replace

import pytest

from tests.policies.henge.made_jobs import SETTLE, START, congested, counts, harmful, run
from tests.policies.henge.model import constant, line, reasons, shared
from trilithon.model.intent import Metric, Threshold
from trilithon.model.job import Edge, Sink
from trilithon.model.mode import Mode
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import HengeParameters


def test_an_action_that_nobody_carries_out_is_not_asked_for_each_round() -> None:
    henge = run(shared(line("a"), 8), refuses=True)
    assert reasons(henge.rounds(200)) == [
        messages.RECONFIGURATION,
        messages.NOT_CARRIED_OUT,
        messages.CONVERGED_STUCK,
    ]


def test_what_is_under_way_is_waited_for_but_not_for_ever() -> None:
    henge = run(shared(line("a"), 8), shared(line("b", priority=10), 8))
    assert henge.until(messages.RECONFIGURATION).job == "t/a"
    henge.cluster.in_flight.add("t/a")
    assert henge.rounds(30) == []
    assert henge.until(messages.RECONFIGURATION, most=40).job == "t/b"


def test_a_job_for_advice_is_told_once_and_not_waited_for() -> None:
    henge = run(shared(line("a"), 8), shared(line("b", priority=20), 8), modes={"t/a": Mode.ADVISE})
    henge.until(messages.CONVERGED_STUCK)
    touched = [d.job for d in henge.decisions if d.reason == messages.RECONFIGURATION]
    assert touched == ["t/a", "t/b"]


def test_a_job_that_is_off_counts_but_is_never_touched() -> None:
    henge = run(
        harmful("a"),
        constant(line("rich", priority=10, initial=20), 20),
        load=congested,
        modes={"t/rich": Mode.OFF},
    )
    henge.until(messages.CONVERGED_STUCK)
    assert {d.job for d in henge.decisions if d.changes} == {"t/a"}


def test_a_job_that_the_guard_holds_is_waited_for() -> None:
    henge = run(shared(line("a"), 8))
    henge.cluster.held["t/a"] = "COOL_DOWN"
    assert henge.rounds(100) == []
    henge.cluster.held.clear()
    henge.until(messages.RECONFIGURATION, most=1)


@pytest.mark.parametrize("by", ["fixed", "engine_fixed"])
def test_fixed_operators_are_left_out(by: str) -> None:
    job = line("a", "free", "state", initial=4)
    henge = run(constant(job, 100, free=0.6, state=0.9))
    setattr(henge.cluster, by, {"t/a": frozenset({"state"})})
    (decision,) = henge.rounds(START)
    assert counts(decision) == {"free": 8}


def test_the_least_share_is_raised_first_when_the_minimum_is_maximised() -> None:
    laws = [shared(line("grand", priority=90), 7), shared(line("small", priority=10), 8)]
    total = run(*laws)
    fair = run(*laws, given=HengeParameters(goal="max_min"))
    assert total.until(messages.RECONFIGURATION).job == "t/grand"
    first = fair.until(messages.RECONFIGURATION)
    assert first.job == "t/small"
    assert first.numbers["goal"] == pytest.approx(60 / 90)


def test_a_hopeless_job_does_not_hide_harm_to_others_when_the_minimum_is_maximised() -> None:
    """The least share is the hopeless job's, before and after; the second least tells."""
    hopeless = constant(line("hopeless", ms=1), 1000)
    greedy, harmed = harmful("greedy"), constant(line("harmed"), 20)
    henge = run(hopeless, greedy, harmed, given=HengeParameters(goal="max_min"))
    allocations = henge.cluster.allocations
    greedy.latency_ms = lambda p: 100.0 if p["work"] == 10 else 80.0
    harmed.latency_ms = lambda _: 20.0 if allocations["t/greedy"].instances == 10 else 400.0
    reversion = henge.until(messages.REVERSION)
    assert "the 2nd smallest share fell from 60.0 % to 15.0 %" in reversion.sentence
    assert allocations["t/greedy"].parallelism == {"work": 10}


def test_a_neighbour_that_still_moves_is_waited_for() -> None:
    """Section 5.1: the utilities must quiesce, not only that of the job that was changed."""
    neighbour = constant(line("neighbour"), 20)
    henge = run(shared(line("a"), 8), neighbour, shared(line("b", priority=20), 8))
    henge.rounds(START)
    rising = iter(range(62, 200, 6))
    neighbour.latency_ms = lambda _: next(rising, 200)
    assert henge.rounds(SETTLE + 6) == []


def test_what_the_guard_holds_is_named_by_a_reduction_and_a_cool_down_is_waited_for() -> None:
    laws = [constant(line(name, priority=10, initial=20), 20) for name in ("cool", "quiet", "rich")]
    henge = run(harmful("a"), *laws, load=congested)
    henge.cluster.held.update({"t/cool": "COOL_DOWN", "t/quiet": "QUIET_HOURS"})
    reduction = henge.until(messages.REDUCTION)
    assert "the guard holds t/quiet (QUIET_HOURS), which keeps its instances" in reduction.sentence
    del henge.cluster.held["t/cool"]
    henge.rounds(2)
    instances = {name: a.instances for name, a in henge.cluster.allocations.items()}
    assert instances["t/rich"] == instances["t/cool"] == 4
    assert instances["t/quiet"] == 20


def test_a_sentence_names_the_jobs_that_came_before_and_were_passed_over() -> None:
    henge = run(
        shared(line("held", priority=90), 8),
        constant(line("calm", priority=80), 100),
        shared(line("a", priority=20), 8),
    )
    henge.cluster.held["t/held"] = "QUIET_HOURS"
    sentence = henge.until(messages.RECONFIGURATION).sentence
    assert "Of the jobs that miss their intents and can be helped now, t/a has the" in sentence
    assert "Passed over: t/held (QUIET_HOURS), t/calm (no operator is congested)." in sentence


@pytest.mark.parametrize(("load", "keeps"), [(1.0, False), (9.0, True)], ids=["calm", "congested"])
def test_a_blacklisted_job_keeps_its_instances_unless_a_reversion_takes_them(
    load: float, keeps: bool
) -> None:
    rich = constant(line("rich", priority=10, initial=20), 20)
    henge = run(harmful("a"), rich, load=lambda _: load)
    sentence = henge.until(messages.BLACKLISTED).sentence
    assert ("It keeps its instances" in sentence) is keeps
    assert ("The Reversion takes back what it got" in sentence) is not keeps
    assert (henge.cluster.allocations["t/a"].parallelism == {"work": 10}) is not keeps


@pytest.mark.parametrize(
    "thresholds",
    [
        (Threshold(Metric.LATENCY, 60, "p99"),),
        (Threshold(Metric.JUICE, 1.0),),
        (Threshold(Metric.THROUGHPUT, 95),),
        (Threshold(Metric.JUICE, 1.0), Threshold(Metric.LATENCY, 70)),
    ],
    ids=["tail", "juice", "throughput", "hybrid"],
)
def test_every_kind_of_intent_is_brought_to_its_maximum(thresholds: tuple[Threshold, ...]) -> None:
    law = shared(line("a", thresholds=thresholds), 8)
    law.tail = 2.0
    law.juice = lambda p: min(1.0, p["work"] / 20)
    henge = run(law)
    missed = henge.until(messages.RECONFIGURATION)
    assert missed.numbers["utility"] is not None
    assert missed.numbers["utility"] < 35
    henge.until(messages.CONVERGED_MET)


@pytest.mark.parametrize(("weight", "misses"), [(1.0, True), (0.0, False)])
def test_a_sink_without_weight_is_not_a_reason_to_act(weight: float, misses: bool) -> None:
    job = line("a", thresholds=(Threshold(Metric.JUICE, 1.0),))
    two = replace(
        job,
        sinks=(job.sinks[0], Sink("slow", (), weight)),
        edges=(*job.edges, Edge("work", "slow")),
    )
    law = constant(two, 20, work=0.6)
    law.left_over = {"slow": 0.5}
    henge = run(law)
    henge.rounds(START)
    assert (reasons(henge.decisions) == [messages.RECONFIGURATION]) is misses


def test_the_utility_of_a_hybrid_intent_is_the_average_of_both() -> None:
    """SoCC'18, section 8.1.1."""
    both = (Threshold(Metric.JUICE, 1.0), Threshold(Metric.LATENCY, 70))
    law = constant(line("a", thresholds=both), 140, work=0.6)
    law.juice = lambda _: 0.75
    henge = run(law)
    assert henge.until(messages.RECONFIGURATION).numbers["utility"] == pytest.approx(
        35 * (0.75 + 0.5) / 2
    )


@pytest.mark.parametrize(("least_fall", "reverted"), [(0.001, False), (0.0, True)])
def test_a_fall_of_next_to_nothing_is_none(least_fall: float, reverted: bool) -> None:
    """Of a job whose backlog grows, half of next to nothing goes each minute, whoever acts."""
    law = constant(line("a"), 1e6, work=0.6)
    henge = run(law, given=HengeParameters(least_fall=least_fall))
    henge.until(messages.RECONFIGURATION)
    law.latency_ms = lambda _: 3e6
    henge.rounds(40)
    assert (messages.REVERSION in reasons(henge.decisions)) is reverted


def test_a_job_that_works_off_a_backlog_is_not_at_rest() -> None:
    law = shared(line("a"), 8)
    henge = run(law, shared(line("b", priority=20), 8))
    henge.rounds(START)
    # As slow as before for minutes; but what waits becomes less with each.
    law.latency_ms = lambda _: 135.0
    behind = iter([0.2] * 3 + [1.1] * 24)
    law.juice = lambda _: next(behind, 1.0)
    assert henge.rounds(SETTLE + 8) == []
