"""Who gets new instances: by ETP, within limits, across jobs; and the strategies beside it."""

from dataclasses import replace

import pytest

from tests.policies.stela.model import SPAN_S, made_job, made_scene, out
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import MachinesAddition, ParallelismChange, PlacementChange
from trilithon.policies.scene import Scene
from trilithon.policies.stela import messages
from trilithon.policies.stela.planning import make_plan, preview, view_of
from trilithon.policies.stela.scaling_plan import ScalingPlan
from trilithon.policies.stela.stela_parameters import STRATEGIES, StelaParameters
from trilithon.policies.stela.stela_policy import StelaPolicy

LINE = ("s>a", "a>b", "b>c", "c>k")
RATES = {"s": 100.0, "a": 100.0, "b": 10.0, "c": 15.0}


def plan(
    scene: Scene, strategy: str = "stela", machines: int = 1, job: str | None = None, **given: str
) -> ScalingPlan:
    parameters = StelaParameters.of({"strategy": strategy, **given})
    request = out(machines, job)
    return make_plan(view_of(scene, request, parameters), request, seed=0)


def test_instances_go_to_the_bottleneck_and_follow_it_downstream() -> None:
    job = made_job("line", *LINE, counts={"a": 1, "b": 4, "c": 4})
    chosen = plan(made_scene({job: RATES}, machines=3))
    # 3 per machine: b reaches 60, which c with 4 · 15 just takes.
    assert [step.subject for step in chosen.steps] == ["t/line b", "t/line b", "t/line b"]
    assert chosen.throughput == pytest.approx(40)
    assert chosen.projected == pytest.approx(60)
    assert chosen.counts == {"t/line": {"b": 7}}


def test_new_instances_run_on_the_new_machines_only_and_the_others_stay() -> None:
    job = made_job("line", *LINE, counts={"b": 4, "c": 4})
    scene = made_scene({job: RATES}, machines=3, new=2)
    places = plan(scene, machines=2).places["t/line"]["b"]
    assert places[:4] == ["m1", "m2", "m0", "m1"]
    assert len(places) > 4
    assert places[4:] == [("m3", "m4")[i % 2] for i in range(len(places) - 4)]
    before = {key: machine.name for machine in scene.machines for key in machine.instances}
    assert [before["t/line", "b", i] for i in range(4)] == places[:4]


def test_an_operator_never_exceeds_its_maximum_and_a_fixed_one_never_changes() -> None:
    job = made_job("line", *LINE, counts={"b": 4, "c": 4}, most=5)
    chosen = plan(made_scene({job: RATES}, machines=3))
    assert all(count <= 5 for count in chosen.counts["t/line"].values())
    fixed = made_job("line", *LINE, counts={"b": 4, "c": 4}, fixed=("b",))
    assert "b" not in plan(made_scene({fixed: RATES}, machines=3)).counts.get("t/line", {})


def test_limits_of_job_tenant_and_cluster_hold_and_are_reported() -> None:
    job = made_job("line", *LINE, counts={"b": 4, "c": 4}, max_instances=10)
    chosen = plan(made_scene({job: RATES}, machines=3))
    assert len(chosen.steps) == 1
    assert "1 of 3 instances are given" in chosen.notes[0]
    free = made_job("line", *LINE, counts={"b": 4, "c": 4})
    assert len(plan(made_scene({free: RATES}, machines=3, quotas={"t": 11})).steps) == 2
    tight = made_scene({free: RATES}, machines=3, slots=9, slots_used=9)
    assert not plan(tight).steps


def test_a_first_operator_gets_the_instance_where_nothing_is_congested() -> None:
    job = made_job("line", *LINE)
    calm = plan(made_scene({job: {"s": 5.0, "a": 100, "b": 100, "c": 100}}, machines=3))
    assert [step.subject for step in calm.steps] == ["t/line a"]


FORK = ("s>a", "a>k1", "s>b", "b>k2")


