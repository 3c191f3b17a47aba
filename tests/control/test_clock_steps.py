"""The controller's clock is set by an hour: waits last as long as they would have."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import chain
from tests.control.scene import World, rules
from tests.fakes import FakePolicy
from trilithon.contract.condition import Condition, Health
from trilithon.control.journal.rows import SpecStatus
from trilithon.model.capability import Ability
from trilithon.model.columns import Machines
from trilithon.model.job import Work
from trilithon.model.report import Report
from trilithon.policies.policy import State, Verdict
from trilithon.policies.registry import policy
from trilithon.policies.scene import Scene

JOB = chain()
# A small step is within what may pass between two rounds.
either_way = pytest.mark.parametrize("step_s", [-3600.0, -20.0, 20.0, 3600.0])


@either_way
def test_no_cost_of_an_hour_is_learned(tmp_path: Path, step_s: float) -> None:
    """The time between two reports before and after the step was learned as the gap of a restart:
    nothing was restarted any more.
    """
    world = World(
        tmp_path, rules=rules(round_s=1, fresh_s=3, cool_down_s=5, watch_s=10, stale_s=40)
    )
    world.commands.apply(JOB)
    for _ in range(20):
        world.round(1.0)
    world.controller.costs.began(JOB.id, Ability.RESTART_JOB, world.cluster.now_s)
    world.round(1.0)
    world.clock.set(step_s)
    for _ in range(20):
        world.round(1.0)
    assert world.controller.state.jobs[JOB.id].gap_s.get(Ability.RESTART_JOB, (0.0, 0))[0] < 10


@either_way
def test_a_cool_down_lasts_as_long(tmp_path: Path, step_s: float) -> None:
    world = World(tmp_path, rules=rules(round_s=1, fresh_s=3, cool_down_s=30, stale_s=40))
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.round(1.0)
    changed_s = world.controller.state.jobs[JOB.id].changed_s
    assert changed_s is not None
    world.clock.set(step_s)
    for _ in range(20):
        world.round(1.0)
    assert world.controller.state.jobs[JOB.id].changed_s == changed_s + step_s
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 1}
    for _ in range(20):
        world.round(1.0)
    assert world.parallelism(JOB.id) != {"o0": 1, "o1": 1}


@either_way
def test_a_new_version_has_as_long_to_become_healthy(tmp_path: Path, step_s: float) -> None:
    """After a step forwards its time seemed to be over, and it was rolled back."""
    world = World(tmp_path, rules=rules(healthy_within_s=60.0, good_after_s=50.0))
    world.commands.apply(JOB)
    world.rounds(12)
    world.cluster.condition[JOB.id] = Condition(Health.DEGRADED, "It takes its time.")
    first, *others = JOB.operators
    work = replace(first, work=Work(where="v >= 1"))
    world.commands.apply(replace(JOB, operators=(work, *others)))
    world.rounds(2)
    world.clock.set(step_s)
    world.rounds(1)
    assert world.controller.state.jobs[JOB.id].version.generation == 2
    world.cluster.condition.pop(JOB.id)
    world.rounds(12)
    assert world.controller.state.jobs[JOB.id].version.generation == 2
    assert world.controller.state.jobs[JOB.id].version.status is SpecStatus.GOOD


@either_way
def test_an_idle_machine_is_still_there(world: World, step_s: float) -> None:
    """Its last report was an hour old after a step forwards: it counted as lost for good."""
    world.commands.apply(JOB)
    world.rounds(2)
    idle = Report(
        "idle", 1, world.cluster.now_s, machine_keys=("m",), machines=Machines.of(1, cores=[8])
    )
    observer = world.controller.freshness.observer
    observer.take([idle])
    world.clock.set(step_s)
    world.controller.round()
    world.cluster.advance(1)
    observer.take([replace(idle, sequence=2, time_s=world.cluster.now_s)])
    world.controller.round()
    assert "m" in observer.series.last.layout.machines


def test_a_sender_that_fell_silent_before_the_clock_was_set_back_is_silent(world: World) -> None:
    """Its last report lay in the future for an hour, and counted as the latest."""
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    world.rounds(2)
    world.cluster.silent.add(JOB.id)
    world.clock.set(-3600.0)
    world.rounds(10)
    assert world.controller.freshness.distrusted(JOB.id, world.cluster.now_s) == "METRICS_MISSING"


def test_what_was_expected_is_checked_when_it_would_have_been(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    due = world.controller.expectations._due
    while not due:
        world.rounds(1)
        due = world.controller.expectations._due
    before = [by_s for by_s, *_ in due]
    world.clock.set(-3600.0)
    world.controller.round()
    assert [by_s for by_s, *_ in world.controller.expectations._due] == [
        by_s - 3600 for by_s in before
    ]


class Remembering(FakePolicy):
    """A policy that remembers its first round, and numbers that are no moments."""

    name = "remembering"

    def decide(self, scene: Scene, state: State) -> Verdict:
        if "began_s" in state:
            return Verdict((), state)
        return Verdict((), {**state, **memory(scene.now_s)})


def memory(now_s: float) -> Mapping[str, Any]:
    return {
        "began_s": now_s,
        "jobs": {"a": {"lags": [[now_s - 5.0, 3.5]], "waited_s": 60.0, "steps": 7, "last": None}},
    }


@either_way
def test_a_policy_waits_as_long(tmp_path: Path, step_s: float) -> None:
    """After a step back its moments lay in the future: it decided nothing for an hour."""
    world = World(tmp_path, policy=Remembering())
    world.round()
    began_s = world.cluster.now_s
    world.clock.set(step_s)
    world.rounds(2)
    state = world.controller.state.policy_state
    assert {**state, "seed": None} == {**memory(began_s + step_s), "seed": None}
    world.start()
    assert world.controller.state.policy_state == state


def test_a_policy_waits_as_long_if_the_clock_was_set_back_while_no_daemon_ran(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, policy=Remembering())
    world.round()
    began_s = world.cluster.now_s
    world.clock.set(-3600.0)
    world.start()
    world.round()
    state = world.controller.state.policy_state
    assert {**state, "seed": None} == {**memory(began_s - 3600.0), "seed": None}


@either_way
@pytest.mark.parametrize("name", ["henge", "dhalion"])
def test_policies_act_in_time_after_the_clock_was_set(
    tmp_path: Path, name: str, step_s: float
) -> None:
    """An operator becomes too slow some minutes after the step: it gets instances."""
    world = World(tmp_path, policy=policy(name))
    world.cluster.rates[JOB.id] = 50.0
    world.commands.apply(JOB)
    world.rounds(90)
    before = world.parallelism(JOB.id)
    world.clock.set(step_s)
    world.rounds(10)
    world.cluster.rates[JOB.id] = 250.0
    world.rounds(80)
    assert sum(world.parallelism(JOB.id).values()) > sum(before.values())


@either_way
def test_a_step_within_a_round_moves_moments_once(
    tmp_path: Path, step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the round wrote by the new time was moved again in the next: a wait of another hour."""
    world = World(tmp_path, policy=Remembering())
    reports = world.cluster.reports

    def set_meanwhile() -> Sequence[Report]:
        world.clock.set(step_s)
        monkeypatch.setattr(world.cluster, "reports", reports)
        return reports()

    monkeypatch.setattr(world.cluster, "reports", set_meanwhile)
    first = world.round()
    began_s = world.cluster.now_s
    assert (first.clock_set_by_s, first.time_s) == (step_s, began_s)
    assert world.round().clock_set_by_s == 0.0
    assert world.controller.state.policy_state["began_s"] == began_s


