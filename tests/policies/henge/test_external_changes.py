"""External changes: jobs, priorities, loads, rescaling by others, and missing metrics."""

import pytest

from tests.policies.henge.made_jobs import run
from tests.policies.henge.model import Law, constant, line, reasons, shared
from trilithon.model.mode import Mode
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import HengeParameters


def hungry(name: str, **settings: object) -> Law:
    """Misses its intent whatever it gets, and is soon blacklisted."""
    return constant(line(name, **settings), 100, work=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("forget", "blacklist"), [("own", {"t/a"}), ("all", set())])
def test_a_job_that_comes_ends_converged_and_clears_what_was_learned(
    forget: str, blacklist: set[str]
) -> None:
    given = HengeParameters(forget=forget)
    henge = run(hungry("a"), constant(line("b"), 20), given=given)
    henge.until(messages.CONVERGED_STUCK)
    assert henge.state["henge"]["blacklist"]
    henge.cluster.add(shared(line("new"), 8), henge.cluster.time_s)
    external = henge.until(messages.EXTERNAL, most=1)
    assert "t/new added" in external.sentence
    assert henge.phase == "not_converged"
    assert henge.state["henge"]["history"] == []
    assert set(henge.state["henge"]["blacklist"]) == blacklist
    henge.cluster.held["t/a"] = "COOL_DOWN"
    assert henge.until(messages.RECONFIGURATION).job == "t/new"
    assert (external.id,) in {d.causes for d in henge.decisions}


def test_a_new_job_is_left_alone_until_it_is_warm_and_converged_waits_for_it() -> None:
    henge = run(constant(line("b"), 20))
    henge.rounds(6)
    henge.cluster.add(shared(line("new"), 8), henge.cluster.time_s)
    henge.rounds(5)
    assert reasons(henge.decisions) == [messages.EXTERNAL]
    henge.rounds(1)
    assert reasons(henge.decisions) == [messages.EXTERNAL, messages.RECONFIGURATION]


def test_a_job_that_goes_clears_what_was_learned_too() -> None:
    henge = run(hungry("a"), constant(line("b"), 20))
    henge.until(messages.CONVERGED_STUCK)
    henge.cluster.remove("t/b")
    assert "t/b removed" in henge.until(messages.EXTERNAL, most=1).sentence
    assert set(henge.state["henge"]["jobs"]) == {"t/a"}


def test_the_job_that_was_just_given_more_may_go() -> None:
    henge = run(shared(line("a"), 8), shared(line("b", priority=10), 8))
    assert henge.until(messages.RECONFIGURATION).job == "t/a"
    henge.cluster.remove("t/a")
    assert henge.until(messages.RECONFIGURATION).job == "t/b"


def test_a_priority_that_changes_while_running_changes_who_comes_first() -> None:
    henge = run(shared(line("a", priority=50), 8), shared(line("b", priority=20), 8))
    henge.cluster.held.update({"t/a": "COOL_DOWN", "t/b": "COOL_DOWN"})
    henge.rounds(10)
    henge.cluster.set_priority("t/b", 90)
    henge.cluster.held.clear()
    external, reconfigured = henge.rounds(1)
    assert "the intent of t/b changed" in external.sentence
    assert (reconfigured.reason, reconfigured.job) == (messages.RECONFIGURATION, "t/b")
    assert reconfigured.causes == (external.id,)


def test_a_priority_that_changes_brings_a_job_back_from_the_blacklist() -> None:
    henge = run(hungry("a"), hungry("b"))
    henge.until(messages.CONVERGED_STUCK)
    assert set(henge.state["henge"]["blacklist"]) == {"t/a", "t/b"}
    henge.cluster.set_priority("t/b", 90)
    assert henge.until(messages.RECONFIGURATION).job == "t/b"


def test_another_load_clears_what_was_learned_but_does_not_end_converged() -> None:
    law = constant(line("a"), 20)
    henge = run(law, hungry("b"))
    henge.until(messages.CONVERGED_STUCK)
    law.rate_per_s = 200.0
    external = henge.until(messages.EXTERNAL)
    assert "the load of t/a went from 100" in external.sentence
    assert henge.phase == "converged"
    assert henge.state["henge"]["history"] == []
    assert henge.rounds(20) == []  # one change, though the window shows it bit by bit
    assert set(henge.state["henge"]["blacklist"]) == {"t/b"}


def test_a_load_that_moves_by_chance_is_the_same_load() -> None:
    law = constant(line("a"), 20)
    law.rate_per_s = 0.2
    henge = run(law)
    henge.until(messages.CONVERGED_MET)
    law.rate_per_s = 0.35  # 21 records in a minute instead of 12
    assert henge.rounds(20) == []