def test_a_sink_counts_by_its_weight() -> None:
    rates = {"s": 100.0, "a": 10.0, "b": 20.0}
    alike = made_job("fork", *FORK)
    assert plan(made_scene({alike: rates}, machines=2), refine="none").steps[0].subject == (
        "t/fork b"
    )
    weighted = made_job("fork", *FORK, weights={"k1": 3.0})
    assert plan(made_scene({weighted: rates}, machines=2), refine="none").steps[0].subject == (
        "t/fork a"
    )


def test_the_printed_etp_counts_a_sink_once_per_path() -> None:
    """Two paths lead to k1, which gets 20 records a second; k2 gets 30 over one path."""
    edges = ("s>a", "a>b", "a>c", "b>d", "c>d", "d>k1", "s>e", "e>k2")
    rates = {"s": 100.0, "a": 10.0, "b": 100.0, "c": 100.0, "d": 100.0, "e": 30.0}
    scene = made_scene({made_job("two", *edges): rates}, machines=6)
    assert plan(scene, refine="none").steps[0].subject == "t/two e"
    assert plan(scene, refine="none", etp="printed").steps[0].subject == "t/two a"


def test_an_operator_that_is_only_held_back_is_not_congested() -> None:
    """a takes 10 of 100 records a second, since b holds it back for nine tenths of the time."""
    job = made_job("held", "s>a", "a>b", "b>k1", "a>c", "c>k2", weights={"k2": 5.0})
    rates = {"s": 100.0, "a": 100.0, "b": 10.0, "c": 100.0}
    scene = made_scene({job: rates}, machines=4, back_pressure={"a>b": 0.9})
    ranking = {row["operator"]: row for row in preview(scene, out(), StelaParameters())["ranking"]}
    assert ranking["a"]["could_take_per_s"] > ranking["a"]["input_per_s"] / 1.2
    assert [name for name, row in ranking.items() if row["congested"]] == ["b"]
    assert plan(scene, refine="none").steps[0].subject == "t/held b"


def test_who_is_congested_and_at_its_maximum_is_named_with_what_helps() -> None:
    job = made_job("line", *LINE, counts={"a": 4, "b": 4, "c": 4}, most=4)
    short, full = plan(made_scene({job: RATES}, machines=3), refine="none").notes
    assert short.startswith("0 of 4 instances are given")
    assert full == (
        "Still congested: t/line b with 4 instances, its maximum: `trilithon job apply` with a "
        "higher `parallelism.max` of b restarts the job once."
    )


def test_who_is_at_its_maximum_is_named_though_others_get_all_instances() -> None:
    tight = made_job("tight", *LINE, counts={"a": 2, "b": 4, "c": 2}, most=4)
    scene = made_scene({tight: RATES}, machines=4)
    chosen = plan(scene, refine="none")
    assert len(chosen.steps) == 2
    assert [note.partition(",")[0] for note in chosen.notes] == [
        "Still congested: t/tight b with 4 instances"
    ]
    # One that is not congested is not named.
    rates = {"s": 100.0, "a": 200.0, "b": 200.0, "c": 200.0}
    assert plan(made_scene({tight: rates}, machines=4), refine="none").notes == ()


def test_who_keeps_state_that_the_engine_cannot_divide_is_named_with_what_helps() -> None:
    job = made_job("line", *LINE, counts={"a": 2, "b": 2, "c": 2})
    scene = made_scene({job: RATES}, machines=3)
    statuses = {job.id: replace(scene.statuses[job.id], fixed=frozenset({"b"}))}
    (note,) = plan(replace(scene, statuses=statuses)).notes
    assert "t/line b with 2 instances, all of its tasks, since it keeps state" in note
    assert "a higher `parallelism.initial` of b restarts the job once" in note
    own = made_job("line", *LINE, counts={"a": 2, "b": 2, "c": 2}, fixed=("b",))
    (note,) = plan(made_scene({own: RATES}, machines=3)).notes
    assert "t/line b with 2 instances, which its job declares as `fixed`" in note


