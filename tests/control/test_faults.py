"""What the controller knows after faults: clocks, failing engines, pauses, races with owners."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import START_S, chain
from tests.control.scene import World, rules
from tests.control.test_facets import CHANGES, JOB, Able, Proposes, world_of
from trilithon.control.guard import Ruling
from trilithon.control.journal.rows import SpecStatus
from trilithon.control.repeats import Repeats, subjects
from trilithon.model.action import Action, Outcome, RestartJob, Status
from trilithon.model.capability import Ability
from trilithon.model.change import ParallelismChange
from trilithon.model.utility import Sense
from trilithon.policies.decision import Decision, Expectation
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Scene


def test_a_clock_that_was_set_back_does_not_hold_machines_for_as_long_as_it_jumped(
    tmp_path: Path,
) -> None:
    world, _ = world_of(tmp_path, CHANGES["add_machines"], again=True)
    world.rounds(8)
    [first] = world.cluster.done
    world.cluster.now_s -= 7200.0
    world.rounds(40)
    assert world.cluster.done[0] is first
    assert len(world.cluster.done) == 2
    assert world.controller.state.machines_changed_s is not None


def test_a_job_that_does_not_stop_still_counts_for_the_slots(tmp_path: Path) -> None:
    """It was left out as soon as its owner wanted its end: the guard gave its slots away."""

    class Stubborn(Able):
        def cancel(self, job: str, keep: bool = False) -> Outcome:  # noqa: ARG002
            return Outcome(Status.FAILED, "STUCK", "It does not stop.")

    world, policy = world_of(tmp_path, cluster=Stubborn())
    world.rounds(2)
    world.commands.pause(JOB.id)
    world.rounds(2)
    cluster = policy.scenes[-1].cluster
    assert (cluster.slots_used, cluster.unseen) == (3, {"ads": 3})


def test_a_facet_that_goes_with_another_may_be_one_that_the_engine_cannot_change(
    tmp_path: Path,
) -> None:
    """Rescaling drops the weights of an operator. An engine that came back without weights as an
    ability made the round fail after the change was done.
    """
    world, policy = world_of(tmp_path, CHANGES["weights"])
    world.rounds(8)
    assert isinstance(world.cluster, Able)
    world.cluster.cannot = {Ability.WEIGHTS}
    policy.changes = (ParallelismChange(JOB.id, {"o1": 3}),)
    policy.again = True
    world.rounds(4)
    assert world.parallelism(JOB.id) == {"o0": 1, "o1": 3}


def test_the_outage_of_a_restart_is_learned_from_its_beginning(tmp_path: Path) -> None:
    """Only what came after the engine's answer was learned, and an engine answers late."""

    class Slow(Able):
        def apply(self, action: Action) -> Outcome:
            if isinstance(action, RestartJob):
                self.now_s += 12.0  # nothing is worked off meanwhile
            return super().apply(action)

    world, _ = world_of(
        tmp_path,
        CHANGES["restart_job"],
        cluster=Slow(),
        rules=rules(round_s=1, fresh_s=3, cool_down_s=5, watch_s=10, stale_s=40),
    )
    for _ in range(40):
        world.round(1.0)
    [(gap_s,)] = world.rows("SELECT gap_s FROM cost WHERE ability = 'restart_job'")
    assert gap_s == pytest.approx(11.0, abs=2.0)


def test_the_pause_of_a_job_is_not_learned_as_a_gap(tmp_path: Path) -> None:
    world = World(
        tmp_path, rules=rules(round_s=1, fresh_s=3, cool_down_s=5, watch_s=10, stale_s=40)
    )
    job = chain()
    world.commands.apply(job)
    for _ in range(10):
        world.round(1.0)
    world.controller.costs.began(job.id, Ability.PARALLELISM, world.cluster.now_s)
    world.commands.pause(job.id)
    for _ in range(60):
        world.round(1.0)
    world.commands.resume(job.id)
    for _ in range(60):
        world.round(1.0)
    assert world.rows("SELECT * FROM cost") == []


