"""Requests for machines, by number or by name, are carried out whole, or refused with a reason."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.control.scaling_scene import JOBS, World, measured_world
from trilithon.control.explain import explain, explain_cluster
from trilithon.control.journal import Journal
from trilithon.control.recorder import RecordingFolder
from trilithon.control.replay import replay
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.errors import NotFound, Refused, TrilithonError
from trilithon.model.action import Action, Outcome, Reallocate, RemoveMachines, Status
from trilithon.model.capability import Ability, How
from trilithon.model.change import MachinesRemoval
from trilithon.policies.registry import policy
from trilithon.policies.requests import ScalingKind


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield from measured_world(tmp_path)


def test_new_machines_are_added_and_used_by_all_jobs_in_one_decision(world: World) -> None:
    before = world.allocations
    world.commands.scale(ScalingKind.OUT, 1)
    world.rounds(4)
    assert world.ended == [True]
    assert world.engine.machines.names() == ["m0", "m1", "m2", "m3", "m4"]
    grown = sum(sum(counts.values()) for counts, _ in world.allocations.values())
    assert grown == sum(sum(counts.values()) for counts, _ in before.values()) + 8  # ⌈30 / 4⌉
    new = [m for _, places in world.allocations.values() for by in places.values() for m in by]
    assert new.count("m4") == 8


def test_one_request_is_done_after_the_other(world: World) -> None:
    world.commands.scale(ScalingKind.OUT, 1)
    world.commands.scale(ScalingKind.IN, 1)
    world.rounds(16)
    assert world.ended == [True, True]
    assert len(world.engine.machines.names()) == 4
    assert isinstance(world.engine, SimulatedEngine)


def test_where_a_start_disturbs_others_instances_are_given_after_a_calm_while(
    tmp_path: Path,
) -> None:
    parameters = {"window_s": 20.0, "settle_s": 30.0, "calm_s": 60.0}
    world = World(tmp_path, policy("stela", parameters))
    world.rounds(8)
    before = world.allocations
    world.commands.scale(ScalingKind.OUT, 1)
    world.rounds(6)
    assert "m4" in world.engine.machines.names()
    assert world.allocations == before
    status = world.deciding.status(
        world.controller.scene,  # type: ignore[arg-type]
        world.controller.state.policy_state,
    )
    assert status["hindrance"].startswith("CALM")
    world.rounds(4)
    assert world.ended == [True]
    assert world.allocations != before
    assert world.journal is not None
    world.journal.close()


def test_predicted_and_realised_throughput_are_kept_and_explained(world: World) -> None:
    world.commands.scale(ScalingKind.OUT, 1)
    world.rounds(12)
    (action,) = world.deciding.status(
        world.controller.scene,  # type: ignore[arg-type]
        world.controller.state.policy_state,
    )["actions"]
    assert action["realised"] > action["before"]
    assert action["realised"] == pytest.approx(action["predicted"], rel=0.5)
    assert world.journal is not None
    lines = [line for entry in explain_cluster(world.journal) for line in entry["sentences"]]
    assert any("was predicted, and" in line for line in lines)
    assert any("It expected throughput of at least" in line and "it was" in line for line in lines)


def test_a_prediction_that_another_action_overtakes_is_superseded(world: World) -> None:
    """The throughput after a scale-in was once taken for that of the scale-out before it."""
    world.commands.scale(ScalingKind.OUT, 1)
    world.rounds(4)
    world.commands.scale(ScalingKind.IN, 1)
    world.rounds(12)
    assert world.ended == [True, True]
    out, back = world.deciding.status(
        world.controller.scene,  # type: ignore[arg-type]
        world.controller.state.policy_state,
    )["actions"]
    assert (out["kind"], out["realised"]) == ("scale_out", None)
    assert out["superseded"]
    assert (back["kind"], "superseded" in back) == ("scale_in", False)
    assert back["realised"] > 0
    assert world.journal is not None
    entries = explain_cluster(world.journal)
    said = [each for each in entries if each["reason"] == "PREDICTION_SUPERSEDED"]
    assert len(said) == 1
    assert "is superseded: " in said[0]["sentences"][0]
    assert [each["reason"] for each in entries].count("PREDICTION_CHECKED") == 1


def test_what_one_job_got_is_explained_with_that_job(world: World) -> None:
    world.commands.scale(ScalingKind.OUT, 1, "papers/star")
    world.rounds(12)
    assert world.journal is not None
    reasons = [entry["reason"] for entry in explain(world.journal, "papers/star")]
    assert {"SCALE_OUT", "PREDICTION_CHECKED"} <= set(reasons), reasons


def test_what_a_job_got_of_a_scale_out_for_all_is_explained_with_it_and_no_other_is_named(
    world: World,
) -> None:
    """The decision is about the cluster, and `explain JOB` had nothing of it."""
    world.commands.scale(ScalingKind.OUT, 1)
    world.rounds(4)
    assert world.journal is not None
    for job, other in (JOBS, JOBS[::-1]):
        grown = {
            operator: count
            for change in _granted(world.journal)
            if change["change"] == "parallelism" and change["job"] == job
            for operator, count in change["parallelism"].items()
        }
        assert grown
        shared = [each for each in explain(world.journal, job) if each["reason"] == "SCALE_OUT"]
        assert len(shared) == 1
        for operator, count in grown.items():
            assert f"{operator} ×{count}" in shared[0]["sentences"][0]
        assert shared[0]["numbers"]
        assert any(line.startswith("Done") for line in shared[0]["sentences"])
        assert other not in json.dumps(shared)
        # Numbers of all jobs together are in the cluster's explanation only.
        assert "throughput_per_s" not in shared[0]["numbers"]
    whole = next(e for e in explain_cluster(world.journal) if e["reason"] == "SCALE_OUT")
    assert all(job in json.dumps(whole) for job in JOBS)


def _granted(journal: Journal) -> list[dict[str, Any]]:
    entries = explain_cluster(journal)
    return next(entry["granted"] for entry in entries if entry["reason"] == "SCALE_OUT")


def test_a_job_that_a_decision_about_the_cluster_left_alone_has_nothing_of_it(
    world: World,
) -> None:
    assert world.journal is not None
    world.commands.scale(ScalingKind.OUT, 1, "papers/star")
    world.rounds(4)
    assert world.journal.shared_decisions("papers/diamond") == ()
    # With a job it is that job's own decision, and is listed once.
    reasons = [entry["reason"] for entry in explain(world.journal, "papers/star")]
    assert reasons.count("SCALE_OUT") == 1


def test_predicted_and_realised_throughput_of_a_scale_in_are_kept(world: World) -> None:
    world.commands.scale(ScalingKind.IN, 1)
    world.rounds(12)
    assert world.journal is not None
    lines = [line for entry in explain_cluster(world.journal) for line in entry["sentences"]]
    assert any("was predicted, and" in line for line in lines)


def test_a_machine_with_instances_of_a_fixed_operator_goes_too(tmp_path: Path) -> None:
    """Where state cannot be divided anew, a placement of it would be refused, and all with it."""
    world = World(tmp_path)
    all_ = tuple(operator.name for operator in world.engine.jobs()["papers/star"].job.operators)
    fixed = replace(world.engine.capabilities(), fixed={"papers/star": all_[:2]})
    world.engine.capabilities = lambda: fixed  # type: ignore[method-assign]
    world.rounds(8)
    (machine, *_) = world.commands.preview(ScalingKind.IN, 1)["machines_to_remove"]
    instances_on = {m.name: m.instances for m in world.controller.scene.machines}  # type: ignore[union-attr]
    assert any(
        key[:2] in {("papers/star", name) for name in all_[:2]} for key in instances_on[machine]
    )
    world.commands.scale(ScalingKind.IN, 1)
    world.rounds(4)
    assert world.ended == [True]
    assert machine not in world.engine.machines.names()
    assert world.journal is not None
    world.journal.close()


def test_a_dry_run_changes_nothing_at_all(world: World) -> None:
    assert world.journal is not None
    dump = "\n".join(world.journal.database._connection.iterdump())
    before, state = world.allocations, dict(world.controller.state.policy_state)
    applied: list[Action] = []
    world.engine.apply = applied.append  # type: ignore[assignment, method-assign]
    for kind in ScalingKind:
        shown = world.commands.preview(kind, 1)
        assert shown["hindrance"] is None
        assert shown["ranking"]
        assert shown["steps"]
    assert not applied
    assert world.allocations == before
    assert world.controller.state.policy_state == state
    assert not world.controller.state.requests
    assert "\n".join(world.journal.database._connection.iterdump()) == dump


def test_what_can_never_be_done_is_refused_at_once(world: World) -> None:
    with pytest.raises(Refused, match="one must stay"):
        world.commands.scale(ScalingKind.IN, 4)
    with pytest.raises(Refused, match="1 or more"):
        world.commands.scale(ScalingKind.OUT, 0)
    with pytest.raises(NotFound, match="There is no job 'x/y'"):
        world.commands.scale(ScalingKind.OUT, 1, "x/y")
    assert world.ended == []


def test_named_machines_go_and_no_others_and_the_names_are_journaled(world: World) -> None:
    (least,) = world.commands.preview(ScalingKind.IN, 1)["machines_to_remove"]
    names = tuple(name for name in world.engine.machines.names() if name != least)[:2]
    shown = world.commands.preview(ScalingKind.IN, machine_names=names)
    assert (shown["machines"], shown["machine_names"]) == (2, list(names))
    assert set(shown["machines_to_remove"]) == set(names)
    assert {move["from"] for move in shown["moves"]} == set(names)
    assert not {move["to"] for move in shown["moves"]} & set(names)
    request = world.commands.scale(ScalingKind.IN, machine_names=names)
    assert (request.machines, request.machine_names) == (2, names)
    assert world.journal is not None
    assert world.journal.open_requests() == (request,)
    (said,) = [event.text for event in world.journal.events() if event.kind == "requested"]
    assert said == f"scale-in of {', '.join(names)} requested: {request.id}"
    world.start()
    assert world.controller.state.requests == [request]
    world.rounds(4)
    assert world.ended == [True]
    assert set(world.engine.machines.names()) == {"m0", "m1", "m2", "m3"} - set(names)
    entry = next(e for e in explain_cluster(world.journal) if e["reason"] == "SCALE_IN")
    assert ", as named. Instances of" in entry["sentences"][0]


def test_names_that_contradict_the_cluster_or_the_number_change_nothing(world: World) -> None:
    before, machines = world.allocations, world.engine.machines.names()
    for count, names, code, words in (
        (None, (), "NOT_UNDERSTOOD", "No number of machines, and none is named"),
        (3, ("m1", "m2"), "NOT_UNDERSTOOD", "3 machines are asked for, and 2 named: m1, m2"),
        (2, ("m1", "m1"), "NOT_UNDERSTOOD", "'m1': named more than once"),
        (None, ("m1", "m7"), "UNKNOWN_MACHINE", "no machine 'm7'. It has: m0, m1, m2, m3."),
        (None, tuple(machines), "NOT_ENOUGH_MACHINES", "one must stay"),
    ):
        with pytest.raises(TrilithonError, match=re.escape(words)) as refused:
            world.commands.scale(ScalingKind.IN, count, machine_names=names)
        assert refused.value.code == code
        assert "Nothing was changed." in refused.value.hint
        if code == "NOT_ENOUGH_MACHINES":  # the dry run says why not, as without names
            shown = world.commands.preview(ScalingKind.IN, count, machine_names=names)
            assert shown["hindrance"]["code"] == code
            continue
        with pytest.raises(TrilithonError, match=re.escape(words)):
            world.commands.preview(ScalingKind.IN, count, machine_names=names)
    world.rounds(4)
    assert world.ended == []
    assert (world.allocations, world.engine.machines.names()) == (before, machines)


def test_no_machine_is_removed_by_name_before_the_first_round(tmp_path: Path) -> None:
    """The controller does not know the machines yet."""
    world = World(tmp_path)
    with pytest.raises(NotFound, match="no measurements yet"):
        world.commands.scale(ScalingKind.IN, machine_names=("m1",))
    assert world.ended == []
    assert world.journal is not None
    world.journal.close()


def test_if_a_named_machine_cannot_be_removed_instances_are_where_they_were(world: World) -> None:
    before = world.allocations
    _refuse_once(world, RemoveMachines)
    world.commands.scale(ScalingKind.IN, machine_names=("m3",))
    world.rounds(4)
    assert world.ended == [False]
    assert world.allocations == before
    assert len(world.engine.machines.names()) == 4


def test_a_machine_that_is_lost_while_its_removal_waits_takes_no_other_with_it(
    world: World,
) -> None:
    before = world.allocations
    world.commands.scale(ScalingKind.IN, machine_names=("m3", "m1"))
    assert world.engine.apply(RemoveMachines("lost", ("m3",))).changed
    world.rounds(2)
    assert world.ended == [False]
    assert world.journal is not None
    (row,) = world.journal.requests(1)
    assert row.message.startswith("UNKNOWN_MACHINE: The cluster has no machine 'm3'.")
    assert "m1" in world.engine.machines.names()
    assert world.allocations.keys() == before.keys()


def test_a_recorded_request_with_names_is_decided_again_byte_for_byte(tmp_path: Path) -> None:
    world = World(tmp_path)
    recorder = RecordingFolder(tmp_path / "recording")
    world.controller.recorder = recorder
    world.rounds(8)
    world.commands.scale(ScalingKind.IN, machine_names=("m3",))
    world.rounds(4)
    recorder.close()
    rounds = list(replay(tmp_path / "recording", world.deciding))
    assert all(replayed.same for replayed in rounds)
    removed = [
        change.machines
        for replayed in rounds
        for decision in replayed.decisions
        for change in decision.changes
        if isinstance(change, MachinesRemoval)
    ]
    assert removed == [("m3",)]
    assert world.journal is not None
    world.journal.close()


def test_an_engine_that_cannot_change_machines_refuses_with_the_next_step(world: World) -> None:
    how = {**world.engine.character.how}
    how[Ability.ADD_MACHINES] = how[Ability.REMOVE_MACHINES] = How.NOT_AT_ALL
    world.engine.character = replace(world.engine.character, how=how)
    world.rounds(1)
    with pytest.raises(Refused, match="start them, then repeat the command"):
        world.commands.scale(ScalingKind.OUT, 1)
    with pytest.raises(Refused, match="cannot remove machines"):
        world.commands.scale(ScalingKind.IN, 1)
    notes = world.commands.preview(ScalingKind.IN, 1)["notes"]
    assert any("cannot remove machines" in note for note in notes)
    assert world.ended == []


def test_without_stela_a_request_is_refused_and_a_dry_run_still_answers(tmp_path: Path) -> None:
    world = World(tmp_path, policy("threshold"))
    world.rounds(8)
    with pytest.raises(Refused, match="does not carry out requests"):
        world.commands.scale(ScalingKind.OUT, 1)
    shown = world.commands.preview(ScalingKind.OUT, 1)
    assert shown["carried_out_by"] is None
    assert world.journal is not None
    world.journal.close()


def test_a_machine_goes_after_its_instances_have_moved(world: World) -> None:
    world.commands.scale(ScalingKind.IN, 1)
    world.rounds(4)
    assert world.ended == [True]
    assert len(world.engine.machines.names()) == 3
    assert all(m.instances for m in world.controller.scene.machines)  # type: ignore[union-attr]


def _refuse_once(world: World, refused: type[Any], job: str = "") -> None:
    """The engine refuses the first action of this type, of this job."""
    apply, left = world.engine.apply, [True]

    def refusing(action: Action) -> Outcome:
        if left and isinstance(action, refused) and getattr(action, "job", "") == job:
            left.pop()
            return Outcome(Status.REFUSED, "TOLD_TO", "It was told to.")
        return apply(action)

    world.engine.apply = refusing  # type: ignore[method-assign]


def test_if_the_engine_refuses_one_job_the_others_are_as_before(world: World) -> None:
    before = world.allocations
    _refuse_once(world, Reallocate, max(JOBS))
    world.commands.scale(ScalingKind.OUT, 1)
    world.rounds(5)
    assert world.ended == [False]
    assert world.allocations == before
    world.rounds(12)  # the back-off after a refusal
    world.commands.scale(ScalingKind.OUT, 1)
    world.rounds(6)
    assert world.ended == [False, True]
    # The machine of the first attempt is used: none is added again.
    assert len(world.engine.machines.names()) == 5


def test_if_machines_cannot_be_removed_instances_are_where_they_were(world: World) -> None:
    before = world.allocations
    _refuse_once(world, RemoveMachines)
    world.commands.scale(ScalingKind.IN, 1)
    world.rounds(4)
    assert world.ended == [False]
    assert world.allocations == before
    assert len(world.engine.machines.names()) == 4
