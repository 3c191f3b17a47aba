"""Henge's state machine, transition by transition, each before a scene made for it."""

import pytest

from tests.policies.henge.made_jobs import (
    SETTLE,
    START,
    STEPS,
    all_or_nothing,
    congested,
    counts,
    harmful,
    rivals,
    run,
)
from tests.policies.henge.model import Law, constant, line, reasons, shared
from trilithon.control.guard import Guard
from trilithon.control.rules import Limits, Rules
from trilithon.model.intent import Metric, Threshold
from trilithon.model.mode import Mode
from trilithon.model.utility import Utility
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import HengeParameters


def test_nothing_is_done_before_a_whole_window_was_seen() -> None:
    henge = run(shared(line("a"), 8))
    assert henge.rounds(START - 1) == []
    (first,) = henge.rounds(1)
    assert first.reason == messages.RECONFIGURATION


def test_the_congested_operators_of_one_job_get_instances_by_equation_4() -> None:
    job = line("a", "split", "count", "store")
    henge = run(constant(job, 100, split=0.54, count=0.33, store=0.3), constant(line("b"), 10))
    (decision,) = henge.rounds(START)
    assert decision.job == "t/a"
    assert counts(decision) == {"split": 18, "count": 11}
    assert decision.numbers["capacity.split"] == pytest.approx(0.54)
    assert decision.numbers["utility"] == pytest.approx(35 * 0.6)
    assert "mean latency ≤ 60 ms is missed with 100" in decision.sentence
    assert decision.expects is not None
    assert decision.expects.metric == "latency.mean"
    assert decision.expects.value == pytest.approx(100 / 1.05)


def test_of_those_that_miss_the_highest_maximum_goes_first_then_the_lowest_utility() -> None:
    henge = run(
        shared(line("low", priority=10), 8),
        shared(line("near", priority=35), 7),
        shared(line("far", priority=35), 8),
        constant(line("met", priority=90), 10),
    )
    henge.rounds(60)
    touched = [d.job for d in henge.decisions if d.reason == messages.RECONFIGURATION]
    assert touched == ["t/far", "t/near", "t/low"]


def test_nine_jobs_are_mended_in_the_order_of_their_priorities() -> None:
    """SoCC'18, figure 9: from 90 down to 10, one Reconfiguration each where one is enough."""
    laws = [shared(line(f"t{p}", priority=10 * p), 8) for p in range(1, 10)]
    henge = run(*laws)
    henge.until(messages.CONVERGED_MET)
    touched = [d.job for d in henge.decisions if d.reason == messages.RECONFIGURATION]
    assert touched == [f"t/t{p}" for p in range(9, 0, -1)]
    # Fifteen minutes from the first to the last in the paper; here a minute each.
    assert henge.cluster.time_s < 900


def test_one_job_is_changed_at_a_time_and_nothing_before_its_utility_is_steady() -> None:
    falling = iter(range(500, 0, -60))
    law = shared(line("a"), 8)
    henge = run(law, shared(line("b", priority=20), 8))
    henge.rounds(START)
    law.latency_ms = lambda _: next(falling, 20)
    # It still falls after a minute, and more than a minute passes before the next is touched.
    assert henge.rounds(SETTLE + 3) == []
    assert henge.until(messages.RECONFIGURATION).job == "t/b"


def test_what_never_comes_to_rest_is_judged_after_five_minutes() -> None:
    swing = iter([100, 1000] * 100)
    law = shared(line("a"), 8)
    henge = run(law, shared(line("b", priority=20), 8))
    henge.rounds(START)
    law.latency_ms = lambda _: next(swing)
    henge.rounds(29)
    assert reasons(henge.decisions) == [messages.RECONFIGURATION]
    henge.rounds(1)
    assert len(henge.decisions) > 1


def test_converged_when_every_intent_is_met_and_stays_so_for_four_rounds() -> None:
    henge = run(shared(line("a"), 8))
    reconfigured = henge.until(messages.RECONFIGURATION)
    assert henge.rounds(SETTLE + 3) == []
    assert henge.phase == "not_converged"
    (converged,) = henge.rounds(1)
    assert converged.reason == messages.CONVERGED_MET
    assert converged.causes == (reconfigured.id,)
    assert converged.changes == ()
    assert henge.phase == "converged"


