"""Predicted against realised throughput, where something else comes in between."""

from dataclasses import replace
from typing import Any

from tests.policies.stela.model import SPAN_S, back, made_job, made_scene
from trilithon.model.action import Outcome, Status
from trilithon.policies.feedback import Feedback
from trilithon.policies.scene import Scene
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.policies.stela.stela_policy import StelaPolicy

JOB = made_job("line", "s>a", "a>b", "b>k", counts={"a": 2, "b": 2})
RATES = {"s": 100.0, "a": 200.0, "b": 10.0}
POLICY = StelaPolicy(StelaParameters(window_s=SPAN_S))
DUE_S = 5 * SPAN_S
STATE: dict[str, Any] = {
    "unchecked": [
        {
            "request": "scale-out-1",
            "kind": "scale_out",
            "decision": "1:cluster",
            "job": None,
            "done_s": SPAN_S,
            "due_s": DUE_S,
            "jobs": [JOB.id],
            "before": 10.0,
            "predicted": 25.0,
        }
    ]
}


def seen(at_s: float, changed_s: float | None = None, **more: Any) -> Scene:
    scene = made_scene({JOB: RATES}, machines=3, new=0, at_s=at_s, **more)
    statuses = {JOB.id: replace(scene.statuses[JOB.id], changed_s=changed_s)}
    return replace(scene, statuses=statuses)


def test_a_prediction_is_checked_when_it_is_due() -> None:
    early = POLICY.decide(seen(DUE_S - 1, changed_s=SPAN_S), STATE)
    assert (early.decisions, early.state["actions"]) == ((), [])
    verdict = POLICY.decide(seen(DUE_S, changed_s=SPAN_S), STATE)
    assert [decision.reason for decision in verdict.decisions] == ["PREDICTION_CHECKED"]
    assert verdict.state["actions"][0]["realised"] == 20.0


def test_a_change_by_others_supersedes_it() -> None:
    """Of the owner, or of another policy: the throughput is not that of the action any more."""
    verdict = POLICY.decide(seen(DUE_S, changed_s=2 * SPAN_S), STATE)
    (decision,) = verdict.decisions
    assert decision.reason == "PREDICTION_SUPERSEDED"
    assert "t/line was changed before the throughput was measured" in decision.sentence
    (action,) = verdict.state["actions"]
    assert (action["realised"], action["superseded"]) == (None, "t/line was changed")
    assert verdict.state["unchecked"] == []
    gone = POLICY.decide(replace(seen(DUE_S), statuses={}), STATE)
    assert gone.state["actions"][0]["superseded"] == "t/line does not run any more"


def test_an_action_that_is_being_carried_out_is_awaited_and_supersedes_it() -> None:
    """Also where it changes no job of the other: machines that are fuller are slower."""
    request = back(1)
    committed = POLICY.decide(seen(DUE_S - 1, requests=(request,)), STATE)
    (decision,) = committed.decisions
    # It is due while the scale-in is under way.
    waiting = POLICY.decide(seen(DUE_S, requests=(request,)), committed.state)
    assert (waiting.decisions, waiting.state["actions"]) == ((), [])
    done = Feedback(
        *(decision.id, 1, DUE_S, None, decision.changes),
        outcomes=(Outcome(Status.DONE),),
    )
    scene = replace(seen(DUE_S + 1, requests=(request,)), feedback={decision.id: done})
    ended = POLICY.decide(scene, waiting.state)
    assert [closed.done for closed in ended.closed] == [True]
    assert ended.state["actions"][0]["superseded"] == "scale-in-1 was carried out"
    assert [item["kind"] for item in ended.state["unchecked"]] == ["scale_in"]