@either_way
def test_a_step_between_two_looks_moves_what_was_seen_once(tmp_path: Path, step_s: float) -> None:
    world = World(tmp_path)
    world.commands.apply(JOB)
    world.rounds(3)
    world.clock.set(step_s)
    world.cluster.condition[JOB.id] = Condition(Health.DEGRADED, "It fell.")
    assert world.controller.look()
    trouble_s = world.controller.state.jobs[JOB.id].trouble_since_s
    assert trouble_s == world.cluster.now_s
    assert world.round().clock_set_by_s == step_s
    assert world.controller.state.jobs[JOB.id].trouble_since_s == trouble_s


def test_a_job_that_failed_after_the_clock_was_set_back_is_failed(tmp_path: Path) -> None:
    """It had been resumed "later", and so was called running, and could not be resumed."""
    world = World(tmp_path)
    world.commands.apply(JOB)
    world.rounds(3)
    world.commands.pause(JOB.id)
    world.rounds(2)
    world.commands.resume(JOB.id)
    world.rounds(3)
    world.controller.state.jobs[JOB.id].resumed_s = world.cluster.now_s
    world.clock.set(-3600.0)
    world.rounds(2)
    failed = Condition(Health.FAILED, "It fell.", since_s=world.cluster.now_s)
    world.cluster.condition[JOB.id] = failed
    world.rounds(2)
    assert world.controller.state.jobs[JOB.id].failed


def test_what_is_expected_is_due_in_time_after_a_restart_as_well(world: World) -> None:
    world.cluster.rates[JOB.id] = 250.0
    world.commands.apply(JOB)
    while not world.controller.expectations._due:
        world.rounds(1)
    world.clock.set(-3600.0)
    world.controller.round()
    due = [by_s for by_s, *_ in world.controller.expectations._due]
    world.start()
    assert [by_s for by_s, *_ in world.controller.expectations._due] == due


def test_an_action_that_takes_long_is_learned_in_full(tmp_path: Path) -> None:
    """Nobody looks meanwhile, and that was reason to forget what it cost."""
    world = World(
        tmp_path, rules=rules(round_s=1, fresh_s=3, cool_down_s=5, watch_s=10, stale_s=30)
    )
    world.commands.apply(JOB)
    for _ in range(20):
        world.round(1.0)
    world.controller.costs.began(JOB.id, Ability.RESTART_JOB, world.cluster.now_s)
    world.cluster.now_s += 45.0
    for _ in range(20):
        world.round(1.0)
    assert world.controller.state.jobs[JOB.id].gap_s[Ability.RESTART_JOB][0] > 30.0