def test_a_miss_while_it_is_watched_begins_the_four_rounds_anew() -> None:
    law = constant(line("a"), 50)
    henge = run(law, given=HengeParameters(window_s=10))
    assert henge.rounds(4) == []
    law.latency_ms = lambda _: 500.0
    assert henge.rounds(1) == []
    law.latency_ms = lambda _: 50.0
    assert henge.rounds(4) == []
    assert reasons(henge.rounds(1)) == [messages.CONVERGED_MET]


def test_who_gains_less_than_delta_keeps_it_and_is_skipped_for_an_hour() -> None:
    law = Law(line("a"), lambda p: 100.0 if p["work"] == 10 else 96.0, lambda _: {"work": 0.54})
    henge = run(law, shared(line("b", priority=20), 8))
    reconfigured = henge.until(messages.RECONFIGURATION)
    black = henge.until(messages.BLACKLISTED)
    assert black.job == "t/a"
    assert black.causes == (reconfigured.id,)
    assert black.numbers["utility_before"] == pytest.approx(21)
    assert henge.state["henge"]["blacklist"] == {"t/a": henge.cluster.time_s + 3600}
    assert henge.cluster.allocations["t/a"].parallelism == {"work": 18}
    henge.until(messages.CONVERGED_STUCK)
    touched = [d.job for d in henge.decisions if d.reason == messages.RECONFIGURATION]
    assert touched == ["t/a", "t/b"]


def test_after_its_time_on_the_blacklist_a_job_is_tried_again() -> None:
    law = Law(line("a"), lambda p: 100.0 if p["work"] < 19 else 30.0, lambda _: {"work": 0.54})
    held = shared(line("b", priority=20), 8)
    henge = run(law, held, given=HengeParameters(blacklist_s=600))
    # Somebody who waits for its turn keeps the cluster out of Converged.
    henge.cluster.held["t/b"] = "QUIET_HOURS"
    black = henge.until(messages.BLACKLISTED)
    blacklisted_s = henge.cluster.time_s
    again = henge.until(messages.RECONFIGURATION)
    assert again.job == black.job
    assert henge.cluster.time_s == blacklisted_s + 600


def test_who_gains_little_but_meets_its_intent_is_not_blacklisted() -> None:
    law = Law(line("a"), lambda p: 62.0 if p["work"] == 10 else 60.0, lambda _: {"work": 0.54})
    henge = run(law)
    assert reasons(henge.rounds(40)) == [messages.RECONFIGURATION, messages.CONVERGED_MET]


def test_who_stays_at_a_utility_of_nothing_is_blacklisted() -> None:
    step = (Threshold(Metric.LATENCY, 60, utility=Utility("step")),)
    job = line("a", thresholds=step)
    law = Law(job, lambda p: 100.0 if p["work"] < 30 else 30.0, lambda p: {"work": 6 / p["work"]})
    henge = run(law, given=HengeParameters(least_capacity=0))
    assert henge.until(messages.BLACKLISTED).numbers["utility"] == 0


# ----- Reduction


def test_a_fall_on_a_congested_cluster_takes_from_those_that_meet_their_intents() -> None:
    rich = line("rich", "busy", "idle", priority=10, initial=20)
    henge = run(harmful("a"), constant(rich, 20, busy=0.5, idle=0.01), load=congested)
    reconfigured = henge.until(messages.RECONFIGURATION)
    reduction = henge.until(messages.REDUCTION)
    assert reduction.job == "t/rich"
    # Only the operator that is not congested, by 80 %.
    assert counts(reduction) == {"idle": 4}
    assert reduction.causes == (reconfigured.id,)
    assert reduction.numbers["congested"] == 3
    assert reduction.expects is not None
    assert reduction.expects.value == 60


def test_memory_that_is_full_makes_a_cluster_congested_too() -> None:
    rich = constant(line("rich", priority=10, initial=20), 20)
    henge = run(harmful("a"), rich, memory_used=0.95)
    assert henge.until(messages.REDUCTION).job == "t/rich"


