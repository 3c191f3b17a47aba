"""Which machines go, and where their instances go."""

from dataclasses import replace

import pytest

from tests.policies.stela.model import SPAN_S, back, made_job, made_scene, named, out
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import MachinesRemoval, PlacementChange
from trilithon.policies.scene import Cluster, Scene
from trilithon.policies.stela import messages
from trilithon.policies.stela.planning import make_plan, preview, view_of
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.policies.stela.stela_policy import StelaPolicy

LINE = ("s>a", "a>b", "b>c", "c>k")
# b is congested, so a has an ETP of 0, b and c of 1. Instances: a on m0, b on m1 and m2, c on m3.
JOB = made_job("line", *LINE, counts={"b": 2})
SCENE = made_scene({JOB: {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}}, machines=4, new=0)


def test_the_machine_with_the_lowest_etp_sum_goes_and_its_instances_move_in_turn() -> None:
    request = back(1)
    plan = make_plan(view_of(SCENE, request, StelaParameters()), request, seed=0)
    assert plan.removed == ("m0",)
    assert plan.places == {"t/line": {"a": ["m1"]}}


def test_instances_whose_numbers_have_gaps_keep_their_places() -> None:
    """On Spark a placement chooses some of an operator's tasks."""
    scene = made_scene(
        {JOB: {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}},
        machines=2,
        new=0,
        indices={JOB.id: {"a": (3,), "b": (1, 6), "c": (0,)}},
    )
    request = back(1)
    plan = make_plan(view_of(scene, request, StelaParameters()), request, seed=0)
    (left,) = {"m0", "m1"} - {*plan.removed}
    assert {name: set(places) for name, places in plan.places[JOB.id].items()} == {
        name: {left} for name in plan.places[JOB.id]
    }
    assert len(plan.places[JOB.id]["b"]) == 2


def test_the_sums_are_computed_anew_after_each_machine_and_the_lowest_receives_first() -> None:
    wide = made_job("line", *LINE, counts={"a": 4, "b": 2, "c": 2})
    scene = made_scene({wide: {"s": 400.0, "a": 200.0, "b": 10.0, "c": 200.0}}, machines=3, new=0)
    request = back(2)
    view = view_of(scene, request, StelaParameters(refine="none"))
    first = make_plan(view, back(1), seed=0)
    # m0: a a c (1), m1: a b c (2), m2: a b (1). m0 goes: a to m2, a to m1, c to m2.
    assert first.removed == ("m0",)
    assert first.places["t/line"] == {"a": ["m2", "m1", "m2", "m1"], "c": ["m2", "m1"]}
    # m2 has 2 then, as m1, which comes before it. Without c it would have gone.
    plan = make_plan(view, request, seed=0)
    assert plan.removed == ("m0", "m1")
    assert [step.value for step in plan.steps] == pytest.approx([1.0, 2.0])
    everything = [m for by in plan.places["t/line"].values() for m in by]
    assert set(everything) == {"m2"}


def test_instances_of_fixed_operators_are_left_to_the_engine_and_the_plan_says_so() -> None:
    """The guard would refuse the whole decision: an operator that is fixed has no placement."""
    job = made_job("line", *LINE, counts={"a": 2, "b": 2}, fixed=("a",))
    scene = made_scene({job: {"s": 400.0, "a": 200.0, "b": 10.0, "c": 200.0}}, machines=2, new=0)
    request = back(1)
    view = view_of(scene, request, StelaParameters())
    assert any(key[1] == "a" for key in view.placement[make_plan(view, request, 0).removed[0]])
    plan = make_plan(view, request, seed=0)
    assert "a" not in plan.places.get(job.id, {})
    assert plan.notes == ("The engine itself moves the instances of t/line a: these are fixed.",)
    moving = view_of(scene, out(1), StelaParameters(strategy="default"))
    assert "a" not in make_plan(moving, out(1), seed=0).places[job.id]


def test_a_machine_that_the_projection_takes_instead_is_named_as_such() -> None:
    """a has the lowest ETPSum, but on the core of an instance of the bottleneck b it costs more
    than c does beside a.
    """
    rates = {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}
    scene = made_scene({JOB: rates}, machines=4, new=0, cores=1.0)
    request, parameters = back(1), StelaParameters()
    plain = make_plan(view_of(scene, request, StelaParameters(refine="none")), request, seed=0)
    assert (plain.removed, plain.exchanged) == (("m0",), ())
    plan = make_plan(view_of(scene, request, parameters), request, seed=0)
    (step,) = plan.exchanged
    assert (step.subject, step.instead_of, step.why) == ("m3", "m0", "exchanged by projection")
    assert plan.before_exchange == pytest.approx(plain.projected)
    sentence = messages.plan_sentence(request, plan, "stela")
    gain = f"{100 * (plan.projected / plain.projected - 1):+.1f} %"  # type: ignore[operator]
    assert sentence.startswith(
        "1 machine back on demand: m3, by the lowest ETPSum, then exchanged by projection, "
        f"{gain} (m3 instead of m0)."
    )
    assert "exchanged" not in messages.plan_sentence(request, plain, "stela")
    # The decision's numbers do not say that it was chosen by its ETPSum.
    policy = StelaPolicy(StelaParameters(window_s=SPAN_S))
    (decision,) = policy.decide(replace(scene, requests=(request,)), {}).decisions
    assert decision.numbers["1. m3 projected"] == pytest.approx(plan.projected)
    assert "1. m3 etp_sum" not in decision.numbers


