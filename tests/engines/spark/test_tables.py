"""What an allocation may be. Without Spark."""

from dataclasses import replace

import pytest

from tests.engines.spark.flow import job_named
from trilithon.engines.spark import tables
from trilithon.errors import InvalidAllocation
from trilithon.model.allocation import initial

JOB = job_named("checked")
GOOD = initial(JOB)
MACHINES = ("h/1", "h/2")


def test_places_and_weights_of_different_operators_are_good() -> None:
    found = replace(GOOD, placement={"spread": ("h/1", None)}, weights={"keyed": (2.0, 1.0)})
    tables.check(JOB, found, MACHINES)
    even = replace(GOOD, placement={"spread": ("h/1", None)}, weights={"spread": (1.0, 1.0)})
    tables.check(JOB, even, MACHINES)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (replace(GOOD, placement={"spread": ("h/1", "h/3")}), "no machine h/3"),
        (
            replace(GOOD, placement={"spread": ("h/1", "h/2")}, weights={"spread": (3.0, 1.0)}),
            "both places and weights",
        ),
        (replace(GOOD, parallelism={"spread": 2, "keyed": 5}), "holds 4 tasks"),
        (replace(GOOD, parallelism={"spread": 2}), "has the operators"),
    ],
)
def test_what_cannot_be_brought_about_is_refused(wanted: object, told: str) -> None:
    with pytest.raises(InvalidAllocation, match=told):
        tables.check(JOB, wanted, MACHINES)  # type: ignore[arg-type]