def test_without_congestion_a_fall_is_reverted() -> None:
    henge = run(harmful("a"), constant(line("rich", priority=10), 20))
    reconfigured = henge.until(messages.RECONFIGURATION)
    reversion = henge.until(messages.REVERSION)
    assert counts(reversion) == {"work": 10}
    assert reversion.causes == (reconfigured.id,)
    assert reversion.expects is not None
    assert henge.phase == "converged"
    assert henge.decisions[-1].reason == messages.CONVERGED_STUCK
    assert henge.rounds(100) == []


def test_congestion_of_half_the_machines_is_not_that_of_the_cluster() -> None:
    rich = constant(line("rich", priority=10, initial=20), 20)
    henge = run(harmful("a"), rich, machines=("m0", "m1"))
    henge.cluster.load = lambda cluster: cluster.cores  # as many threads as cores: not congested
    assert henge.until(messages.REVERSION).job == "t/a"
    assert messages.REDUCTION not in reasons(henge.decisions)


def test_where_nobody_meets_its_intent_there_is_no_reduction() -> None:
    henge = run(harmful("a"), constant(line("b", priority=10), 100), load=congested)
    assert henge.until(messages.REVERSION).job == "t/a"
    assert messages.REDUCTION not in reasons(henge.decisions)


def test_after_a_reduction_a_second_fall_is_a_lockout_and_reverted() -> None:
    henge = run(
        harmful("a"),
        harmful("b", priority=30),
        constant(line("rich", priority=10, initial=20), 20),
        load=congested,
    )
    reduction = henge.until(messages.REDUCTION)
    reversion = henge.until(messages.REVERSION)
    assert reduction.id in reversion.causes
    assert "lockout" in reversion.sentence
    assert reasons(henge.decisions).count(messages.REDUCTION) == 1


def test_a_reduction_that_breaks_an_intent_is_mended_by_a_reconfiguration() -> None:
    rich = line("rich", "busy", "idle", priority=10, initial=20)
    law = Law(
        rich,
        lambda p: 20.0 if p["idle"] > 5 else 90.0,
        lambda p: {"busy": 0.2, "idle": 0.01 if p["idle"] > 5 else 0.4},
    )
    henge = run(harmful("a"), law, load=congested)
    henge.until(messages.REDUCTION)
    mended = [d for d in henge.rounds(60) if d.job == "t/rich" and d.reason in STEPS]
    assert mended[0].reason == messages.RECONFIGURATION


def test_slots_that_are_used_up_are_congestion_and_lead_to_a_reduction() -> None:
    poor = shared(line("poor", initial=2), 3)
    rich = constant(line("rich", priority=10, initial=20), 20)
    henge = run(poor, rich, slots=22)
    reduction = henge.until(messages.REDUCTION)
    assert counts(reduction) == {"work": 4}
    assert henge.until(messages.RECONFIGURATION).job == "t/poor"
    henge.until(messages.CONVERGED_MET)
    assert henge.cluster.instances() <= 22


# ----- Converged


def test_when_no_action_is_left_the_best_of_the_history_comes_back() -> None:
    """Each step costs a little, too little to be a fall; what is best was the beginning."""
    laws = [
        Law(
            line(f"j{i}", priority=30),
            lambda p: 80 + 0.1 * (p["work"] - 10),
            lambda _: {"work": 0.4},
        )
        for i in range(3)
    ]
    henge = run(*laws, given=HengeParameters(noise=0.002))
    converged = henge.until(messages.CONVERGED_STUCK)
    assert "blacklisted" in converged.sentence
    assert reasons(henge.decisions).count(messages.REVERSION) >= 1
    assert all(a.parallelism == {"work": 10} for a in henge.cluster.allocations.values())


def test_a_reversion_gives_back_before_it_takes() -> None:
    """What one got did not help it, and who gave is worse off; slots suffice only in one order."""
    poor, rich = rivals(1.0)
    henge = run(poor, rich, slots=22)
    henge.until(messages.REDUCTION)
    assert henge.until(messages.RECONFIGURATION).job == "t/poor"
    henge.until(messages.CONVERGED_STUCK)
    henge.rounds(2)
    reverted = [d.job for d in henge.decisions if d.reason == messages.REVERSION]
    assert reverted == ["t/poor", "t/rich"]
    assert {n: dict(a.parallelism) for n, a in henge.cluster.allocations.items()} == {
        "t/poor": {"work": 2},
        "t/rich": {"work": 20},
    }