def test_what_an_engine_cannot_place_is_said_in_the_preview() -> None:
    """Spark spreads an operator's tasks over all machines when a batch begins."""
    job = made_job("line", *LINE, counts={"a": 1, "b": 4, "c": 4})
    spread = Capabilities(dict.fromkeys(Ability, How.LIVE), tasks_spread=True)
    scene = made_scene({job: RATES}, machines=3, capabilities=spread)
    notes = preview(scene, out(), StelaParameters(), newer=("m3",))["notes"]
    assert "The batch of t/line ends once: tasks are placed then." in notes
    assert (
        "Of the 8 tasks of t/line b, m3 gets about 2: 1 of the 3 instances there may run elsewhere."
        in notes
    )
    assert preview(made_scene({job: RATES}, machines=3), out(), StelaParameters())["notes"] == []


def test_of_two_jobs_the_one_with_less_of_its_own_maximum_comes_first() -> None:
    poor = made_job("poor", *LINE)
    rich = made_job("rich", *LINE)
    rates = {"s": 1000.0, "a": 1000.0, "b": 700.0, "c": 1000.0}
    scene = made_scene({rich: rates, poor: {**rates, "b": 100.0}}, machines=6)
    # Ten times the throughput of the other, and less of what it could have: 10 % against 70 %.
    assert plan(scene).steps[0].subject == "t/poor b"


def test_priority_weighs_what_jobs_lack() -> None:
    low = made_job("low", *LINE, priority=1)
    high = made_job("high", *LINE, priority=5)
    rates = {"s": 1000.0, "a": 1000.0, "b": 400.0, "c": 1000.0}
    scene = made_scene({low: {**rates, "b": 100.0}, high: rates}, machines=6)
    # Lacks 90 % · 1/5 against 60 % · 1.
    assert plan(scene).steps[0].subject == "t/high b"
    assert plan(scene, job="t/low").steps[0].subject == "t/low b"


def test_instances_are_exchanged_within_a_job_where_the_projection_gains() -> None:
    # b is 10 % short of what comes, too little to be called congested; c has no need.
    job = made_job("line", *LINE, counts={"b": 2, "c": 2}, most=4)
    scene = made_scene({job: {"s": 100.0, "a": 100.0, "b": 45.0, "c": 200.0}}, machines=5)
    assert plan(scene, refine="none").steps[0].subject == "t/line a"
    refined = plan(scene)
    assert refined.steps[0].subject == "t/line b"
    assert refined.projected == pytest.approx(100)
    # People are told that ETP did not choose it.
    (step,) = refined.exchanged
    assert (step.subject, step.instead_of, step.why) == (
        *("t/line b", "t/line a"),
        "exchanged by projection",
    )
    assert messages.plan_sentence(out(), refined, "stela") == (
        "1 machine more on demand; instances by ETP, then exchanged by projection, +11.1 % "
        "(t/line b instead of t/line a): 1 for t/line b."
    )
    (first,) = plan(scene, refine="none").steps
    assert first.why == "none that may grow is congested, reads a source"


def test_the_printed_projection_takes_a_child_with_time_to_spare_for_congested() -> None:
    job = made_job("line", *LINE, counts={"b": 4, "c": 4}, most=12)
    scene = made_scene({job: {"s": 1000.0, "a": 1000.0, "b": 10.0, "c": 1000.0}}, machines=3)
    assert {step.subject for step in plan(scene).steps} == {"t/line b"}
    printed = {step.subject for step in plan(scene, projection="printed", refine="none").steps}
    assert printed == {"t/line b", "t/line c"}


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s not in {"stela", "round_robin"}])
def test_alternatives_migrate_and_create_nothing(strategy: str) -> None:
    job = made_job("line", *LINE, counts={"b": 4, "c": 4})
    chosen = plan(made_scene({job: RATES}, machines=3), strategy)
    assert not chosen.counts
    assert chosen.places
    on_new = [m for by in chosen.places["t/line"].values() for m in by if m == "m3"]
    assert len(on_new) == (3 if strategy != "default" else 2)


