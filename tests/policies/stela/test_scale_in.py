"""Which machines go, and where their instances go."""

import pytest

from tests.policies.stela.model import back, made_job, made_scene
from trilithon.policies.stela.planning import make_plan, preview, view_of
from trilithon.policies.stela.stela_parameters import StelaParameters

LINE = ("s>a", "a>b", "b>c", "c>k")
# b is congested, so a has an ETP of 0, b and c of 1. Instances: a on m0, b on m1 and m2, c on m3.
JOB = made_job("line", *LINE, counts={"b": 2})
SCENE = made_scene({JOB: {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}}, machines=4, new=0)


def test_the_machine_with_the_lowest_etp_sum_goes_and_its_instances_move_in_turn() -> None:
    request = back(1)
    plan = make_plan(view_of(SCENE, request, StelaParameters()), request, seed=0)
    assert plan.removed == ("m0",)
    assert plan.places == {"t/line": {"a": ["m1"]}}


def test_the_sums_are_computed_anew_after_each_machine() -> None:
    wide = made_job("line", *LINE, counts={"a": 2, "b": 4})
    scene = made_scene({wide: {"s": 400.0, "a": 200.0, "b": 10.0, "c": 200.0}}, machines=3, new=0)
    request = back(2)
    plan = make_plan(view_of(scene, request, StelaParameters()), request, seed=0)
    # m0: a b c (2), m1: a b (1), m2: b b (2). m1 goes: a to m0, b to m2, so m0 2 and m2 3.
    assert plan.removed == ("m1", "m0")
    assert [step.value for step in plan.steps] == pytest.approx([1.0, 2.0])
    everything = [m for by in plan.places["t/line"].values() for m in by]
    assert set(everything) == {"m2"}


def test_a_random_group_is_the_same_for_the_same_seed() -> None:
    request = back(2)
    view = view_of(SCENE, request, StelaParameters(strategy="default"))
    groups = {make_plan(view, request, seed).removed for seed in range(20)}
    assert len(groups) > 3
    assert make_plan(view, request, 7).removed == make_plan(view, request, 7).removed


def test_a_preview_ranks_machines_and_one_machine_must_stay() -> None:
    data = preview(SCENE, back(2), StelaParameters())
    assert [row["machine"] for row in data["ranking"]] == ["m0", "m1", "m2", "m3"]
    assert data["machines_to_remove"] == ["m0", "m1"]
    refused = preview(SCENE, back(4), StelaParameters())["hindrance"]
    assert refused["code"] == "NOT_ENOUGH_MACHINES"
