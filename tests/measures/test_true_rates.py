"""DS2's rates on a small window that can be checked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.strategies import COLUMNS
from trilithon.measures.true_rates import (
    needed_instances,
    selectivity,
    source_rate_ratio,
    true_processing_rate,
    wanted_input,
)
from trilithon.model.columns import Edges, Instances, Sources
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot

JOB = Job(
    tenant="t",
    name="chain",
    sources=(Source("s", COLUMNS, ()),),
    operators=(Operator("a", parallelism=Parallelism(3)), Operator("b")),
    edges=(Edge("s", "a"), Edge("a", "b"), Edge("b", "k")),
    sinks=(Sink("k", ()),),
)


def window(
    *,
    arrived: float = 1000,
    read: float = 200,
    a_taken: tuple[float, ...] = (100, 100, 0),
    a_busy_s: tuple[float, ...] = (5, 2, 0),
) -> Window:
    layout = Layout.build([JOB])
    assert layout.node_names == ("s", "a", "b", "k")
    snapshot = replace(
        Snapshot.empty(10, layout, {JOB.id: JOB}),
        since_s=0,
        sources=Sources.of(1, arrived=[arrived], taken=[read]),
        instances=Instances.of(4, taken=[*a_taken, 100], busy_s=[*a_busy_s, 4]),
        edges=Edges.of(3, emitted=[read, 100, 50], taken=[read, 100, 50]),
    )
    found = Series.of([snapshot]).window()
    assert found is not None
    return found


def test_the_true_rate_counts_working_time_of_the_instances_that_worked() -> None:
    rate = true_processing_rate(window())
    assert rate[1] == pytest.approx((20 + 50) / 2)
    assert rate[2] == pytest.approx(25)
    assert np.isnan(rate[[0, 3]]).all()


def test_what_the_log_grows_by_is_followed_through_the_selectivities() -> None:
    seen = window()
    assert selectivity(seen) == pytest.approx([1, 0.5, 0.5])
    assert wanted_input(seen) == pytest.approx([100, 100, 50, 25])
    assert needed_instances(seen)[1:3] == pytest.approx([100 / 35, 2])
    assert source_rate_ratio(seen) == pytest.approx([5])


def test_an_instance_that_was_not_measured_makes_the_rate_of_its_operator_unknown() -> None:
    seen = window(a_taken=(100, float("nan"), 0))
    assert np.isnan(true_processing_rate(seen)[1])
    assert np.isnan(needed_instances(seen)[1])


def test_records_that_arrive_and_are_not_read_leave_everything_after_them_unknown() -> None:
    seen = window(read=0, a_taken=(0, 0, 0), a_busy_s=(0, 0, 0))
    assert np.isnan(wanted_input(seen)[1:]).all()
    assert source_rate_ratio(seen) == [np.inf]


def test_where_nothing_arrives_nothing_is_needed() -> None:
    seen = window(arrived=0, read=0, a_taken=(0, 0, 0), a_busy_s=(0, 0, 0))
    assert wanted_input(seen)[:2].tolist() == [0, 0]
    assert needed_instances(seen)[1] == 0
    assert source_rate_ratio(seen) == [1]
