"""What an allocation may be. Without Spark."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.engines.spark.flow import job_named
from trilithon.engines.spark import routing_tables
from trilithon.errors import (
    CannotSpread,
    InvalidAllocation,
    TooManyInstances,
    UnknownMachine,
    WeightsWithPlacement,
)
from trilithon.model.allocation import Allocation, initial
from trilithon.model.groups import KEY_GROUPS, SPREAD
from trilithon.model.intent import EdgeName
from trilithon.model.job import Bounds

JOB = job_named("checked")
GOOD = initial(JOB)
MACHINES = ("h/1", "h/2")
HELD = {"spread": 4, "keyed": 4}


def test_places_and_weights_of_different_operators_are_good() -> None:
    found = replace(GOOD, placement={"spread": ("h/1", None)}, weights={"keyed": (2.0, 1.0)})
    routing_tables.check(JOB, found, MACHINES)
    even = replace(GOOD, placement={"spread": ("h/1", None)}, weights={"spread": (1.0, 1.0)})
    routing_tables.check(JOB, even, MACHINES)


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (replace(GOOD, placement={"spread": ("h/1", "h/3")}), UnknownMachine, "no machine h/3"),
        (
            replace(GOOD, placement={"spread": ("h/1", "h/2")}, weights={"spread": (3.0, 1.0)}),
            WeightsWithPlacement,
            "both a placement and different weights",
        ),
        (
            replace(GOOD, parallelism={"spread": 2, "keyed": 5}),
            TooManyInstances,
            "may hold 4 tasks and cannot have 5",
        ),
        (replace(GOOD, parallelism={"spread": 2}), InvalidAllocation, "has the operators"),
        (
            replace(GOOD, batching_ms={EdgeName("spread", "nowhere"): 20.0}),
            InvalidAllocation,
            "has no edge spread->nowhere",
        ),
    ],
)
def test_an_allocation_is_refused_with_the_code_of_the_facet(
    wanted: Allocation, error: type[InvalidAllocation], message: str
) -> None:
    with pytest.raises(InvalidAllocation, match=message) as refused:
        routing_tables.check(JOB, wanted, MACHINES)
    assert type(refused.value) is error


def test_key_groups_are_spread_only_where_a_key_needs_no_instance_of_its_own() -> None:
    wanted = replace(GOOD, groups={"keyed": (SPREAD,) * KEY_GROUPS})
    routing_tables.check(JOB, wanted, MACHINES)
    ordered = replace(JOB, bounds=Bounds(preserve_order=True))
    with pytest.raises(CannotSpread, match="each key needs one"):
        routing_tables.check(ordered, wanted, MACHINES)


def test_edges_may_have_batching_times() -> None:
    routing_tables.check(JOB, replace(GOOD, batching_ms={JOB.edges[0].name: 1.0}), MACHINES)


class RecordingControl:
    """Stands in for the probe: keeps the routing tables that are pushed to it."""

    def tables(self) -> dict[str, Any]:
        return {f"{JOB.id}/{name}": {"effective": table} for name, table in self.pushed.items()}

    def __init__(self) -> None:
        self.pushed: dict[str, dict[str, Any]] = {}

    def set_table(self, _job: str, operator: str, table: Mapping[str, Any]) -> bool:
        self.pushed[operator] = dict(table)
        return True


AVOIDS = replace(GOOD, avoided={"spread": (1,), "keyed": (0,)})


def test_an_avoided_task_gets_no_weight_and_a_spare_one_does() -> None:
    control: Any = RecordingControl()
    weighted = replace(AVOIDS, weights={"spread": (3.0, 2.0)})
    routing_tables.push(control, JOB, weighted, {}, HELD)
    assert control.pushed["spread"]["weights"] == [3.0, 0.0, 2.0, 0.0]
    assert control.pushed["keyed"]["weights"] == [0.0, 1.0, 1.0, 0.0]
    used = routing_tables.placed(control, [weighted])
    assert used == {(JOB.id, "spread"): (0, 2), (JOB.id, "keyed"): (1, 2)}


def test_key_groups_of_instances_go_to_the_tasks_that_are_not_avoided() -> None:
    control: Any = RecordingControl()
    owners = (SPREAD, *(group % 2 for group in range(1, KEY_GROUPS)))
    assigned = routing_tables.push(
        control, JOB, replace(AVOIDS, groups={"keyed": owners}), {}, HELD
    )
    assert assigned["keyed"] == owners
    assert control.pushed["keyed"]["groups"][:4] == (SPREAD, 2, 1, 2)


def test_a_placement_says_which_tasks_are_avoided() -> None:
    control: Any = RecordingControl()
    routing_tables.push(
        control, JOB, replace(AVOIDS, placement={"spread": (None, "h/2")}), {}, HELD
    )
    table = control.pushed["spread"]
    assert (table["executors"], table["anywhere"], table["avoid"]) == ({"2": 1}, 1, [1])


def test_after_a_scale_up_the_task_is_still_avoided_until_no_other_is_left() -> None:
    control: Any = RecordingControl()
    for count, weights in ((3, [1.0, 0.0, 1.0, 1.0]), (4, [1.0] * 4)):
        routing_tables.push(control, JOB, AVOIDS.rescaled({"spread": count}), {}, HELD)
        assert control.pushed["spread"]["weights"] == weights


def test_a_task_that_does_not_exist_cannot_be_avoided() -> None:
    routing_tables.check(JOB, AVOIDS, MACHINES)
    with pytest.raises(InvalidAllocation, match="has no task 9"):
        routing_tables.check(JOB, replace(GOOD, avoided={"spread": (9,)}), MACHINES)


def test_key_groups_of_an_allocation_are_pushed_and_stay_until_the_number_changes() -> None:
    control: Any = RecordingControl()
    swapped = tuple(1 - group % 2 for group in range(KEY_GROUPS))
    wanted = replace(GOOD, generation=2, groups={"keyed": swapped})
    groups = routing_tables.push(control, JOB, wanted, {}, HELD)
    assert control.pushed["keyed"]["groups"] == groups["keyed"] == swapped
    assert "groups" not in control.pushed["spread"]
    unnamed = replace(GOOD, generation=3)
    assert routing_tables.push(control, JOB, unnamed, groups, HELD)["keyed"] == swapped
    rescaled = routing_tables.push(control, JOB, wanted.rescaled({"keyed": 3}), groups, HELD)[
        "keyed"
    ]
    assert set(rescaled) == {0, 1, 2}
