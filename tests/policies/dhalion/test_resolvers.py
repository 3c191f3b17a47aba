"""Cures: how many instances, which weights, places and key groups, and what people are told."""

from dataclasses import replace

import pytest

from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.engines.abilities import REAL_TIME
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, How
from trilithon.model.change import (
    Alert,
    AllocationChange,
    AvoidedTasksChange,
    InstanceRestart,
    KeyGroupsChange,
    ParallelismChange,
    PlacementChange,
    WeightsChange,
)
from trilithon.model.groups import KEY_GROUPS, SPREAD, assign_key_groups, rescale_key_groups
from trilithon.model.job import Bounds
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLO_MISSED, SLOW, UNDER
from trilithon.policies.dhalion.health import (
    Diagnosis,
    JobCase,
    LogEntry,
    Resolution,
    Resolver,
    action_key,
)
from trilithon.policies.dhalion.job_view import InstanceView, OperatorView
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


@pytest.mark.parametrize(("failed", "allowed"), [(7, True), (8, False), (9, False), (10, True)])
def test_no_scale_down_leads_to_as_few_instances_as_failed_or_fewer(
    failed: int, allowed: bool
) -> None:
    """Of 10 instances 8 would remain. That 10 were too few is another load's story."""
    case = case_of(
        operator_view("count", [instance_view(busy=0.1) for _ in range(10)]),
        blacklist=frozenset({action_key(OVER, "count", f"scale_down.to_{failed}")}),
    )
    resolution = ScaleDownResolver().resolve(case, diagnosis(OVER))
    assert (resolution is not None) is allowed


SLOW_ONE = [instance_view(), instance_view(), instance_view(service_s=0.016, machine="m1")]


def relieved(case: JobCase) -> Resolution:
    resolution = RelieveInstanceResolver().resolve(case, diagnosis(SLOW, 2))
    assert resolution is not None
    return resolution


def test_a_slow_instance_gets_records_in_proportion_to_its_speed() -> None:
    change = only_change(relieved(case_of(operator_view("count", SLOW_ONE))))
    assert isinstance(change, WeightsChange)
    assert change.weights["count"] == (1.0, 1.0, 0.25)


LOWERED = Allocation("t/words", 1, {"count": 3}, weights={"count": (1.0, 1.0, 0.25)})


def test_an_instance_that_gets_less_keeps_that_when_another_becomes_slow() -> None:
    """The second cure gave the first slow instance its full share back."""
    views = [instance_view(service_s=0.008), instance_view(), SLOW_ONE[2]]
    case = case_of(operator_view("count", views), allocation=LOWERED)
    for slow in ((0,), (0, 2)):
        resolution = RelieveInstanceResolver().resolve(case, diagnosis(SLOW, *slow))
        assert resolution is not None
        assert resolution.action == "relieve_instance.weights"
        change = only_change(resolution)
        assert isinstance(change, WeightsChange)
        assert change.weights["count"] == (0.5, 1.0, 0.25)
        assert resolution.sentence == "Weights: count-0 0.5."


WEIGHTS_FAILED = frozenset({action_key(SLOW, "count", "relieve_instance.weights")})


def test_if_that_did_not_help_its_work_goes_to_a_spare_task_on_another_machine() -> None:
    """The Spark engine refuses a placement beside different weights."""
    case = case_of(
        operator_view("count", SLOW_ONE), blacklist=WEIGHTS_FAILED, allocation=LOWERED, tasks=8
    )
    resolution = relieved(case)
    place, weights, avoided = resolution.changes
    assert avoided == AvoidedTasksChange("t/words", {"count": (2,)})
    assert resolution.sentence == "The work of count-2 goes to a spare task on m0."
    assert isinstance(place, PlacementChange)
    assert place.placement["count"][:2] == (None, None)
    assert place.placement["count"][2] not in {None, "m1"}
    assert isinstance(weights, WeightsChange)
    assert weights.weights["count"] == (1.0, 1.0, 1.0)


def test_where_key_groups_were_moved_a_weight_would_not_count_and_a_spare_task_is_next() -> None:
    groups = assign_key_groups([1.0, 2.0, 1.0])
    moved_groups = Allocation("t/words", 1, {"count": 3}, groups={"count": groups})
    case = case_of(operator_view("count", SLOW_ONE), allocation=moved_groups, tasks=8)
    assert AvoidedTasksChange("t/words", {"count": (2,)}) in relieved(case).changes


