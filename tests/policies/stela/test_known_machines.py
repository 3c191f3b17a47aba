"""Which machines are new, and how many instances they bring, where an engine spreads tasks."""

from dataclasses import replace
from typing import Any

import pytest

from tests.policies.stela.model import SPAN_S, made_job, made_scene, out
from trilithon.model.action import Outcome, Status
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.change import MachinesAddition
from trilithon.policies.decision import Decision
from trilithon.policies.feedback import Clip, Feedback
from trilithon.policies.scene import Cluster, Scene
from trilithon.policies.stela.planning import make_plan, preview, view_of
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.policies.stela.stela_policy import StelaPolicy

SPREAD = Capabilities(dict.fromkeys(Ability, How.LIVE), tasks_spread=True)
# The cluster of somebody else.
NO_START = replace(SPREAD, how={**SPREAD.how, Ability.ADD_MACHINES: How.NOT_AT_ALL})
FOUR = made_job("four", "s>a", "a>b", "b>c", "c>d", "d>k", counts=dict.fromkeys("abcd", 2), most=4)
FOUR_RATES = {"s": 250.0, "a": 1000.0, "b": 1000.0, "c": 48.0, "d": 1000.0}


@pytest.mark.parametrize("strategy", ["stela", "round_robin"])
def test_an_old_machine_that_runs_no_instance_by_chance_counts_in_the_average(
    strategy: str,
) -> None:
    """Spark began a batch of Linear after the third executor had come. The instances, the first two
    of four tasks each, came to the new one and one of the old. Eight instances by one old machine
    gave eight to whoever divided, and the fair rival's division was as good as Stela's.
    """
    scene = made_scene({FOUR: FOUR_RATES}, machines=3, new=0, runs_on=(0, 2), capabilities=SPREAD)
    parameters = StelaParameters(strategy=strategy)
    plan = make_plan(view_of(scene, out(), parameters, newer=("m2",)), out(), seed=0)
    assert len(plan.steps) == 4
    given = {name: count - 2 for name, count in plan.counts[FOUR.id].items()}
    assert given["c"] == (1 if strategy == "round_robin" else 2)
    # All of them run on the new machine, not on the one without instances.
    placed = [m for places in plan.places[FOUR.id].values() for m in places[2:]]
    assert set(placed) == {"m2"}


def test_an_old_machine_that_runs_no_instance_by_chance_is_no_new_one() -> None:
    policy, request = StelaPolicy(StelaParameters(window_s=SPAN_S)), out()
    scene = made_scene(
        {FOUR: FOUR_RATES},
        machines=2,
        new=0,
        runs_on=(0,),
        capabilities=SPREAD,
        requests=(request,),
    )
    (decision,) = policy.decide(scene, {}).decisions
    assert decision.changes == (MachinesAddition(1),)
    # Where the engine cannot start machines, it is used.
    data = preview(replace(scene, cluster=Cluster(NO_START)), request, policy.parameters)
    assert {m for places in data["placement"][FOUR.id].values() for m in places[2:]} == {"m1"}


def feedback(decision: Decision, **what: Any) -> Feedback:
    return Feedback(decision.id, 1, SPAN_S, None, **what)


def seen(machines: int, capabilities: Capabilities, **more: Any) -> Scene:
    """A Spark cluster with instances on every machine, as after a batch has begun."""
    return made_scene({FOUR: FOUR_RATES}, machines, 0, capabilities=capabilities, **more)


def test_a_request_after_a_failed_one_takes_the_machine_that_was_left() -> None:
    """Spark moves instances to it when a batch begins: it is not empty any more."""
    first, second = out(), replace(out(), id="scale-out-2")
    policy = StelaPolicy(StelaParameters(window_s=SPAN_S))
    state = policy.decide(seen(2, SPREAD), {}).state
    asked = policy.decide(seen(2, SPREAD, requests=(first,)), state)
    assert asked.decisions[0].changes == (MachinesAddition(1),)
    committed = policy.decide(seen(3, SPREAD, requests=(first,)), asked.state)
    (decision,) = committed.decisions
    refused = feedback(decision, clips=(Clip("QUIET_HOURS", job=FOUR.id),))
    scene = replace(seen(3, SPREAD, requests=(first,)), feedback={decision.id: refused})
    failed = policy.decide(scene, committed.state)
    assert [closed.done for closed in failed.closed] == [False]
    # The dry run says the same as the request does.
    newer = policy.newer_machines(seen(3, SPREAD), failed.state)
    assert newer == ("m2",)
    data = preview(seen(3, SPREAD), second, policy.parameters, newer=newer)
    assert (data["machines_to_add"], len(data["steps"])) == (0, 4)
    again = policy.decide(seen(3, SPREAD, requests=(second,)), failed.state)
    (decision,) = again.decisions
    assert decision.reason == "SCALE_OUT"
    done = feedback(decision, granted=decision.changes, outcomes=(Outcome(Status.DONE),))
    scene = replace(seen(3, SPREAD, requests=(second,)), feedback={decision.id: done})
    ended = policy.decide(scene, again.state)
    assert [closed.done for closed in ended.closed] == [True]
    # It is an old one from now on.
    assert policy.newer_machines(seen(3, SPREAD), ended.state) == ()


def test_on_a_cluster_of_others_a_worker_that_was_started_is_used_after_a_batch_has_begun() -> None:
    policy, request = StelaPolicy(StelaParameters(window_s=SPAN_S)), out()
    state = policy.decide(seen(2, NO_START), {}).state
    refused = policy.decide(seen(2, NO_START, requests=(request,)), state)
    assert refused.closed[0].message.startswith("NO_NEW_MACHINES")
    later_s = 10 * SPAN_S
    repeated = seen(3, NO_START, requests=(request,), at_s=later_s)
    (decision,) = policy.decide(repeated, refused.state).decisions
    assert decision.reason == "SCALE_OUT"


def test_machines_that_come_late_at_the_start_or_come_back_are_no_new_ones() -> None:
    policy = StelaPolicy(StelaParameters(window_s=SPAN_S, patience_s=5 * SPAN_S))
    state = policy.decide(seen(1, SPREAD), {}).state
    # Executors register one after the other.
    state = policy.decide(seen(2, SPREAD, at_s=1.5 * SPAN_S), state).state
    assert policy.newer_machines(seen(2, SPREAD), state) == ()
    # One dies, and comes back under another name.
    other = seen(2, SPREAD, at_s=4 * SPAN_S, names=("m0", "m7"))
    state = policy.decide(seen(1, SPREAD, at_s=3 * SPAN_S), state).state
    state = policy.decide(other, state).state
    assert policy.newer_machines(other, state) == ()
    # One that stays away is forgotten, and another is new then.
    for at in (5, 11):
        state = policy.decide(seen(1, SPREAD, at_s=at * SPAN_S), state).state
    other = seen(2, SPREAD, at_s=12 * SPAN_S, names=("m0", "m8"))
    state = policy.decide(other, state).state
    assert policy.newer_machines(other, state) == ("m8",)