def test_who_is_rescaled_by_others_is_left_to_settle() -> None:
    law = shared(line("a"), 8)
    henge = run(law, constant(line("b"), 20))
    henge.cluster.held["t/a"] = "COOL_DOWN"
    henge.rounds(10)
    henge.cluster.held.clear()
    henge.cluster.rescale("t/a", work=11)
    changed_s = henge.cluster.time_s
    assert "t/a was rescaled by others" in henge.until(messages.EXTERNAL, most=1).sentence
    henge.until(messages.RECONFIGURATION)
    assert henge.cluster.time_s == changed_s + 60


def test_machines_that_come_clear_the_blacklist() -> None:
    henge = run(hungry("a"))
    henge.until(messages.CONVERGED_STUCK)
    henge.cluster.machines = ("m0", "m1", "m2", "m3")
    assert reasons(henge.rounds(1)) == [messages.EXTERNAL, messages.RECONFIGURATION]


def test_nothing_is_done_while_numbers_are_missing_nor_for_five_minutes_after() -> None:
    """SoCC'18, section 8.4.2: lost in the midst of its work, from
    1,020 to 1,380 s; on at 1,680 s.
    """
    laws = [shared(line(f"j{i}", ms=70), 12) for i in range(9)]
    henge = run(*laws)
    henge.rounds(102)
    assert henge.cluster.time_s == 1020
    henge.decisions.clear()
    for law in laws:
        law.metrics_missing = True
        law.latency_ms = lambda _: 500.0
    henge.rounds(36)
    for law in laws:
        law.metrics_missing = False
    henge.rounds(30)
    assert [d for d in henge.decisions if d.changes] == []
    assert reasons(henge.decisions)[0] == messages.MISSING
    assert henge.cluster.time_s == 1680
    henge.rounds(3)
    assert messages.BACK in reasons(henge.decisions)
    assert any(d.reason in {messages.RECONFIGURATION, messages.DROPPED} for d in henge.decisions)


def test_one_job_without_numbers_does_not_hold_up_the_others() -> None:
    lost = shared(line("lost", priority=90), 8)
    henge = run(lost, shared(line("a"), 8), shared(line("b", priority=20), 8))
    henge.rounds(5)
    lost.metrics_missing = True
    henge.rounds(60)
    touched = [d.job for d in henge.decisions if d.reason == messages.RECONFIGURATION]
    assert touched == ["t/a", "t/b"]
    assert henge.phase == "not_converged"  # it is not over before it is back
    lost.metrics_missing = False
    back_s = henge.cluster.time_s
    assert henge.until(messages.RECONFIGURATION).job == "t/lost"
    assert henge.cluster.time_s >= back_s + 300


def test_the_job_whose_effect_is_waited_for_may_be_lost_and_come_back() -> None:
    law = shared(line("a"), 8)
    henge = run(law, constant(line("b"), 20), constant(line("c"), 20))
    henge.until(messages.RECONFIGURATION)
    law.metrics_missing = True
    assert henge.rounds(20) == []
    law.metrics_missing = False
    assert henge.until(messages.CONVERGED_MET).numbers["goal"] == pytest.approx(1)


def test_a_job_with_nothing_to_do_misses_nothing() -> None:
    idle = constant(line("idle"), 100)
    idle.rate_per_s = 0.0
    henge = run(idle, constant(line("b"), 20))
    assert henge.until(messages.CONVERGED_MET).numbers["goal"] == 1


def test_a_job_that_wakes_up_and_misses_its_intent_ends_converged() -> None:
    idle = shared(line("idle"), 8)
    idle.rate_per_s = 0.0
    henge = run(idle, *(constant(line(f"j{i:02}"), 20) for i in range(20)))
    henge.until(messages.CONVERGED_MET)
    idle.rate_per_s = 100.0
    assert henge.until(messages.RECONFIGURATION).job == "t/idle"


def test_a_job_that_takes_nothing_of_what_comes_in_has_a_utility_of_nothing() -> None:
    stuck = constant(line("stuck"), 20, work=1.0)
    stuck.juice = lambda _: 0.0
    henge = run(stuck, constant(line("b"), 20))
    first = henge.until(messages.RECONFIGURATION)
    assert first.job == "t/stuck"
    assert first.numbers["utility"] == 0
    assert "nothing measured" in first.sentence
    assert first.expects is not None
    assert first.expects.value == 60


def test_a_job_that_may_be_changed_from_now_on_opens_what_was_closed() -> None:
    henge = run(shared(line("a"), 8), constant(line("b"), 20), modes={"t/a": Mode.OFF})
    henge.rounds(60)
    assert messages.RECONFIGURATION not in reasons(henge.decisions)
    henge.cluster.modes["t/a"] = Mode.AUTO
    external, reconfigured = henge.rounds(1)
    assert external.reason == messages.EXTERNAL
    assert "t/a entered mode auto" in external.sentence
    assert (reconfigured.reason, reconfigured.job) == (messages.RECONFIGURATION, "t/a")
    henge.cluster.modes["t/a"] = Mode.OFF
    henge.rounds(5)
    assert reasons(henge.decisions).count(messages.EXTERNAL) == 1
