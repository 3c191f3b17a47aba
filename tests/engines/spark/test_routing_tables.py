"""What an allocation may be. Without Spark."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.engines.spark.flow import job_named
from trilithon.engines.spark import routing_tables
from trilithon.errors import (
    BatchingUnsupported,
    InvalidAllocation,
    TooManyInstances,
    UnknownMachine,
    WeightsWithPlacement,
)
from trilithon.model.allocation import Allocation, initial
from trilithon.model.groups import KEY_GROUPS

JOB = job_named("checked")
GOOD = initial(JOB)
MACHINES = ("h/1", "h/2")


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
            "holds 4 tasks and cannot have 5",
        ),
        (replace(GOOD, parallelism={"spread": 2}), InvalidAllocation, "has the operators"),
        (
            replace(GOOD, batching_ms={JOB.edges[0].name: 20.0}),
            BatchingUnsupported,
            "cannot have a batching time of its own",
        ),
    ],
)
def test_an_allocation_is_refused_with_the_code_of_the_facet(
    wanted: Allocation, error: type[InvalidAllocation], message: str
) -> None:
    with pytest.raises(InvalidAllocation, match=message) as refused:
        routing_tables.check(JOB, wanted, MACHINES)
    assert type(refused.value) is error


def test_without_the_refused_facet_the_rest_of_an_allocation_is_accepted() -> None:
    wanted = replace(
        GOOD, parallelism={"spread": 3, "keyed": 2}, batching_ms={JOB.edges[0].name: 1.0}
    )
    with pytest.raises(BatchingUnsupported):
        routing_tables.check(JOB, wanted, MACHINES)
    routing_tables.check(JOB, replace(wanted, batching_ms={}), MACHINES)


class RecordingControl:
    """Stands in for the probe: keeps the routing tables that are pushed to it."""

    def __init__(self) -> None:
        self.pushed: dict[str, dict[str, Any]] = {}

    def set_table(self, _job: str, operator: str, table: Mapping[str, Any]) -> bool:
        self.pushed[operator] = dict(table)
        return True


def test_key_groups_of_an_allocation_are_pushed_and_stay_until_the_number_changes() -> None:
    control: Any = RecordingControl()
    swapped = tuple(1 - group % 2 for group in range(KEY_GROUPS))
    wanted = replace(GOOD, generation=2, groups={"keyed": swapped})
    groups = routing_tables.push(control, JOB, wanted, {})
    assert control.pushed["keyed"]["groups"] == groups["keyed"] == swapped
    assert "groups" not in control.pushed["spread"]
    unnamed = replace(GOOD, generation=3)
    assert routing_tables.push(control, JOB, unnamed, groups)["keyed"] == swapped
    rescaled = routing_tables.push(control, JOB, wanted.rescaled({"keyed": 3}), groups)["keyed"]
    assert set(rescaled) == {0, 1, 2}
