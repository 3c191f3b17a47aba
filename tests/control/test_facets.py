"""Every kind of change goes the whole way: capability check, guard, journal, engine, outcome,
learned cost, repeat check, explanation, replay. One test per station, run for each facet.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import START_S, FakeCluster, chain
from tests.control.scene import World, rules
from tests.fakes import FakePolicy
from trilithon.contract.change_wire import proposal_from_json, proposal_to_json
from trilithon.control.describe import describe_change
from trilithon.control.explain import explain, explain_one
from trilithon.control.guard import Guard, check_capabilities
from trilithon.control.recorder import RecordingFolder
from trilithon.control.replay import replay
from trilithon.control.rules import Limits, Rules
from trilithon.errors import NotUnderstood
from trilithon.model.action import (
    Action,
    AddMachines,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import (
    Alert,
    AvoidedTasksChange,
    BatchingChange,
    InstanceRestart,
    JobRestart,
    KeyGroupsChange,
    MachinesAddition,
    MachinesRemoval,
    ParallelismChange,
    PlacementChange,
    Proposal,
    Severity,
    WeightsChange,
    facet_name,
)
from trilithon.model.groups import KEY_GROUPS, SPREAD
from trilithon.model.job import Edge, Grouping
from trilithon.model.layout import Layout
from trilithon.model.mode import Mode
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import CLIP_CODES, Clip
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import Cluster, Scene

PLAIN = chain()
# The second operator gets its records by key.
JOB = replace(
    PLAIN,
    edges=tuple(
        Edge(edge.source, edge.target, Grouping.BY_KEY, ("v",)) if edge.target == "o1" else edge
        for edge in PLAIN.edges
    ),
)
EDGE = JOB.edges[0].name
GROUPS = (SPREAD, *(i % 2 for i in range(1, KEY_GROUPS)))
ALERT = Alert(JOB.id, Severity.WARNING, "ADD_PARTITIONS", "Readers are the limit.", "Add some.")

# What is asked for by facet, once o1 has two instances.
CHANGES: dict[str, Proposal] = {
    "parallelism": ParallelismChange(JOB.id, {"o0": 2}),
    "weights": WeightsChange(JOB.id, {"o1": (1.0, 0.5)}),
    "placement": PlacementChange(JOB.id, {"o1": ("m0", None)}),
    "key_groups": KeyGroupsChange(JOB.id, {"o1": GROUPS}),
    "avoided_tasks": AvoidedTasksChange(JOB.id, {"o1": (0,)}),
    "batching": BatchingChange(JOB.id, {EDGE: 5.0}),
    "restart_instance": InstanceRestart(JOB.id, "o1", 1),
    "restart_job": JobRestart(JOB.id),
    "add_machines": MachinesAddition(2),
    "remove_machines": MachinesRemoval(("m1",)),
    "alert": ALERT,
}
ACTS = [name for name in CHANGES if name != "alert"]
WANTED_STATE = ACTS[:6]
# What would be wrong about each, and the code with which the guard says so.
WRONG: dict[str, tuple[Proposal, str]] = {
    "parallelism": (ParallelismChange(JOB.id, {"o0": 99}), "MAXIMUM"),
    "weights": (WeightsChange(JOB.id, {"o1": (1.0,)}), "SHAPE"),
    "placement": (PlacementChange(JOB.id, {"o1": ("nowhere", None)}), "UNKNOWN_MACHINE"),
    "key_groups": (KeyGroupsChange(JOB.id, {"o0": GROUPS}), "NOT_KEYED"),
    "avoided_tasks": (AvoidedTasksChange(JOB.id, {"o1": (99,)}), "UNKNOWN_TASK"),
    "batching": (BatchingChange(JOB.id, {EDGE: -1.0}), "INVALID"),
    "restart_instance": (InstanceRestart(JOB.id, "o1", 7), "UNKNOWN_INSTANCE"),
    "restart_job": (JobRestart("ads/nobody"), "NOT_RUNNING"),
    "add_machines": (MachinesAddition(2000), "MAXIMUM"),
    "remove_machines": (MachinesRemoval(("m0", "m1")), "MINIMUM"),
}


class Proposes(FakePolicy):
    """Asks for some changes in one decision: once, or in every round
    in which the job may be changed.
    """

    name = "proposes"
    feedback_rounds = 50

    def __init__(self, *changes: Proposal, again: bool = False) -> None:
        self.changes, self.again = changes, again
        self.scenes: list[Scene] = []

    def decide(self, scene: Scene, state: State) -> Verdict:
        self.scenes.append(scene)
        status = scene.statuses.get(JOB.id)
        ready = status is not None and not status.in_flight and not status.hold_reason
        if not ready or (state.get("done") and not self.again):
            return Verdict((), state)
        # Of a cluster it speaks only with machines.
        about = None if all(change.job is None for change in self.changes) else JOB.id
        decision = Decision(decision_id(scene, about), about, self.changes, "WHY", "It must.")
        return Verdict((decision,), {**state, "done": True})


class Able(FakeCluster):
    """A cluster that can do everything, and knows the slots of its machines."""

    def __init__(self, slots: int = 40) -> None:
        super().__init__(slots=slots)
        self.cannot: set[Ability] = set()
        self.refuses: dict[str, str] = {}

    def capabilities(self) -> Capabilities:
        how = {a: How.NOT_AT_ALL if a in self.cannot else How.LIVE for a in Ability}
        share = dict.fromkeys(self.machines, 20)
        return Capabilities(how, self.ledger.slots, self.ledger.tasks, machine_slots=share)

    def apply(self, action: Action) -> Outcome:
        if isinstance(action, Reallocate):
            for field, code in self.refuses.items():
                if getattr(action.allocation, field):
                    return Outcome(Status.REFUSED, code, f"It does not take {field}.")
        return super().apply(action)


def world_of(
    folder: Path, *changes: Proposal, again: bool = False, record: Path | None = None, **more: Any
) -> tuple[World, Proposes]:
    """A job of two operators, the second with two instances, under
    a policy that asks for changes.
    """
    policy = Proposes(*changes, again=again)
    recorder = None if record is None else RecordingFolder(record)
    cluster = more.pop("cluster", None) or Able()
    world = World(folder, cluster, more.pop("rules", None) or Rules(), policy, recorder=recorder)
    wide = tuple(
        replace(o, parallelism=replace(o.parallelism, initial=2)) if o.name == "o1" else o
        for o in JOB.operators
    )
    world.commands.apply(replace(JOB, operators=wide))
    return world, policy


def done(cluster: FakeCluster) -> list[Action]:
    return list(cluster.done)


def last(world: World) -> tuple[list[Any], list[Any]]:
    """What was granted and clipped of the only decision, by the journal."""
    assert world.journal is not None
    [row] = world.journal.decisions()
    return [change["change"] for change in row.granted], [
        (c["facet"], c["code"]) for c in row.clips
    ]


@pytest.mark.parametrize("facet", CHANGES)
def test_a_change_comes_back_from_json_as_it_was(facet: str) -> None:
    change = CHANGES[facet]
    data = proposal_to_json(change)
    assert data["change"] == facet == facet_name(change)
    assert proposal_from_json(data) == change
    with pytest.raises(NotUnderstood):
        proposal_from_json({"change": facet})


def test_a_change_of_no_kind_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="nonsense"):
        proposal_from_json({"change": "nonsense"})


@pytest.mark.parametrize("facet", ACTS)
def test_capability_check_leaves_out_only_what_the_engine_cannot_do(facet: str) -> None:
    how = {a: How.NOT_AT_ALL if a == facet else How.LIVE for a in Ability}
    possible, clips = check_capabilities(Capabilities(how), CHANGES.values())
    assert [facet_name(change) for change in possible] == [name for name in ACTS if name != facet]
    assert [(clip.facet, clip.code) for clip in clips] == [(facet, "CANNOT")]


@pytest.mark.parametrize("facet", WANTED_STATE)
def test_what_the_engine_cannot_do_is_refused_and_the_rest_of_the_decision_done(
    tmp_path: Path, facet: str
) -> None:
    other = "weights" if facet != "weights" else "batching"
    world, _ = world_of(tmp_path, CHANGES[facet], CHANGES[other])
    assert isinstance(world.cluster, Able)
    world.cluster.cannot = {Ability(facet)}
    world.rounds(8)
    assert last(world) == ([other], [(facet, "CANNOT")])
    assert len(done(world.cluster)) == 1


@pytest.mark.parametrize("facet", ACTS)
def test_guard_clips_what_breaks_a_bound_and_says_why(tmp_path: Path, facet: str) -> None:
    wrong, code = WRONG[facet]
    world, _ = world_of(tmp_path, wrong)
    world.rounds(8)
    granted, clips = last(world)
    assert (facet, code) in clips
    assert code in CLIP_CODES
    if facet == "parallelism":
        assert granted == ["parallelism"]  # as many as may be
    else:
        assert (granted, done(world.cluster)) == ([], [])


@pytest.mark.parametrize("facet", CHANGES)
@pytest.mark.parametrize(("mode", "code"), [(Mode.OFF, "MODE_OFF"), (Mode.ADVISE, "ADVICE_ONLY")])
def test_guard_keeps_to_the_mode_of_the_job_or_the_cluster(
    tmp_path: Path, facet: str, mode: Mode, code: str
) -> None:
    world, _ = world_of(tmp_path, CHANGES[facet], rules=Rules(mode=mode))
    world.rounds(8)
    granted, clips = last(world)
    assert done(world.cluster) == []
    if facet == "alert" and mode is Mode.ADVISE:
        assert (granted, clips) == (["alert"], [])  # advice is what an alert is
    else:
        assert (granted, {code_ for _, code_ in clips}) == ([], {code})


@pytest.mark.parametrize("facet", ACTS)
def test_guard_cools_down_after_a_change(tmp_path: Path, facet: str) -> None:
    limits = (
        Limits(cool_down_s=0.0, machines_cool_down_s=1e6)
        if "machines" in facet
        else Limits(cool_down_s=1e6)
    )
    world, policy = world_of(tmp_path, CHANGES[facet], again=True, rules=Rules(limits=limits))
    # It goes on asking while the job cools down, too.
    policy.decide = _insistent(policy)  # type: ignore[method-assign]
    world.rounds(10)
    assert len(done(world.cluster)) <= 1
    assert world.journal is not None
    codes = {clip["code"] for row in world.journal.decisions() for clip in row.clips}
    assert "COOL_DOWN" in codes


def _insistent(policy: Proposes) -> Any:
    def decide(scene: Scene, state: State) -> Verdict:
        if JOB.id not in scene.statuses:
            return Verdict((), state)
        about = None if all(change.job is None for change in policy.changes) else JOB.id
        id_ = decision_id(scene, about)
        return Verdict((Decision(id_, about, policy.changes, "WHY", "It must."),), state)

    return decide


@pytest.mark.parametrize("facet", CHANGES)
def test_quiet_hours_hold_every_change_and_no_alert(tmp_path: Path, facet: str) -> None:
    quiet = Rules.of({"quiet_hours": ["00:00-12:00", "12:00-00:00"]})
    world, policy = world_of(tmp_path, CHANGES[facet], rules=quiet)
    policy.decide = _insistent(policy)  # type: ignore[method-assign]
    world.rounds(8)
    assert done(world.cluster) == []
    assert world.journal is not None
    codes = {clip["code"] for row in world.journal.decisions() for clip in row.clips}
    assert ("QUIET_HOURS" in codes) == (facet != "alert")


def test_machines_are_kept_while_their_slots_are_needed(tmp_path: Path) -> None:
    world, _ = world_of(tmp_path, CHANGES["remove_machines"], cluster=Able(slots=22))
    world.rounds(8)
    assert last(world) == ([], [("remove_machines", "SLOTS")])


def test_one_decision_a_round_changes_the_machines() -> None:
    scene = _cluster_scene()
    twice = [Decision(str(i), None, (MachinesAddition(1),), "WHY", "It must.") for i in range(2)]
    first, second = Guard(Rules()).review(scene, twice, {}, {})
    assert first.granted == (MachinesAddition(1),)
    assert second.clips == (Clip("SUPERSEDED", facet="add_machines"),)


def _cluster_scene() -> Scene:
    snapshot = Snapshot.empty(START_S, Layout.build([], machines=["m0", "m1"]))
    able = Capabilities(dict.fromkeys(Ability, How.LIVE))
    return Scene(1, Series((snapshot,)), {}, Cluster(able))


@pytest.mark.parametrize("facet", CHANGES)
def test_journal_has_what_was_asked_granted_and_wanted_before_it_is_done(
    tmp_path: Path, facet: str
) -> None:
    world, _ = world_of(tmp_path, CHANGES[facet])
    seen: list[int] = []
    apply = world.cluster.apply

    def looked(action: Action) -> Outcome:
        assert world.journal is not None
        seen.append(len(world.journal.decisions()))
        [open_action] = world.journal.open_actions()
        assert open_action.facets == (facet,)
        return apply(action)

    world.cluster.apply = looked  # type: ignore[method-assign]
    world.rounds(8)
    assert seen == ([] if facet == "alert" else [1])
    assert world.journal is not None
    [row] = world.journal.decisions()
    assert [proposal_from_json(data) for data in row.asked] == [CHANGES[facet]]
    assert [proposal_from_json(data) for data in row.granted] == [CHANGES[facet]]
    assert world.journal.open_actions() == ()


@pytest.mark.parametrize("facet", ACTS)
def test_engine_is_asked_for_what_was_granted_under_one_number(tmp_path: Path, facet: str) -> None:
    world, _ = world_of(tmp_path, CHANGES[facet])
    world.round()
    before = world.cluster.allocations[JOB.id]
    world.rounds(8)
    [action] = done(world.cluster)
    assert world.journal is not None
    [row] = world.journal.decisions()
    if facet in WANTED_STATE:
        change = CHANGES[facet]
        assert isinstance(action, Reallocate)
        changed = before.changed([change])  # type: ignore[list-item]
        assert action.allocation == changed.next_generation()
        return
    expected: dict[str, Action] = {
        "restart_instance": RestartInstance(f"{row.id}#0", JOB.id, "o1", 1),
        "restart_job": RestartJob(f"{row.id}#0", JOB.id),
        "add_machines": AddMachines(f"{row.id}#0", 2),
        "remove_machines": RemoveMachines(f"{row.id}#0", ("m1",)),
    }
    assert action == expected[facet]


def test_all_facets_of_a_job_in_one_decision_are_one_allocation(tmp_path: Path) -> None:
    wanted = [CHANGES[name] for name in WANTED_STATE]
    world, _ = world_of(tmp_path, *wanted)
    world.rounds(8)
    [action] = done(world.cluster)
    assert isinstance(action, Reallocate)
    allocation = action.allocation
    assert (allocation.parallelism, allocation.weights) == ({"o0": 2, "o1": 2}, {"o1": (1.0, 0.5)})
    assert (allocation.placement, allocation.groups) == ({"o1": ("m0", None)}, {"o1": GROUPS})
    assert allocation.batching_ms == {EDGE: 5.0}


@pytest.mark.parametrize(
    ("field", "facet", "code"),
    [
        ("batching_ms", "batching", "CANNOT_BATCHING"),
        ("placement", "placement", "UNKNOWN_MACHINE"),
        ("weights", "weights", "WEIGHTS_WITH_PLACEMENT"),
    ],
)
def test_what_the_engine_refuses_of_wanted_state_is_left_out_and_the_rest_is_done(
    tmp_path: Path, field: str, facet: str, code: str
) -> None:
    world, policy = world_of(tmp_path, CHANGES["parallelism"], CHANGES[facet])
    assert isinstance(world.cluster, Able)
    world.cluster.refuses = {field: code}
    world.rounds(8)
    [action] = done(world.cluster)
    assert isinstance(action, Reallocate)
    assert action.allocation.parallelism == {"o0": 2, "o1": 2}
    assert getattr(action.allocation, field) == {}
    rows = world.rows("SELECT status, code, facets FROM action ORDER BY id")
    assert [row[:2] for row in rows] == [("refused", code), ("done", "")]
    assert rows[1][2] == '["parallelism"]'
    [feedback] = policy.scenes[-1].feedback.values()
    assert [outcome.status for outcome in feedback.outcomes] == [Status.REFUSED, Status.DONE]
    assert feedback.applied
    assert not feedback.in_full
    sentences = " ".join(explain(world.journal, JOB.id)[0]["sentences"])  # type: ignore[arg-type]
    assert code in sentences


@pytest.mark.parametrize("facet", ACTS)
@pytest.mark.parametrize("status", [Status.DONE, Status.REFUSED, Status.FAILED, Status.UNKNOWN])
def test_outcome_is_kept_and_told_to_the_policy_by_the_id_of_its_decision(
    tmp_path: Path, facet: str, status: Status
) -> None:
    world, policy = world_of(tmp_path, CHANGES[facet])
    world.rounds(3)
    if status is not Status.DONE:
        world.cluster.fails = [status]
    while not world.rows("SELECT id FROM decision"):
        world.round()
    world.rounds(2)
    [id_] = [row[0] for row in world.rows("SELECT id FROM decision")]
    feedback = policy.scenes[-1].feedback[id_]
    assert feedback.granted == (CHANGES[facet],)
    # Wanted state whose outcome was unknown is found out by the next round.
    settled = status is Status.UNKNOWN and facet in WANTED_STATE
    assert [outcome.status for outcome in feedback.outcomes] == [Status.DONE if settled else status]
    [stored] = world.rows("SELECT status FROM action")
    assert stored == ("done" if settled else status.value,)


@pytest.mark.parametrize("facet", CHANGES)
def test_feedback_survives_the_daemon_and_ends_after_as_many_rounds_as_asked(
    tmp_path: Path, facet: str
) -> None:
    world, policy = world_of(tmp_path, CHANGES[facet])
    world.rounds(8)
    before = policy.scenes[-1].feedback
    assert len(before) == 1
    world.start()
    world.round()
    assert policy.scenes[-1].feedback == before
    policy.feedback_rounds = 3
    world.start()
    world.rounds(5)
    assert policy.scenes[-1].feedback == {}


@pytest.mark.parametrize("facet", ACTS)
def test_learned_cost_is_that_of_the_facet(tmp_path: Path, facet: str) -> None:
    world, _ = world_of(tmp_path, CHANGES[facet], rules=rules(watch_s=30.0))
    world.rounds(20)
    assert world.rows("SELECT job, ability, times FROM cost") == [(JOB.id, facet, 1)]
    record = world.controller.state.jobs[JOB.id]
    assert list(record.gap_s) == [Ability(facet)]


class Restarting(Able):
    """Reallocates by a restart, which takes four seconds."""

    def apply(self, action: Action) -> Outcome:
        outcome = super().apply(action)
        if isinstance(action, Reallocate) and outcome.status is Status.DONE:
            self.now_s += 4.0
            return replace(outcome, code="RESTARTED", message="It was restarted with more tasks.")
        return outcome


def test_learned_cost_of_a_change_that_needed_a_restart_is_that_of_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = rules(watch_s=30.0)
    world, _ = world_of(tmp_path, CHANGES["parallelism"], rules=limits, cluster=Restarting())
    began, watch = list[tuple[Ability, float]](), world.controller.costs.began

    def noted(job: str, ability: Ability, at_s: float) -> None:
        began.append((ability, at_s))
        watch(job, ability, at_s)

    monkeypatch.setattr(world.controller.costs, "began", noted)
    world.rounds(20)
    # From when the engine was asked: records stood before it answered.
    [(ended_s,)] = world.rows("SELECT ended_s FROM action")
    assert began == [(Ability.RESTART_JOB, ended_s - 4.0)]
    assert world.rows("SELECT job, ability, times FROM cost") == [(JOB.id, "restart_job", 1)]


@pytest.mark.parametrize("facet", CHANGES)
def test_repeats_with_the_same_answer_are_counted_and_others_are_news(
    tmp_path: Path, facet: str
) -> None:
    world, policy = world_of(tmp_path, CHANGES[facet], again=True)
    assert isinstance(world.cluster, Able)
    world.cluster.cannot = set(Ability)
    world.rounds(10)
    [(times,)] = world.rows("SELECT times FROM decision")
    assert times > 3
    policy.changes = (OTHERS[facet],)
    world.rounds(2)
    assert len(world.rows("SELECT id FROM decision")) == 2


# The same facets, with other values.
OTHERS: dict[str, Proposal] = {
    "parallelism": ParallelismChange(JOB.id, {"o0": 3}),
    "weights": WeightsChange(JOB.id, {"o1": (1.0, 0.25)}),
    "placement": PlacementChange(JOB.id, {"o1": ("m1", None)}),
    "key_groups": KeyGroupsChange(JOB.id, {"o1": GROUPS[::-1]}),
    "avoided_tasks": AvoidedTasksChange(JOB.id, {"o1": (0, 1)}),
    "batching": BatchingChange(JOB.id, {EDGE: 6.0}),
    "restart_instance": InstanceRestart(JOB.id, "o1", 0),
    "restart_job": JobRestart("ads/other"),
    "add_machines": MachinesAddition(1),
    "remove_machines": MachinesRemoval(("m0",)),
    "alert": replace(ALERT, code="OTHER"),
}


@pytest.mark.parametrize(
    ("facet", "words"),
    [
        ("parallelism", "o0 ×2"),
        ("weights", "weights of o1 1, 0.5"),
        ("placement", "o1 on m0, any machine"),
        ("key_groups", "key groups of o1 per instance 511, 512, 1 spread over all"),
        ("avoided_tasks", "o1 without task 0"),
        ("batching", "batching on in->o0 at most 5 ms"),
        ("restart_instance", "restart of o1[1]"),
        ("restart_job", f"restart of {JOB.id}"),
        ("add_machines", "2 machines more"),
        ("remove_machines", "removal of m1"),
        ("alert", "warning alert ADD_PARTITIONS: Readers are the limit. Add some."),
    ],
)
def test_explanation_names_what_was_done(tmp_path: Path, facet: str, words: str) -> None:
    assert describe_change(proposal_to_json(CHANGES[facet])) == words
    world, _ = world_of(tmp_path, CHANGES[facet])
    world.rounds(8)
    assert world.journal is not None
    [row] = world.journal.decisions()
    sentences = explain_one(row, world.journal.actions(row.id))["sentences"]
    assert any(words in sentence for sentence in sentences)
    if facet == "alert":
        assert any("raised" in sentence for sentence in sentences)
        kinds = {event.kind for event in world.journal.events()}
        assert "alert" in kinds
    else:
        assert "It was granted as asked." in sentences
        assert any(sentence.startswith("Done") for sentence in sentences)


@pytest.mark.parametrize("facet", CHANGES)
def test_replay_decides_the_same_from_the_recording(tmp_path: Path, facet: str) -> None:
    world, _ = world_of(tmp_path, CHANGES[facet], record=tmp_path / "recording")
    world.rounds(8)
    world.controller.recorder.close()  # type: ignore[union-attr]
    policy = Proposes(CHANGES[facet])
    rounds = list(replay(tmp_path / "recording", policy))
    assert all(replayed.same for replayed in rounds)
    decided: Sequence[Decision] = [d for replayed in rounds for d in replayed.decisions]
    assert [d.changes for d in decided] == [(CHANGES[facet],)]
    # What the policy learned of it is in the recording, too.
    [feedback] = policy.scenes[-1].feedback.values()
    assert feedback.granted == (CHANGES[facet],)
