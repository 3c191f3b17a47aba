"""Cures: how many instances, which weights, places and key groups, and what people are told."""

from dataclasses import replace

import pytest

from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.engines.abilities import REAL_TIME
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, How
from trilithon.model.change import (
    Alert,
    InstanceRestart,
    KeyGroupsChange,
    ParallelismChange,
    PlacementChange,
    WeightsChange,
)
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLO_MISSED, SLOW, UNDER
from trilithon.policies.dhalion.health import Diagnosis, JobCase, LogEntry, Resolution
from trilithon.policies.dhalion.resolvers import (
    MoveKeysResolver,
    RelieveInstanceResolver,
    ScaleDownResolver,
    ScaleUpResolver,
    SourceScaleUpResolver,
)

FOUR = [instance_view() for _ in range(4)]


def diagnosis(kind: str, *instances: int, **numbers: float | None) -> Diagnosis:
    return Diagnosis(kind, "count", "it is so", (), numbers, instances)


def only_change(resolution: Resolution | None) -> object:
    assert resolution is not None
    (change,) = resolution.changes
    return change


def wanted(resolution: Resolution | None) -> int:
    change = only_change(resolution)
    assert isinstance(change, ParallelismChange)
    return change.parallelism["count"]


def code(resolution: Resolution | None) -> str:
    change = only_change(resolution)
    assert isinstance(change, Alert)
    return change.code


@pytest.mark.parametrize(("held_back", "count"), [(0.2, 5), (0.01, 5), (0.5, 8), (0.999, 16)])
def test_held_back_for_a_fifth_of_the_time_needs_a_quarter_more(
    held_back: float, count: int
) -> None:
    case = case_of(operator_view("count", FOUR, held_back))
    assert wanted(ScaleUpResolver().resolve(case, diagnosis(UNDER))) == count


def test_growth_says_how_much_is_lacking_before_there_is_back_pressure() -> None:
    case = case_of(operator_view("count", FOUR, 0.0))
    assert wanted(ScaleUpResolver().resolve(case, diagnosis(UNDER, lacking=0.5))) == 6


def test_at_its_maximum_people_are_told() -> None:
    case = case_of(operator_view("count", FOUR), most=4)
    assert code(ScaleUpResolver().resolve(case, diagnosis(UNDER))) == "AT_MAXIMUM"


def test_an_operator_that_must_not_change_becomes_advice() -> None:
    case = case_of(operator_view("count", FOUR), fixed=frozenset({"count"}))
    assert code(ScaleUpResolver().resolve(case, diagnosis(UNDER))) == "SCALE_UP_IMPOSSIBLE"
    copies = case_of(operator_view("count", FOUR, broadcast=True))
    assert code(ScaleUpResolver().resolve(copies, diagnosis(UNDER))) == "SCALE_UP_IMPOSSIBLE"


def test_where_another_policy_scales_nothing_is_proposed() -> None:
    case = case_of(operator_view("count", FOUR), parameters=DhalionParameters(scale="off"))
    assert ScaleUpResolver().resolve(case, diagnosis(UNDER)) is None
    assert ScaleDownResolver().resolve(case, diagnosis(OVER)) is None


def test_a_scale_down_keeps_the_predicted_utilisation_below_the_bound() -> None:
    busy = [instance_view(busy=0.6) for _ in range(10)]
    case = case_of(operator_view("count", busy))
    assert wanted(ScaleDownResolver().resolve(case, diagnosis(OVER))) == 9
    paper = case_of(operator_view("count", busy), parameters=DhalionParameters(over="pending"))
    assert wanted(ScaleDownResolver().resolve(paper, diagnosis(OVER))) == 8
    full = case_of(operator_view("count", [instance_view(busy=0.69) for _ in range(3)]))
    assert ScaleDownResolver().resolve(full, diagnosis(OVER)) is None


SLOW_ONE = [instance_view(), instance_view(), instance_view(service_s=0.016, machine="m1")]


def entry(action: str, helped: bool) -> LogEntry:
    return LogEntry(action, 0.0, SLOW, "count", "1:x", {}, helped)


