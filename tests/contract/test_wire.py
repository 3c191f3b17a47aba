"""The contract survives the wire, and what is not part of it is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import jobs
from trilithon.contract.engine import (
    Ability,
    Action,
    AddMachines,
    Capabilities,
    How,
    Outcome,
    Reallocate,
    RemoveMachines,
    RestartInstance,
    RestartJob,
    Status,
)
from trilithon.contract.wire import (
    action_from_json,
    action_to_json,
    capabilities_from_json,
    capabilities_to_json,
    outcome_from_json,
    outcome_to_json,
)
from trilithon.errors import NotUnderstood
from trilithon.model.allocation import Allocation
from trilithon.model.groups import assign_key_groups
from trilithon.model.intent import EdgeName

names = st.text("abcxyz-", min_size=1, max_size=6)


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    parallelism = draw(st.dictionaries(names, st.integers(1, 5), min_size=1, max_size=4))
    some = draw(st.sampled_from(sorted(parallelism)))
    size = parallelism[some]
    return Allocation(
        job=draw(names),
        generation=draw(st.integers(1, 2**40)),
        parallelism=parallelism,
        weights={some: tuple(draw(st.lists(st.floats(0.1, 9), min_size=size, max_size=size)))},
        placement={some: tuple(draw(st.lists(st.none() | names, min_size=size, max_size=size)))},
        batching_ms={EdgeName("a", "b"): draw(st.floats(0, 100))},
        groups={some: assign_key_groups([1.0] * size)} if draw(st.booleans()) else {},
        avoided={some: (0, size)} if draw(st.booleans()) else {},
    )


actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(Reallocate, allocations()),
    st.builds(RestartInstance, names, names, names, st.integers(0, 9)),
    st.builds(
        RestartJob, names, names, st.none() | jobs(), st.none() | allocations(), st.none() | names
    ),
    st.builds(AddMachines, names, st.integers(1, 9)),
    st.builds(RemoveMachines, names, st.lists(names, max_size=3).map(tuple)),
)


def wired(data: Any) -> Any:
    return json.loads(json.dumps(data))


@given(actions)
def test_an_action_survives(action: Action) -> None:
    assert action_from_json(wired(action_to_json(action))) == action


@given(st.builds(Outcome, st.sampled_from(Status), names, names, st.none() | st.floats(0, 10)))
def test_an_outcome_survives(outcome: Outcome) -> None:
    assert outcome_from_json(wired(outcome_to_json(outcome))) == outcome


def test_capabilities_survive_and_what_is_not_named_cannot_be_done() -> None:
    capabilities = Capabilities(
        {Ability.PARALLELISM: How.LIVE},
        slots=8,
        fixed={"t/j": ("count",)},
        tasks_held={"t/k": {"parse": 4}},
    )
    again = capabilities_from_json(wired(capabilities_to_json(capabilities)))
    assert again == capabilities
    assert again.of(Ability.PARALLELISM) is How.LIVE
    assert again.of(Ability.ADD_MACHINES) is How.NOT_AT_ALL


def test_growth_is_live_up_to_the_tasks_that_are_held() -> None:
    live = Capabilities({Ability.PARALLELISM: How.LIVE}, tasks_held={"t/k": {"parse": 4}})
    assert live.of_parallelism("t/k", {"parse": 4, "other": 50}) is How.LIVE
    assert live.of_parallelism("t/k", {"parse": 5}) is How.WITH_OUTAGE
    assert live.of_parallelism("t/j", {"parse": 50}) is How.LIVE
    never = Capabilities({}, tasks_held=live.tasks_held)
    assert never.of_parallelism("t/k", {"parse": 5}) is How.NOT_AT_ALL


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"do": "fly"},
        {"do": "restart_job"},
        {"do": "restart_job", "id": "1", "job": "j", "x": 1},
        {"do": "reallocate"},
        {"do": "reallocate", "allocation": {"job": "j", "parallelism": 5}},
    ],
)
def test_what_is_no_action_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(NotUnderstood):
        action_from_json(data)