@pytest.mark.parametrize(
    ("strategy", "first"),
    [
        ("distance_from_source", "a"),
        ("distance_to_sink", "c"),
        ("descendants", "a"),
        ("centrality", "a"),
        ("most_link_load", "a"),
        ("least_link_load", "d"),
    ],
)
def test_each_alternative_has_its_own_idea_of_what_matters(strategy: str, first: str) -> None:
    job = made_job("fan", "s>a", "a>b", "a>c", "b>d", "d>k", "c>j")
    rates = {"s": 100.0, "a": 90.0, "b": 60.0, "c": 40.0, "d": 60.0}
    chosen = plan(made_scene({job: rates}, machines=4), strategy)
    assert chosen.steps[0].subject == f"t/fan {first}[0]"


def test_the_fair_rival_gives_as_many_instances_in_turn() -> None:
    job = made_job("line", *LINE, counts={"b": 4, "c": 4})
    chosen = plan(made_scene({job: RATES}, machines=3), "round_robin")
    assert chosen.counts == {"t/line": {"a": 2, "b": 5, "c": 5}}


def test_a_preview_shows_ranking_steps_and_plan_and_names_machines_that_are_not_there() -> None:
    job = made_job("line", *LINE, counts={"b": 4, "c": 4})
    data = preview(made_scene({job: RATES}, machines=3, new=0), out(), StelaParameters())
    assert data["hindrance"] is None
    assert data["machines_to_add"] == 1
    assert [row["operator"] for row in data["ranking"]] == ["b", "c", "a"]
    assert data["ranking"][0]["etp"] == 1
    assert data["parallelism"] == {"t/line": {"b": [4, 7]}}
    assert data["placement"]["t/line"]["b"][4:] == ["new machine 1"] * 3


def test_a_machine_that_was_added_for_a_request_is_new_though_instances_run_there() -> None:
    """Spark moves tasks to a new executor when a batch begins, which may be before the next round:
    the request then waited for a machine without instances until its time was over.
    """
    job = made_job("j", "s>a", "a>b", "b>k", counts={"a": 4, "b": 4})
    rates = {"s": 1000.0, "a": 400.0, "b": 50.0}
    request, policy = out(), StelaPolicy(StelaParameters(window_s=SPAN_S))
    asked = policy.decide(made_scene({job: rates}, machines=4, new=0, requests=(request,)), {})
    assert asked.decisions[0].changes == (MachinesAddition(1),)
    # The fifth machine has come, and some of the instances are on it already.
    scene = made_scene({job: rates}, machines=5, new=0, requests=(request,))
    (decision,) = policy.decide(scene, asked.state).decisions
    changes = {type(change): change for change in decision.changes}
    # Two instances: as many as a machine had before.
    assert changes[ParallelismChange] == ParallelismChange("t/j", {"b": 6})
    placement = changes[PlacementChange]
    assert isinstance(placement, PlacementChange)
    assert placement.placement["b"][4:] == ("m4", "m4")
    # A machine that was there before and is not empty is no new one.
    assert policy.decide(scene, {}).decisions[0].changes == (MachinesAddition(1),)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_instances_whose_numbers_have_gaps_are_placed(strategy: str) -> None:
    """An engine that places instances by choosing some of its tasks leaves gaps."""
    job = made_job("line", *LINE, counts={"b": 2, "c": 2})
    numbers = {"t/line": {"a": [3], "b": [0, 3], "c": [1, 2]}}
    chosen = plan(made_scene({job: RATES}, machines=2, indices=numbers), strategy)
    sizes = {name: len(places) for name, places in chosen.places["t/line"].items()}
    counts = {"a": 1, "b": 2, "c": 2, **chosen.counts.get("t/line", {})}
    assert sizes == {name: counts[name] for name in sizes}