def test_tasks_are_avoided_by_their_numbers_beside_those_that_are_already() -> None:
    """Task 1 is avoided: the instances are the tasks 0, 2 and 3."""
    numbered = [replace(view, index=i) for view, i in zip(SLOW_ONE, (0, 2, 3), strict=True)]
    view = replace(operator_view("count", SLOW_ONE), instances=tuple(numbered))
    allocation = replace(LOWERED, avoided={"count": (1,)})
    case = case_of(view, blacklist=WEIGHTS_FAILED, allocation=allocation, tasks=8)
    assert AvoidedTasksChange("t/words", {"count": (1, 3)}) in relieved(case).changes


def test_without_a_spare_task_people_are_told() -> None:
    """All tasks are in use: another table would choose the same ones."""
    case = case_of(
        operator_view("count", SLOW_ONE), blacklist=WEIGHTS_FAILED, allocation=LOWERED, tasks=3
    )
    assert code(relieved(case)) == "SLOW_INSTANCE"
    assert "`max`" in relieved(case).sentence


def test_on_an_engine_that_cannot_avoid_tasks_the_instance_itself_moves() -> None:
    how = {**REAL_TIME, Ability.AVOIDED_TASKS: How.NOT_AT_ALL}
    case = case_of(operator_view("count", SLOW_ONE), blacklist=WEIGHTS_FAILED, how=how)
    change = only_change(relieved(case))
    assert change == PlacementChange("t/words", {"count": (None, None, "m0")})


@pytest.mark.parametrize(("resolver", "count"), [(ScaleUpResolver(), 6), (ScaleDownResolver(), 3)])
def test_an_avoided_task_stays_avoided_with_another_number_of_instances(
    resolver: Resolver, count: int
) -> None:
    placed = Allocation(
        "t/words",
        1,
        {"count": 4},
        placement={"count": (None, "m1", None, None)},
        avoided={"count": (1,)},
    )
    case = case_of(operator_view("count", FOUR, 0.3), allocation=placed, tasks=8)
    resolution = resolver.resolve(case, diagnosis(UNDER))
    assert resolution is not None
    after = placed.changed(c for c in resolution.changes if isinstance(c, AllocationChange))
    assert after.parallelism["count"] == count
    assert after.avoided["count"] == (1,)
    assert 1 not in after.instance_tasks("count", 8)
    assert after.placement["count"] == (None, "m1", None, None, None, None)[:count]


def test_where_the_engine_can_only_restart_it_restarts() -> None:
    how = {Ability.RESTART_INSTANCE: How.WITH_OUTAGE}
    change = only_change(relieved(case_of(operator_view("count", SLOW_ONE), how=how)))
    assert change == InstanceRestart("t/words", "count", 2)


def test_when_all_else_failed_people_are_told() -> None:
    tried = ("relieve_instance.weights", "relieve_instance.placement")
    case = case_of(
        operator_view("count", SLOW_ONE),
        blacklist=frozenset(action_key(SLOW, "count", action) for action in tried),
    )
    assert code(relieved(case)) == "SLOW_INSTANCE"


@pytest.mark.parametrize(
    ("stateful", "why"), [(True, "keeps state"), (False, "is one of the job's `fixed` operators")]
)
def test_a_slow_instance_whose_records_cannot_move_is_told(stateful: bool, why: str) -> None:
    """The guard would refuse other weights and another place each time."""
    view = operator_view("count", SLOW_ONE, stateful=stateful)
    case = case_of(view, fixed=frozenset({"count"}))
    assert code(relieved(case)) == "SLOW_INSTANCE"
    assert f"count-2 is slower than its peers, and count {why}" in relieved(case).sentence
    assert "`max`" not in relieved(case).sentence
    assert relieved(case).claims


def test_where_the_engine_can_it_still_restarts() -> None:
    how = {**REAL_TIME, Ability.RESTART_INSTANCE: How.WITH_OUTAGE}
    case = case_of(operator_view("count", SLOW_ONE), how=how, fixed=frozenset({"count"}))
    assert only_change(relieved(case)) == InstanceRestart("t/words", "count", 2)


