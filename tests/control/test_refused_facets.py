"""Refused facets and unknown outcomes: the rest is done, and the policy is told the truth."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.control.scene import World
from tests.control.test_facets import CHANGES, EDGE, GROUPS, JOB, Able, Proposes, world_of
from trilithon.control.explain import explain
from trilithon.model.action import Action, Outcome, Reallocate, Status
from trilithon.model.allocation import Allocation
from trilithon.model.change import PlacementChange, WeightsChange
from trilithon.model.job import Job
from trilithon.policies.decision import Decision
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import Scene


def test_several_facets_that_the_engine_refuses_are_left_out_one_after_the_other(
    tmp_path: Path,
) -> None:
    """The rest was asked for once: what was right of it was lost with a second facet."""
    facets = ("parallelism", "batching", "placement")
    world, _ = world_of(tmp_path, *(CHANGES[facet] for facet in facets))
    assert isinstance(world.cluster, Able)
    world.cluster.refuses = {"batching_ms": "CANNOT_BATCHING", "placement": "UNKNOWN_MACHINE"}
    world.rounds(8)
    assert world.parallelism(JOB.id) == {"o0": 2, "o1": 2}
    rows = world.rows("SELECT status, facets FROM action ORDER BY id")
    assert [status for status, _ in rows] == ["refused", "refused", "done"]
    assert rows[-1][1] == '["parallelism"]'


def test_weights_of_an_operator_whose_instances_stay_are_done_if_other_instances_are_refused(
    tmp_path: Path,
) -> None:
    """All weights were taken back once, those of other operators, too."""

    class Full(Able):
        def apply(self, action: Action) -> Outcome:
            if isinstance(action, Reallocate) and action.allocation.parallelism["o0"] > 1:
                return Outcome(Status.REFUSED, "TOO_MANY_INSTANCES", "It has one task.")
            return super().apply(action)

    world, _ = world_of(
        tmp_path, CHANGES["parallelism"], CHANGES["weights"], CHANGES["key_groups"], cluster=Full()
    )
    world.rounds(8)
    allocation = world.cluster.allocations[JOB.id]
    assert allocation.parallelism == {"o0": 1, "o1": 2}
    assert (allocation.weights, allocation.groups) == ({"o1": (1.0, 0.5)}, {"o1": GROUPS})


def test_a_placement_on_a_machine_that_is_gone_does_not_block_later_changes(
    tmp_path: Path,
) -> None:
    """Engines check all of an allocation: a job that was placed on a machine which went away could
    never be changed again, nor started.
    """

    class Checks(Able):
        def _unknown(self, allocation: Allocation) -> bool:
            named = {m for machines in allocation.placement.values() for m in machines if m}
            return not named <= set(self.machines)

        def apply(self, action: Action) -> Outcome:
            if isinstance(action, Reallocate) and self._unknown(action.allocation):
                return Outcome(Status.REFUSED, "UNKNOWN_MACHINE", "There is no such machine.")
            return super().apply(action)

        def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
            if self._unknown(allocation):
                return Outcome(Status.REFUSED, "UNKNOWN_MACHINE", "There is no such machine.")
            return super().submit(job, allocation, checkpoint)

    placement = PlacementChange(JOB.id, {"o1": ("m0", "m1")})
    world, policy = world_of(tmp_path, placement, cluster=Checks())
    world.rounds(8)
    assert world.cluster.allocations[JOB.id].placement == {"o1": ("m0", "m1")}
    world.cluster.machines.remove("m1")
    policy.changes, policy.again = (CHANGES["parallelism"],), True
    world.rounds(8)
    assert world.parallelism(JOB.id) == {"o0": 2, "o1": 2}
    assert world.cluster.allocations[JOB.id].placement == {"o1": ("m0", None)}
    # The last machine of the placement goes, and the job with it: it is started elsewhere.
    policy.changes = ()
    world.cluster.machines.remove("m0")
    world.cluster.cancel(JOB.id, keep=True)
    world.rounds(4)
    assert JOB.id in world.cluster.allocations
    assert world.cluster.allocations[JOB.id].placement == {}


class Silent(Able):
    """A cluster that does not answer some calls, and does not do what they ask for either."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    def apply(self, action: Action) -> Outcome:
        if self.lost:
            self.lost -= 1
            return Outcome(Status.UNKNOWN, "HOST_UNREACHABLE", "No answer.")
        return super().apply(action)


def decided(world: World) -> None:
    while not world.rows("SELECT id FROM decision"):
        world.round()


def test_the_rest_is_also_done_when_wanted_state_is_asked_for_again(tmp_path: Path) -> None:
    """A call got no answer, and the retry of the next round was refused because of one facet: all
    of the decision was dropped then.
    """
    world, policy = world_of(
        tmp_path, CHANGES["parallelism"], CHANGES["batching"], cluster=(cluster := Silent())
    )
    cluster.refuses = {"batching_ms": "CANNOT_BATCHING"}
    cluster.lost = 1
    decided(world)
    world.rounds(2)
    assert world.parallelism(JOB.id) == {"o0": 2, "o1": 2}
    rows = world.rows("SELECT status, code, facets FROM action ORDER BY id")
    assert [row[:2] for row in rows] == [("refused", "CANNOT_BATCHING"), ("done", "")]
    assert rows[1][2] == '["parallelism"]'
    [feedback] = policy.scenes[-1].feedback.values()
    assert [o.status for o in feedback.outcomes] == [Status.REFUSED, Status.DONE]
    record = world.controller.state.jobs[JOB.id]
    assert record.accepted == record.wanted == world.cluster.allocations[JOB.id]