@pytest.mark.parametrize("strategy", ["stela", "default"])
def test_each_step_says_what_would_be_left_after_it(strategy: str) -> None:
    rates = {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}
    scene = made_scene({JOB: rates}, machines=4, new=0, cores=1.0)
    data = preview(scene, back(2), StelaParameters(strategy=strategy))
    first, second = (step["projected_throughput"] for step in data["steps"])
    assert second == pytest.approx(data["projected_throughput_per_s"])
    assert first > second


@pytest.mark.parametrize("strategy", ["stela", "round_robin", "default", "descendants"])
@pytest.mark.parametrize("cores", [None, 1.0])
def test_machines_that_are_named_go_whatever_their_etp_sum(
    strategy: str, cores: float | None
) -> None:
    """Whoever else would choose, and though the projection gains by an exchange with cores."""
    rates = {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}
    scene = made_scene({JOB: rates}, machines=4, new=0, cores=cores)
    request, parameters = named("m3", "m2"), StelaParameters(strategy=strategy)
    view = view_of(scene, request, parameters)
    assert set(make_plan(view, back(2), seed=0).removed) != {"m2", "m3"}
    plan = make_plan(view, request, seed=0)
    assert (plan.removed, plan.exchanged) == (("m2", "m3"), ())
    # Nothing moves to the other one that goes; b was on m1 and m2, c on m3.
    assert plan.places == {"t/line": {"b": ["m1", "m0"], "c": ["m0"]}}
    assert [step.why for step in plan.steps] == ["named; its ETPSum is 1.000"] * 2
    said = messages.plan_sentence(request, plan, strategy)
    assert said.startswith("2 machines back on demand: m2, m3, as named. Instances of 2 operators")


def test_a_preview_of_named_machines_says_what_moves_where() -> None:
    data = preview(SCENE, named("m2", "m3"), StelaParameters())
    assert data["machines_to_remove"] == ["m2", "m3"]
    assert data["moves"] == [
        {"job": "t/line", "operator": "b", "instances": 1, "from": "m2", "to": "m0"},
        {"job": "t/line", "operator": "c", "instances": 1, "from": "m3", "to": "m0"},
    ]
    # An instance that is new comes from no machine.
    rates = {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}
    more = preview(made_scene({JOB: rates}, machines=4, new=1), out(), StelaParameters())
    assert more["parallelism"]
    assert more["moves"] == []


def test_a_name_that_no_machine_has_and_the_names_of_all_are_refused() -> None:
    policy = StelaPolicy(StelaParameters(window_s=SPAN_S))
    for request, code, words in (
        (named("m1", "m9"), "UNKNOWN_MACHINE", "no machine 'm9'. It has: m0, m1, m2, m3."),
        (named("m0", "m1", "m2", "m3"), "NOT_ENOUGH_MACHINES", "one must stay"),
    ):
        refused = preview(SCENE, request, policy.parameters)["hindrance"]
        assert refused["code"] == code
        assert words in refused["sentence"]
        # Such as one that was lost while the request waited.
        verdict = policy.decide(replace(SCENE, requests=(request,)), {})
        (decision,) = verdict.decisions
        assert decision.changes == ()
        names = ", ".join(request.machine_names)
        assert decision.sentence.startswith(f"Scale-in of {names} is not possible ({code}).")
        assert [ended.done for ended in verdict.closed] == [False]


def test_a_named_machine_is_removed_in_one_decision_with_what_moves() -> None:
    policy = StelaPolicy(StelaParameters(window_s=SPAN_S))
    verdict = policy.decide(replace(SCENE, requests=(named("m3"),)), {})
    (decision,) = verdict.decisions
    assert decision.on_demand
    assert decision.changes == (
        PlacementChange("t/line", {"c": ("m0",)}),
        MachinesRemoval(("m3",)),
    )
    assert decision.numbers["1. m3 etp_sum"] == pytest.approx(1.0)