def test_skew_of_a_fixed_operator_is_told() -> None:
    case = case_of(operator_view("count", HOT), fixed=frozenset({"count"}))
    resolution = MoveKeysResolver().resolve(case, diagnosis(SKEW, 0))
    assert code(resolution) == "DATA_SKEW"
    assert resolution is not None
    assert "is one of the job's `fixed` operators" in resolution.sentence


def test_what_is_drawn_for_another_cause_and_cannot_help_says_nothing() -> None:
    fixed = case_of(operator_view("count", SLOW_ONE), fixed=frozenset({"count"}))
    assert RelieveInstanceResolver().resolve(fixed, diagnosis(UNDER, 2)) is None
    assert MoveKeysResolver().resolve(fixed, diagnosis(SLOW, 2)) is None
    case = case_of(operator_view("count", FOUR))
    assert RelieveInstanceResolver().resolve(case, diagnosis(UNDER, 0, 1, 2, 3)) is None


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


def moved(resolution: Resolution, time_s: float) -> LogEntry:
    """The entry of the action log that a move of key groups becomes."""
    return LogEntry(
        resolution.action, time_s, SKEW, "count", "1:x", {}, helped=True, notes=resolution.notes
    )


@pytest.mark.parametrize("hot_group", [0, 1, 300, 511, 512, 700, 900, 1023])
def test_a_hot_group_is_left_with_few_others_whichever_it_is(hot_group: int) -> None:
    """The groups with the higher numbers used to move each time, and a hot one among them went
    from instance to instance, six times in five minutes, and nothing was gained.
    """
    share, arriving, service_s = 0.25, 100.0, 0.03
    groups = assign_key_groups([1.0] * 4)
    taken: list[float] = []
    log: list[LogEntry] = []
    for turn in range(4):
        shares = [groups.count(i) / KEY_GROUPS * (1 - share) for i in range(4)]
        shares[groups[hot_group]] += share
        taken.append(min(arriving, 1 / service_s / max(shares)))
        if taken[-1] == arriving:
            break
        views = [instance_view(rate=taken[-1] * part, service_s=service_s) for part in shares]
        allocation = Allocation("t/words", 1, {"count": 4}, groups={"count": groups})
        case = replace(
            case_of(operator_view("count", views), allocation=allocation), taken=tuple(log)
        )
        resolution = MoveKeysResolver().resolve(case, diagnosis(SKEW, groups[hot_group]))
        change = only_change(resolution)
        assert isinstance(change, KeyGroupsChange)
        groups = change.groups["count"]
        assert resolution is not None
        log.append(moved(resolution, float(turn)))
    assert taken[0] < 0.8 * arriving
    assert taken[-1] == arriving


def moves(groups: tuple[int, ...], hot: int, log: tuple[LogEntry, ...]) -> tuple[int, ...]:
    """Where the groups are after a move away from an instance."""
    views = [instance_view(rate=180.0 if i == hot else 100.0) for i in range(max(groups) + 1)]
    allocation = Allocation("t/words", 1, {"count": len(views)}, groups={"count": groups})
    case = replace(case_of(operator_view("count", views), allocation=allocation), taken=log)
    change = only_change(MoveKeysResolver().resolve(case, diagnosis(SKEW, hot)))
    assert isinstance(change, KeyGroupsChange)
    return change.groups["count"]


def test_after_a_rescale_the_groups_that_may_hold_the_hot_key_are_still_known() -> None:
    """By where groups are dealt to at first, most of five instances' groups looked moved."""
    groups = assign_key_groups([1.0] * 4)
    first = MoveKeysResolver().resolve(case_of(operator_view("count", HOT)), diagnosis(SKEW, 0))
    assert first is not None
    log = (moved(first, 0.0),)
    change = only_change(first)
    assert isinstance(change, KeyGroupsChange)
    five = rescale_key_groups(change.groups["count"], 5)
    for hot in range(5):
        after = moves(five, hot, log)
        gone = [g for g in range(KEY_GROUPS) if five[g] == hot != after[g]]
        assert gone
        if hot != 0:
            assert not any(groups[g] == 0 for g in gone)  # those that came stay


def test_where_no_group_is_suspect_the_search_begins_anew() -> None:
    groups = assign_key_groups([1.0] * 4)
    elsewhere = LogEntry("move_keys.256", 0.0, SKEW, "count", "1:x", {}, notes={"suspects": "1"})
    assert moves(groups, 2, (elsewhere,)) == moves(groups, 2, ())
    assert moves(groups, 2, ()).count(2) == 128