def test_what_was_done_is_explained_without_the_facet_that_was_refused(tmp_path: Path) -> None:
    """The explanation named all that was granted, also for the action of the rest."""
    world, _ = world_of(tmp_path, CHANGES["parallelism"], CHANGES["batching"])
    assert isinstance(world.cluster, Able)
    world.cluster.refuses = {"batching_ms": "CANNOT_BATCHING"}
    world.rounds(8)
    assert world.journal is not None
    sentences = explain(world.journal, JOB.id)[0]["sentences"]
    [done] = [sentence for sentence in sentences if sentence.startswith("Done")]
    [refused] = [sentence for sentence in sentences if sentence.startswith("Refused")]
    assert "o0 ×2" in done
    assert "batching" not in done
    assert f"batching on {EDGE}" in refused


@pytest.mark.parametrize("applied", [True, False])
def test_an_outcome_that_became_known_after_a_restart_of_the_daemon_is_told_to_the_policy(
    tmp_path: Path, applied: bool
) -> None:
    """The journal had no outcome of an unanswered action, and so the policy got none."""
    world, policy = world_of(tmp_path, CHANGES["weights"], cluster=(cluster := Silent()))
    if applied:
        cluster.fails = [Status.UNKNOWN]
    else:
        cluster.lost = 1
    decided(world)
    world.start()
    world.rounds(1)
    [feedback] = policy.scenes[-1].feedback.values()
    assert [o.status for o in feedback.outcomes] == [Status.DONE]


def test_an_unknown_restart_stays_unknown_when_later_wanted_state_is_settled(
    tmp_path: Path,
) -> None:
    """Whatever the engine was found to have of a job settled all its unknown outcomes once."""
    world, policy = world_of(tmp_path, CHANGES["restart_job"], cluster=(cluster := Silent()))
    cluster.lost = 1
    decided(world)
    bounds = replace(world.controller.state.jobs[JOB.id].job.bounds, max_instances=30)
    world.commands.apply(replace(world.controller.state.jobs[JOB.id].job, bounds=bounds))
    world.rounds(2)
    [feedback] = policy.scenes[-1].feedback.values()
    assert [o.status for o in feedback.outcomes] == [Status.UNKNOWN]


def test_an_action_that_another_version_superseded_is_not_said_to_be_done(tmp_path: Path) -> None:
    world, policy = world_of(tmp_path, CHANGES["weights"], cluster=(cluster := Silent()))
    cluster.lost = 1
    decided(world)
    job = world.controller.state.jobs[JOB.id].job
    first = replace(job.operators[0], work=replace(job.operators[0].work, where="v >= 7"))
    wide = replace(job.operators[1].parallelism, initial=3, min=3)
    second = replace(job.operators[1], parallelism=wide)
    world.commands.apply(replace(job, operators=(first, second)))
    world.rounds(2)
    assert world.cluster.allocations[JOB.id].weights == {}
    assert world.rows("SELECT status, code FROM action") == [("refused", "SUPERSEDED")]
    [feedback] = policy.scenes[-1].feedback.values()
    assert [o.code for o in feedback.outcomes] == ["SUPERSEDED"]
    assert not feedback.applied
    assert world.journal is not None
    assert any(s.startswith("Superseded") for s in explain(world.journal, JOB.id)[0]["sentences"])


class OfTheCluster(Proposes):
    """Changes a job by a decision about the whole cluster."""

    def decide(self, scene: Scene, state: State) -> Verdict:
        verdict = super().decide(scene, state)
        decisions = (
            Decision(decision_id(scene, None), None, decision.changes, "WHY", "It must.")
            for decision in verdict.decisions
        )
        return replace(verdict, decisions=tuple(decisions))


def test_an_unknown_outcome_of_a_decision_about_the_cluster_is_settled_by_its_job(
    tmp_path: Path,
) -> None:
    world, _ = world_of(tmp_path, CHANGES["weights"])
    policy = OfTheCluster(CHANGES["weights"])
    world.policy = policy
    world.start()
    world.cluster.fails = [Status.UNKNOWN]
    decided(world)
    world.rounds(1)
    [feedback] = policy.scenes[-1].feedback.values()
    assert [o.status for o in feedback.outcomes] == [Status.DONE]


def test_a_new_placement_beside_old_weights_is_left_out_and_the_rest_is_done(
    tmp_path: Path,
) -> None:
    class Strict(Able):
        def apply(self, action: Action) -> Outcome:
            allocation = action.allocation if isinstance(action, Reallocate) else None
            if allocation is not None and allocation.weights and allocation.placement:
                return Outcome(Status.REFUSED, "WEIGHTS_WITH_PLACEMENT", "Not both.")
            return super().apply(action)

    weights = WeightsChange(JOB.id, {"o1": (1.0, 0.5)})
    world, policy = world_of(tmp_path, weights, cluster=Strict())
    world.rounds(8)
    policy.changes = (PlacementChange(JOB.id, {"o1": ("m0", None)}), CHANGES["parallelism"])
    policy.again = True
    world.rounds(8)
    allocation = world.cluster.allocations[JOB.id]
    assert (allocation.parallelism, allocation.placement) == ({"o0": 2, "o1": 2}, {})
    assert allocation.weights == {"o1": (1.0, 0.5)}
