"""Layers of policies: each sees what those before it decided, and
leaves alone what they claimed.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import FakeCluster, chain
from tests.control.scene import World
from tests.fakes import FakePolicy
from trilithon.control.rules import Rules
from trilithon.errors import InvalidPolicy, NotFound
from trilithon.model.change import Alert, JobRestart, ParallelismChange, Severity
from trilithon.policies.decision import Claim, Decision
from trilithon.policies.layered import LayeredPolicy
from trilithon.policies.policy import Policy, State, Verdict, decision_id
from trilithon.policies.registry import policy
from trilithon.policies.scene import Scene

SICK, WELL = chain("sick"), chain("well")
CURE_S = 60.0


class Healer(FakePolicy):
    """Restarts a job once and claims it while it is being cured."""

    name = "healer"
    feedback_rounds = 5

    def __init__(self) -> None:
        self.scenes: list[Scene] = []

    def decide(self, scene: Scene, state: State) -> Verdict:
        self.scenes.append(scene)
        status = scene.statuses.get(SICK.id)
        if state.get("cured") or status is None or not status.open:
            return Verdict((), state)
        cure = Decision(
            decision_id(scene, SICK.id), SICK.id, (JobRestart(SICK.id),), "SICK", "It is sick."
        )
        claim = Claim(SICK.id, scene.now_s + CURE_S, "It is being cured.")
        return Verdict((cure,), {**state, "cured": True}, claims=(claim,))


class Grower(FakePolicy):
    """Gives every job that is open an instance more; a rude one does not look whether it is."""

    name = "grower"
    feedback_rounds = 5

    def __init__(self, *, rude: bool = False) -> None:
        self.rude = rude
        self.scenes: list[Scene] = []

    def decide(self, scene: Scene, state: State) -> Verdict:
        self.scenes.append(scene)
        decisions = []
        for job, status in scene.statuses.items():
            if status.open or (self.rude and status.hold_reason == "CLAIMED"):
                more = {"o0": status.allocation.parallelism["o0"] + 1}
                change = ParallelismChange(job, more)
                decisions.append(
                    Decision(decision_id(scene, job), job, (change,), "MORE", "It grows.")
                )
        return Verdict(tuple(decisions), {"rounds": state.get("rounds", 0) + 1})


def world_of(folder: Path, *layers: FakePolicy) -> World:
    world = World(folder, FakeCluster(), Rules(), LayeredPolicy(layers))
    world.commands.apply(SICK)
    world.commands.apply(WELL)
    return world


def changes(world: World, job: str) -> list[tuple[str, str]]:
    assert world.journal is not None
    return [(row.policy, row.reason) for row in world.journal.decisions(job) if row.granted]


def test_a_claimed_job_is_left_to_the_policy_that_claimed_it_until_the_claim_ends(
    tmp_path: Path,
) -> None:
    healer, grower = Healer(), Grower()
    world = world_of(tmp_path, healer, grower)
    world.rounds(6)
    assert changes(world, SICK.id) == [("healer", "SICK")]
    assert ("grower", "MORE") in changes(world, WELL.id)
    claimed = [
        scene.statuses[SICK.id].hold_reason for scene in grower.scenes if SICK.id in scene.statuses
    ]
    assert "CLAIMED" in claimed
    # The healer itself is not held by its own claim.
    own = {s.statuses[SICK.id].hold_reason for s in healer.scenes if SICK.id in s.statuses}
    assert "CLAIMED" not in own
    world.rounds(8)
    assert ("grower", "MORE") in changes(world, SICK.id)


def test_the_guard_refuses_who_does_not_respect_a_claim(tmp_path: Path) -> None:
    world = world_of(tmp_path, Healer(), Grower(rude=True))
    while not changes(world, SICK.id):
        world.round()
    world.rounds(int(CURE_S / 10) - 1)
    assert changes(world, SICK.id) == [("healer", "SICK")]
    assert world.journal is not None
    clips = {c["code"] for row in world.journal.decisions(SICK.id) for c in row.clips}
    assert "CLAIMED" in clips


def test_each_sees_the_decisions_of_those_before_it_in_this_round(tmp_path: Path) -> None:
    healer, grower = Healer(), Grower()
    world = world_of(tmp_path, healer, grower)
    world.rounds(6)
    assert all(scene.earlier == () for scene in healer.scenes)
    seen = [scene.earlier for scene in grower.scenes if scene.earlier]
    assert [(d.issuer, d.reason) for (d,) in seen] == [("healer", "SICK")]


def test_feedback_comes_to_who_decided(tmp_path: Path) -> None:
    healer, grower = Healer(), Grower()
    world = world_of(tmp_path, healer, grower)
    world.rounds(6)
    mine = {f.job for scene in healer.scenes for f in scene.feedback.values()}
    assert mine == {SICK.id}
    others = [f for scene in grower.scenes for f in scene.feedback.values()]
    assert others
    assert all(isinstance(change, ParallelismChange) for f in others for change in f.granted)
    # Both have decided about jobs in one round, under ids of their own.
    ids = [row[0] for row in world.rows("SELECT id FROM decision")]
    assert len(ids) == len(set(ids))


def test_layers_keep_their_own_state_and_a_claim_survives_the_daemon(tmp_path: Path) -> None:
    healer, grower = Healer(), Grower()
    world = world_of(tmp_path, healer, grower)
    while not changes(world, SICK.id):
        world.round()
    world.start()
    world.rounds(2)
    assert changes(world, SICK.id) == [("healer", "SICK")]
    state = world.controller.state.policy_state
    assert state["layers"]["healer"]["cured"] is True
    assert state["layers"]["grower"]["rounds"] > 1
    assert list(state["claims"]) == [SICK.id]
    status = world.controller.policy.status(grower.scenes[-1], state)
    assert status["claims"][SICK.id]["by"] == "healer"
    assert set(status) == {"healer", "grower", "claims"}


def test_a_claim_holds_while_the_job_has_no_status(tmp_path: Path) -> None:
    """A job that restarts to be cured may be gone for a round."""
    healer, grower = Healer(), Grower()
    layered = LayeredPolicy((healer, grower))
    world = world_of(tmp_path, healer, grower)
    while not changes(world, SICK.id):
        world.round()
    scene, state = world.controller.scene, world.controller.state.policy_state
    assert scene is not None
    without = {job: status for job, status in scene.statuses.items() if job != SICK.id}
    state = layered.decide(replace(scene, statuses=without), state).state
    layered.decide(scene, state)
    assert grower.scenes[-1].statuses[SICK.id].hold_reason


def test_an_alert_stands_beside_a_claim(tmp_path: Path) -> None:
    class Alerting(FakePolicy):
        name = "alerting"

        def decide(self, scene: Scene, state: State) -> Verdict:
            alert = Alert(SICK.id, Severity.INFO, "NEWS", "It is being cured.", "Wait.")
            id_ = decision_id(scene, SICK.id)
            return Verdict((Decision(id_, SICK.id, (alert,), "NEWS", "News."),), state)

    world = world_of(tmp_path, Healer(), Alerting())
    world.rounds(6)
    assert ("alerting", "NEWS") in changes(world, SICK.id)


def test_a_rules_file_names_one_policy_or_several() -> None:
    both = Rules.of({"policy": ["threshold", "henge"], "parameters": {"henge": {"window_s": 30.0}}})
    made = policy(both.policy, both.parameters)
    assert isinstance(made, LayeredPolicy)
    assert made.name == "threshold+henge"
    assert made.parameters.given()["henge"]["window_s"] == 30.0
    assert made.lookback_s == max(layer.lookback_s for layer in made.layers)
    assert policy(Rules.of({"policy": ["henge"]}).policy).name == "henge"
    assert policy(Rules.of({"policy": "henge"}).policy).name == "henge"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"policy": []}, InvalidPolicy),
        ({"policy": [1]}, InvalidPolicy),
        ({"policy": {"henge": 1}}, InvalidPolicy),
        ({"policy": ["henge", "henge"]}, InvalidPolicy),
        ({"policy": ["henge", "nobody"]}, NotFound),
        ({"policy": ["henge", "threshold"], "parameters": {"window_s": 3}}, InvalidPolicy),
        ({"policy": ["henge", "threshold"], "parameters": {"henge": 3}}, InvalidPolicy),
    ],
)
def test_layers_that_cannot_be_meant_are_refused(
    given: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        _made(given)


def _made(given: dict[str, object]) -> Policy:
    rules = Rules.of(given)
    return policy(rules.policy, rules.parameters)