def test_a_reversion_gets_through_a_guard_that_delays_and_takes_small_steps() -> None:
    """Fewer only after a minute and by half at a time, more by twice, each after half a minute."""
    poor, rich = rivals(0.8)
    henge = run(poor, rich, slots=22, guard=Guard(Rules()))
    henge.until(messages.REDUCTION)
    assert henge.until(messages.RECONFIGURATION).job == "t/poor"
    henge.until(messages.REVERSION)
    henge.rounds(40)
    assert {n: dict(a.parallelism) for n, a in henge.cluster.allocations.items()} == {
        "t/poor": {"work": 2},
        "t/rich": {"work": 20},
    }
    assert messages.NOT_CARRIED_OUT not in reasons(henge.decisions)


def test_what_a_reversion_could_not_bring_back_is_told_once() -> None:
    poor, rich = rivals(0.8)
    henge = run(poor, rich, slots=22)
    henge.until(messages.REVERSION)
    henge.cluster.held["t/rich"] = "QUIET_HOURS"
    henge.rounds(60)
    reports = [d for d in henge.decisions if d.reason == messages.NOT_CARRIED_OUT]
    assert len(reports) == 1
    assert "t/rich" in reports[0].sentence
    assert henge.cluster.allocations["t/poor"].parallelism == {"work": 2}


def test_configurations_are_compared_by_the_jobs_that_count_in_both() -> None:
    """While a job that nothing helps is not heard of, what is left of the
    cluster looks better than it is.
    """
    a, b = shared(line("a"), 8), constant(line("b"), 20)
    hopeless = constant(line("hopeless", ms=1), 1000)
    henge = run(a, b, hopeless, given=HengeParameters(recover_s=60))
    hopeless.metrics_missing = True
    henge.until(messages.RECONFIGURATION)
    hopeless.metrics_missing = False
    henge.until(messages.CONVERGED_STUCK)
    assert messages.REVERSION not in reasons(henge.decisions)
    assert henge.cluster.allocations["t/a"].instances > 10


def test_who_got_less_than_was_meant_for_it_is_not_blacklisted() -> None:
    """One slot of the many that it needs brings next to nothing; with more it would do."""
    poor = all_or_nothing(2)
    rich = constant(line("rich", priority=10, initial=19), 20)
    henge = run(poor, rich, slots=22)
    henge.until(messages.CONVERGED_MET)
    assert messages.BLACKLISTED not in reasons(henge.decisions)
    assert messages.REDUCTION in reasons(henge.decisions)


def test_who_the_guard_gives_less_than_was_decided_is_not_blacklisted() -> None:
    poor = all_or_nothing(1)
    henge = run(poor, guard=Guard(Rules()))
    henge.until(messages.CONVERGED_MET)
    assert messages.BLACKLISTED not in reasons(henge.decisions)


def test_nobody_gives_up_instances_for_a_job_that_only_gets_advice() -> None:
    poor = shared(line("poor", initial=2), 3)
    rich = constant(line("rich", priority=10, initial=20), 20)
    henge = run(poor, rich, slots=22, modes={"t/poor": Mode.ADVISE})
    henge.until(messages.CONVERGED_STUCK)
    assert messages.REDUCTION not in reasons(henge.decisions)
    assert henge.cluster.allocations["t/rich"].parallelism == {"work": 20}


def test_a_reversion_does_not_count_on_slots_that_somebody_else_keeps() -> None:
    poor, rich = rivals(1.0)
    henge = run(poor, rich, slots=22)
    henge.until(messages.BLACKLISTED)
    henge.cluster.held["t/poor"] = "QUIET_HOURS"
    henge.until(messages.NOT_CARRIED_OUT)
    assert {d.job for d in henge.decisions if d.reason == messages.REVERSION} == {"t/poor"}
    assert henge.cluster.allocations["t/rich"].parallelism == {"work": 4}


def test_a_reversion_waits_for_a_job_that_cools_down() -> None:
    """Its last change was a moment ago: a guard grants nothing now, and will later."""
    poor, rich = rivals(0.8)
    limits = Limits(cool_down_s=120.0, down_delay_s=0.0, down_factor=0.1, up_factor=10)
    henge = run(poor, rich, slots=22, guard=Guard(Rules(limits=limits)))
    henge.until(messages.REVERSION)
    henge.rounds(60)
    assert {n: a.instances for n, a in henge.cluster.allocations.items()} == {
        "t/poor": 2,
        "t/rich": 20,
    }