def relieved(case: JobCase) -> Resolution:
    resolution = RelieveInstanceResolver().resolve(case, diagnosis(SLOW, 2))
    assert resolution is not None
    return resolution


def test_a_slow_instance_gets_records_in_proportion_to_its_speed() -> None:
    change = only_change(relieved(case_of(operator_view("count", SLOW_ONE))))
    assert isinstance(change, WeightsChange)
    assert change.weights["count"] == (1.0, 1.0, 0.25)


def test_if_that_did_not_help_it_moves_to_another_machine_with_equal_weights() -> None:
    """The Spark engine refuses a placement beside different weights."""
    lowered = Allocation("t/words", 1, {"count": 3}, weights={"count": (1.0, 1.0, 0.25)})
    case = case_of(
        operator_view("count", SLOW_ONE),
        taken=(entry("relieve_instance.weights", helped=False),),
        allocation=lowered,
    )
    place, weights = relieved(case).changes
    assert isinstance(place, PlacementChange)
    assert place.placement["count"][:2] == (None, None)
    assert place.placement["count"][2] not in {None, "m1"}
    assert isinstance(weights, WeightsChange)
    assert weights.weights["count"] == (1.0, 1.0, 1.0)


def test_where_the_engine_can_only_restart_it_restarts() -> None:
    how = {Ability.RESTART_INSTANCE: How.WITH_OUTAGE}
    change = only_change(relieved(case_of(operator_view("count", SLOW_ONE), how=how)))
    assert change == InstanceRestart("t/words", "count", 2)


def test_when_all_else_failed_people_are_told() -> None:
    tried = ("relieve_instance.weights", "relieve_instance.placement")
    case = case_of(
        operator_view("count", SLOW_ONE),
        taken=tuple(entry(action, helped=False) for action in tried),
    )
    assert code(relieved(case)) == "SLOW_INSTANCE"


HOT = [instance_view(rate=180.0), *(instance_view(rate=100.0) for _ in range(3))]


def test_half_of_the_key_groups_of_a_hot_instance_move() -> None:
    resolution = MoveKeysResolver().resolve(
        case_of(operator_view("count", HOT)), diagnosis(SKEW, 0)
    )
    change = only_change(resolution)
    assert isinstance(change, KeyGroupsChange)
    groups = change.groups["count"]
    assert groups.count(0) == 128
    assert {groups.count(i) for i in (1, 2, 3)} <= {298, 299}


def test_a_key_that_no_instance_can_take_is_told() -> None:
    """An instance can take 250 records/s, and one key has 600."""
    hot = [replace(HOT[0], rate_per_s=700.0), *HOT[1:]]
    resolution = MoveKeysResolver().resolve(
        case_of(operator_view("count", hot)), diagnosis(SKEW, 0)
    )
    assert code(resolution) == "DATA_SKEW"


@pytest.mark.parametrize("more", [{"stateful": True}, {"keyed": False}])
def test_skew_that_cannot_be_moved_is_told(more: dict[str, bool]) -> None:
    case = case_of(operator_view("count", HOT, **more))
    resolution = MoveKeysResolver().resolve(case, diagnosis(SKEW, 0))
    assert code(resolution) == "DATA_SKEW"
    assert resolution is not None
    assert resolution.claims


def test_an_engine_that_cannot_move_keys_is_told_apart() -> None:
    how = {**REAL_TIME, Ability.KEY_GROUPS: How.NOT_AT_ALL}
    resolution = MoveKeysResolver().resolve(
        case_of(operator_view("count", HOT), how=how), diagnosis(SKEW, 0)
    )
    assert code(resolution) == "DATA_SKEW"


def test_instances_at_the_sources_grow_by_a_factor_of_four_at_most() -> None:
    case = case_of(operator_view("count", FOUR[:1], 0.0))
    resolver = SourceScaleUpResolver()
    assert wanted(resolver.resolve(case, diagnosis(SLO_MISSED, factor=40.0))) == 4
    four = case_of(operator_view("count", FOUR, 0.0))
    assert wanted(resolver.resolve(four, diagnosis(SLO_MISSED, factor=2.5))) == 10