def test_only_the_tasks_of_named_machines_are_missed() -> None:
    """m1 could go, though the machine that is needed least, m0, could not."""
    mixed = with_tasks(SCENE, 31, m0=20, m1=10, m2=10, m3=10)
    parameters = StelaParameters(window_s=SPAN_S)
    assert preview(mixed, back(1), parameters)["hindrance"]["code"] == "DOES_NOT_FIT"
    assert preview(mixed, named("m1"), parameters)["machines_to_remove"] == ["m1"]
    # Without waiting for measurements, as without names.
    unmeasured = StelaParameters(window_s=10 * SPAN_S)
    assert preview(mixed, named("m1"), unmeasured)["hindrance"]["code"] == "NOT_MEASURED"
    refused = preview(mixed, named("m0"), unmeasured)["hindrance"]
    assert refused["code"] == "DOES_NOT_FIT"
    assert refused["sentence"].startswith("Without m0 the machines run 30 tasks; jobs hold 31")


def test_across_jobs_an_etp_counts_by_the_priority_of_its_job() -> None:
    rates = {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}
    for low, high in (("x", "y"), ("y", "x")):
        jobs = {
            made_job(name, *LINE, priority=5 if name == high else 1): rates for name in ("x", "y")
        }
        # Instances of one job on m0 to m2, those of the other on m3 to m5; a's have no ETP.
        scene = made_scene(jobs, machines=6, new=0)
        request = back(4)
        view = view_of(scene, request, StelaParameters(refine="none"))
        went = make_plan(view, request, seed=0).removed
        assert {view.placement[name][0][1] for name in went[:2]} == {"a"}
        assert {view.placement[name][0][0] for name in went[2:]} == {f"t/{low}"}


def test_a_random_group_is_the_same_for_the_same_seed() -> None:
    request = back(2)
    view = view_of(SCENE, request, StelaParameters(strategy="default"))
    groups = {make_plan(view, request, seed).removed for seed in range(20)}
    assert len(groups) > 3
    assert make_plan(view, request, 7).removed == make_plan(view, request, 7).removed


def with_tasks(scene: Scene, used: int, **tasks: int) -> Scene:
    able = Capabilities(
        dict.fromkeys(Ability, How.LIVE), machine_tasks=tasks, tasks_used=used, tasks_spread=True
    )
    return replace(scene, cluster=Cluster(able))


def test_a_scale_in_that_leaves_too_few_tasks_is_refused_before_anything_moves() -> None:
    """The engine refused the removal only after the jobs had been moved."""
    request, policy = back(1), StelaPolicy(StelaParameters(window_s=SPAN_S))
    tight = with_tasks(SCENE, 31, m0=10, m1=10, m2=10, m3=10)
    refused = preview(tight, request, policy.parameters)["hindrance"]
    assert refused["code"] == "DOES_NOT_FIT"
    assert "the machines run 30 tasks; jobs hold 31" in refused["sentence"]
    verdict = policy.decide(replace(tight, requests=(request,)), {})
    assert [decision.changes for decision in verdict.decisions] == [()]
    assert verdict.closed[0].message.startswith("DOES_NOT_FIT")
    wide = with_tasks(SCENE, 30, m0=10, m1=10, m2=10, m3=10)
    assert preview(wide, request, policy.parameters)["machines_to_remove"] == ["m0"]
    # Some machine could go, but not the one that is needed least.
    mixed = with_tasks(SCENE, 31, m0=20, m1=10, m2=10, m3=10)
    assert preview(mixed, request, policy.parameters)["hindrance"]["code"] == "DOES_NOT_FIT"
    verdict = policy.decide(replace(mixed, requests=(request,)), {})
    assert verdict.closed[0].message.startswith("DOES_NOT_FIT: Without m0 the machines run 30")
    # An engine that does not say what its machines run is asked.
    unknown = with_tasks(SCENE, 31, m0=10)
    assert preview(unknown, request, policy.parameters)["hindrance"] is None


def test_a_dry_run_says_that_the_batches_of_all_jobs_end_when_a_machine_goes() -> None:
    """Idle tasks of every job run there, though the plan moves instances of one alone."""
    rates = {"s": 100.0, "a": 200.0, "b": 10.0, "c": 200.0}
    other = made_job("other", *LINE)
    scene = made_scene({JOB: rates, other: rates}, machines=8, new=0)
    tasks = dict.fromkeys(scene.machine_names, 10)
    data = preview(with_tasks(scene, 10, **tasks), back(1), StelaParameters())
    assert list(data["placement"]) == [JOB.id]
    assert "The batch of t/line, t/other ends once: tasks are placed then." in data["notes"]


def test_a_preview_ranks_machines_and_one_machine_must_stay() -> None:
    data = preview(SCENE, back(2), StelaParameters())
    assert [row["machine"] for row in data["ranking"]] == ["m0", "m1", "m2", "m3"]
    assert data["machines_to_remove"] == ["m0", "m1"]
    refused = preview(SCENE, back(4), StelaParameters())["hindrance"]
    assert refused["code"] == "NOT_ENOUGH_MACHINES"