# An instance can take 250 records/s, and one key has 600.
TOO_HOT = [replace(HOT[0], rate_per_s=700.0), *HOT[1:]]


def test_a_key_that_no_instance_can_take_is_spread_over_all() -> None:
    resolution = MoveKeysResolver().resolve(
        case_of(operator_view("count", TOO_HOT)), diagnosis(SKEW, 0)
    )
    change = only_change(resolution)
    assert isinstance(change, KeyGroupsChange)
    groups = change.groups["count"]
    assert [groups.count(owner) for owner in (SPREAD, 0, 1, 2, 3)] == [256, 0, 256, 256, 256]
    assert resolution is not None
    assert "256 key groups of count-0 are spread over all instances" in resolution.sentence


def test_where_order_matters_such_a_key_is_told() -> None:
    case = case_of(operator_view("count", TOO_HOT))
    ordered = replace(case.view.job, bounds=Bounds(preserve_order=True))
    case = replace(case, view=replace(case.view, job=ordered))
    assert code(MoveKeysResolver().resolve(case, diagnosis(SKEW, 0))) == "DATA_SKEW"


def rescaled_groups(groups: tuple[int, ...], count: int, resolver: Resolver) -> tuple[int, ...]:
    """The key groups of `count` instances after a cure that gives it another number of them."""
    allocation = Allocation("t/words", 1, {"count": count}, groups={"count": groups})
    view = operator_view("count", [instance_view(busy=0.1) for _ in range(count)], 0.3)
    resolution = resolver.resolve(case_of(view, allocation=allocation), diagnosis(UNDER))
    assert resolution is not None
    changes = [change for change in resolution.changes if isinstance(change, AllocationChange)]
    after = allocation.changed(changes)
    assert after.parallelism["count"] != count
    return after.groups["count"]


def test_what_is_spread_stays_so_with_another_number_of_instances() -> None:
    groups = (SPREAD,) * 100 + (0,) * 462 + (1,) * 462
    after = rescaled_groups(groups, 2, ScaleUpResolver())
    assert after[:100] == groups[:100]
    assert set(after[100:]) == {0, 1, 2}


@pytest.mark.parametrize("resolver", [ScaleUpResolver(), ScaleDownResolver()])
def test_a_hot_key_that_others_made_way_for_keeps_its_instance_nearly_to_itself(
    resolver: Resolver,
) -> None:
    """An equal number of groups for each instance brought the skew back."""
    groups = tuple(1 if group < 40 else (0, 2, 3)[group % 3] for group in range(KEY_GROUPS))
    after = rescaled_groups(groups, 4, resolver)
    assert set(after[:40]) == {1}
    assert after.count(1) <= 60
    assert max(after) == (5 if isinstance(resolver, ScaleUpResolver) else 2)


@pytest.mark.parametrize(
    ("more", "why", "advice"),
    [
        ({"stateful": True}, "count keeps state by key", "Divide the hot key"),
        ({"keyed": False}, "although none has a key", "Look at its machine"),
    ],
)
def test_skew_that_cannot_be_moved_is_told(more: dict[str, bool], why: str, advice: str) -> None:
    case = case_of(operator_view("count", HOT, **more))
    resolution = MoveKeysResolver().resolve(case, diagnosis(SKEW, 0))
    assert code(resolution) == "DATA_SKEW"
    assert resolution is not None
    assert resolution.claims
    assert f"{why}. {advice}" in resolution.sentence


def test_instances_are_named_by_the_numbers_of_their_tasks() -> None:
    """Where a task is avoided, the first instance is not the task 0."""

    def numbered(instances: list[InstanceView]) -> OperatorView:
        view = operator_view("count", instances)
        later = (replace(each, index=each.index + 3) for each in view.instances)
        return replace(view, instances=tuple(later))

    relief = RelieveInstanceResolver().resolve(case_of(numbered(SLOW_ONE)), diagnosis(SLOW, 2))
    spread = MoveKeysResolver().resolve(case_of(numbered(TOO_HOT)), diagnosis(SKEW, 0))
    assert relief is not None
    assert relief.sentence.startswith("Weights: count-5 ")
    assert spread is not None
    assert "key groups of count-3 are spread" in spread.sentence


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
