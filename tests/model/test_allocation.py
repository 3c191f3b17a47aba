"""Allocations: wanted state that cannot be nonsense."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster import chain
from tests.strategies import jobs
from trilithon.errors import InvalidAllocation, NotFound
from trilithon.model.allocation import Allocation, carried_over, initial
from trilithon.model.groups import KEY_GROUPS
from trilithon.model.job import Edge, Grouping, Job


@given(jobs())
def test_a_job_starts_with_what_its_file_asks_for(job: Job) -> None:
    allocation = initial(job)
    assert allocation.instances == job.instances
    assert allocation.generation == 1


def test_rescaling_keeps_the_generation_and_drops_what_was_meant_for_the_old_number() -> None:
    before = Allocation(
        "t/j", 3, {"a": 2, "b": 1}, weights={"a": (1, 2), "b": (1,)}, placement={"a": ("m1", None)}
    )
    after = before.rescaled({"a": 4})
    assert after.generation == 3
    assert after.next_generation().generation == 4
    assert after.parallelism == {"a": 4, "b": 1}
    assert after.weights == {"b": (1,)}
    assert after.placement == {}
    assert before.parallelism == {"a": 2, "b": 1}


def test_key_groups_that_were_moved_stay_moved_with_another_number_of_instances() -> None:
    moved = (0,) * 24 + (1,) * (KEY_GROUPS - 24)
    before = Allocation("t/j", 1, {"a": 2, "b": 2}, groups={"a": moved, "b": moved})
    after = before.rescaled({"a": 3})
    assert after.groups["a"][:24] == (0,) * 24
    assert [after.groups["a"].count(i) for i in range(3)] == [24, 500, 500]
    assert after.groups["b"] == moved


def test_rescaling_an_operator_that_is_not_there_is_refused() -> None:
    with pytest.raises(NotFound, match="'c'"):
        Allocation("t/j", 1, {"a": 1}).rescaled({"c": 2})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"parallelism": {"a": 0}}, "at least 1"),
        ({"parallelism": {"a": 2}, "weights": {"a": (1,)}}, "2 instances but 1 weights"),
        ({"parallelism": {"a": 2}, "weights": {"a": (0, 0)}}, "above 0"),
        ({"parallelism": {"a": 2}, "placement": {"a": ("m",)}}, "2 instances but 1 machines"),
    ],
)
def test_an_allocation_that_cannot_be_is_refused(wanted: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidAllocation, match=said):
        Allocation("t/j", 1, **wanted)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 7)), st.integers(1, 8))
def test_avoided_tasks_are_used_only_if_there_are_too_few_others(
    avoided: set[int], count: int
) -> None:
    """And they stay avoided when the number of instances changes."""
    before = Allocation("t/j", 1, {"o": 9}, avoided={"o": tuple(avoided)})
    wanted = before.rescaled({"o": count})
    used = wanted.instance_tasks("o", 8)
    assert len(used) == count
    assert list(used) == sorted(set(used))
    assert len(avoided & set(used)) == max(0, count - (8 - len(avoided)))


def test_a_new_version_keeps_what_still_fits_of_every_facet() -> None:
    """Operators whose number of instances changes lose what was meant for the old number; the
    others do not. Key groups go when records no longer come by key.
    """
    job = chain(operators=3)
    keyed = tuple(
        Edge(e.source, e.target, Grouping.BY_KEY, ("v",)) if e.target in {"o0", "o1"} else e
        for e in job.edges
    )
    before = Allocation(
        job.id,
        7,
        {"o0": 2, "o1": 2, "o2": 9},
        weights={"o0": (1.0, 2.0), "o2": (1.0,) * 9},
        placement={"o1": ("m0", None), "o2": (None,) * 9},
        batching_ms={edge.name: 5.0 for edge in job.edges},
        groups=dict.fromkeys(("o0", "o1"), (0, 1) * (KEY_GROUPS // 2)),
        avoided={"o0": (1,)},
    )
    after = carried_over(before, replace(job, edges=(*keyed[:1], *job.edges[1:])))
    assert after.generation == before.generation
    assert after.parallelism == {"o0": 2, "o1": 2, "o2": 8}
    assert after.weights == {"o0": (1.0, 2.0)}
    assert after.placement == {"o1": ("m0", None)}
    assert after.batching_ms == before.batching_ms
    assert set(after.groups) == {"o0"}
    assert after.avoided == {}