def test_a_guard_that_delays_for_longer_than_henge_waits_is_waited_for() -> None:
    poor = shared(line("poor", initial=2), 3)
    rich = constant(line("rich", priority=10, initial=20), 20)
    henge = run(poor, rich, slots=22, guard=Guard(Rules(limits=Limits(down_delay_s=400.0))))
    henge.until(messages.CONVERGED_MET)
    assert messages.NOT_CARRIED_OUT not in reasons(henge.decisions)


def test_a_clock_that_is_set_back_does_not_silence_it() -> None:
    henge = run(shared(line("a"), 8), shared(line("b", priority=20), 8), time_s=1e6)
    assert henge.until(messages.RECONFIGURATION).job == "t/a"
    henge.cluster.time_s -= 5000
    henge.cluster.changed_s = dict.fromkeys(henge.cluster.changed_s, henge.cluster.time_s)
    henge.cluster.snapshots = []
    henge.cluster.look()
    assert henge.until(messages.RECONFIGURATION, most=60).job == "t/b"


@pytest.mark.parametrize(("forget", "blacklist"), [("own", {"t/b"}), ("all", set())])
def test_a_drop_of_more_than_five_percent_forgets_the_history_and_starts_again(
    forget: str, blacklist: set[str]
) -> None:
    law = constant(line("a"), 60)
    hungry = constant(line("b"), 100, work=0.5)
    henge = run(law, hungry, given=HengeParameters(forget=forget))
    henge.until(messages.CONVERGED_STUCK)
    assert len(henge.state["henge"]["history"]) == 2
    assert set(henge.state["henge"]["blacklist"]) == {"t/b"}
    law.latency_ms = lambda _: 80.0
    henge.cluster.held["t/b"] = "COOL_DOWN"
    dropped = henge.until(messages.DROPPED)
    assert dropped.numbers["before"] == pytest.approx(0.8)
    assert dropped.numbers["after"] < 0.8 * 0.95  # type: ignore[operator]
    assert henge.phase == "not_converged"
    assert henge.state["henge"]["history"] == []
    assert set(henge.state["henge"]["blacklist"]) == blacklist


def test_a_reduction_is_possible_again_after_a_change_from_outside() -> None:
    rich = constant(line("rich", priority=10, initial=20), 20)
    henge = run(harmful("a"), rich, load=congested, given=HengeParameters(forget="all"))
    henge.until(messages.REDUCTION)
    henge.until(messages.CONVERGED_STUCK)
    henge.cluster.add(constant(line("new", priority=1), 20))
    henge.until(messages.EXTERNAL)
    henge.until(messages.REDUCTION)


def test_a_drop_of_less_leaves_it_converged_unless_an_intent_is_missed_that_was_met() -> None:
    laws = [constant(line(f"j{i:02}"), 60) for i in range(20)]
    henge = run(*laws)
    henge.until(messages.CONVERGED_MET)
    laws[7].latency_ms = lambda _: 66.0
    again = henge.until(messages.MISSED_AGAIN)
    assert "t/j07" in again.sentence
    assert (again.numbers["after"] or 0) > 0.95
    assert henge.phase == "not_converged" or henge.decisions[-1].reason == messages.CONVERGED_STUCK


def test_in_a_cluster_that_cannot_meet_all_a_small_swing_changes_nothing() -> None:
    law = constant(line("a"), 100)
    henge = run(law, constant(line("b"), 20))
    henge.until(messages.CONVERGED_STUCK)
    law.latency_ms = lambda _: 105.0
    assert henge.rounds(50) == []


def test_a_higher_utility_is_a_new_measure_for_drops() -> None:
    law = constant(line("a"), 600)
    henge = run(law, constant(line("b", priority=1), 20))
    henge.until(messages.CONVERGED_STUCK)
    law.latency_ms = lambda _: 60.0
    assert henge.rounds(20) == []
    law.latency_ms = lambda _: 120.0
    henge.until(messages.DROPPED)