class Expects(Proposes):
    """Expects something of its decisions."""

    def __init__(self, *changes: Any, metric: str = "satisfaction") -> None:
        super().__init__(*changes)
        self.metric = metric

    def decide(self, scene: Scene, state: State) -> Verdict:
        verdict = super().decide(scene, state)
        expects = Expectation(self.metric, 0.5, scene.now_s + 30, Sense.AT_LEAST)
        decisions = tuple(replace(d, expects=expects) for d in verdict.decisions)
        return replace(verdict, decisions=decisions)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_decision_about_the_cluster_expected_is_checked(
    tmp_path: Path, restarted: bool
) -> None:
    world, _ = world_of(tmp_path)
    world.policy = policy = Expects(CHANGES["add_machines"])
    world.start()
    while not world.rows("SELECT id FROM decision"):
        world.round()
    if restarted:
        world.start()
    world.rounds(6)
    [feedback] = policy.scenes[-1].feedback.values()
    assert (feedback.measured, feedback.met) == (1.0, True)


def test_the_expectation_of_an_alert_is_not_checked_after_a_restart_either(tmp_path: Path) -> None:
    world, _ = world_of(tmp_path)
    world.policy = Expects(CHANGES["alert"], metric="juice")
    world.start()
    world.rounds(6)
    world.start()
    world.rounds(6)
    assert world.rows("SELECT came FROM decision") == [(None,)]


def test_a_policy_that_keeps_claims_of_its_own_is_not_taken_for_layers(tmp_path: Path) -> None:
    class Claims(Proposes):
        def decide(self, scene: Scene, state: State) -> Verdict:
            verdict = super().decide(scene, state)
            return replace(verdict, state={**verdict.state, "claims": {"ads": 3}})

    world, _ = world_of(tmp_path)
    world.policy = Claims(CHANGES["parallelism"])
    world.start()
    world.rounds(8)
    assert world.parallelism(JOB.id)["o0"] == 2


def test_causes_that_are_other_decisions_than_the_repeated_one_stay() -> None:
    """Every cause was replaced by the first of the repeated decisions about the same job."""
    repeats = Repeats()

    def refused(id_: str, *causes: str, reason: str = "WHY") -> Ruling:
        return Ruling(Decision(id_, JOB.id, (), reason, "It must.", causes=causes), ())

    assert repeats.first_of(refused("1")) is None
    for id_ in ("2", "3"):
        assert repeats.first_of(refused(id_)) == "1"
        repeats.end_round(subjects((refused(id_),)), {JOB.id})
    known = repeats.with_known_cause(refused("4", "3", "2", "0:other", reason="OTHER"))
    assert known.decision.causes == ("1", "0:other")


def test_decisions_that_could_not_be_written_are_decided_again(tmp_path: Path) -> None:
    """After a failed write the policy's state went on, and a repeat of an unwritten decision was
    taken for one that the journal has.
    """
    world, policy = world_of(tmp_path, CHANGES["batching"], again=True)
    assert isinstance(world.cluster, Able)
    world.cluster.cannot = set(Ability)
    world.rounds(2)
    assert world.journal is not None
    written = world.journal.round

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    world.journal.round = full  # type: ignore[method-assign]
    failed = 0
    for _ in range(6):
        try:
            world.round()
        except OSError:
            failed += 1
    assert failed > 1
    assert policy.scenes[-1].feedback == {}
    assert not world.controller.state.policy_state.get("done")
    world.journal.round = written  # type: ignore[method-assign]
    world.rounds(3)
    assert world.rows("SELECT times FROM decision") == [(3,)]


def test_old_allocations_are_trimmed_but_the_newest_of_each_version(tmp_path: Path) -> None:
    """Those that the engine had had were kept for ever."""
    world, _ = world_of(tmp_path)
    world.rounds(2)
    assert world.journal is not None
    current = world.controller.state.jobs[JOB.id].wanted
    for generation in range(2, 12):
        allocation = replace(current, generation=generation)
        world.journal.settle(allocation, 1, SpecStatus.ACCEPTED, START_S)
    world.journal.trim(START_S, START_S + 1e6)
    assert world.rows("SELECT generation FROM allocation") == [(11,)]
