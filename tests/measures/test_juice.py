"""Juice, by the two examples that the papers work out and by what must hold for all jobs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import jobs, shape
from trilithon.measures.juice import juice, juice_over
from trilithon.model.columns import Edges, Sources
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot


def window_of(
    layout: Layout,
    sources: dict[str, tuple[float, float]],
    edges: dict[str, tuple[float, float]],
) -> Window:
    """Arrived and taken per source, emitted and taken per edge, in one second."""
    arrived, read = zip(*(sources[layout.node_names[n]] for n in layout.source_nodes), strict=True)
    names = [
        f"{layout.node_names[s]}>{layout.node_names[t]}"
        for s, t in zip(layout.edge_source, layout.edge_target, strict=True)
    ]
    emitted, taken = zip(*(edges[name] for name in names), strict=True)
    snapshot = replace(
        Snapshot.empty(1, layout),
        since_s=0,
        sources=Sources.of(len(arrived), arrived=arrived, taken=read),
        edges=Edges.of(len(names), emitted=emitted, taken=taken),
    )
    window = Series.of([snapshot]).window()
    assert window is not None
    return window


def by_name(layout: Layout, values: Any) -> dict[str, float]:
    return dict(zip(layout.node_names, map(float, values), strict=True))


K = 1000.0


def test_a_congested_branch_costs_its_part_of_the_juice() -> None:
    """Henge, section 6, example 1: 0.875."""
    layout, _ = shape("s>a", "a>b", "a>c", "b>d", "c>d", "d>k")
    found = juice(
        window_of(
            layout,
            {"s": (10 * K, 10 * K)},
            {
                "s>a": (10 * K, 10 * K),
                "a>b": (8 * K, 8 * K),
                "a>c": (8 * K, 6 * K),
                "b>d": (8 * K, 8 * K),
                "c>d": (6 * K, 6 * K),
                "d>k": (14 * K, 14 * K),
            },
        )
    )
    node = by_name(layout, found.node)
    assert (node["a"], node["b"], node["c"]) == (1, 0.5, 0.375)
    assert node["d"] == pytest.approx(0.875)
    assert found.job.tolist() == pytest.approx([0.875])


def test_two_sources_a_split_and_a_merge() -> None:
    """Henge's report, section 5, example 2: 0.475."""
    layout, _ = shape("s1>a", "s2>d", "d>e", "a>b", "e>b", "e>f", "b>c", "c>k1", "f>k2")
    found = juice(
        window_of(
            layout,
            {"s1": (10 * K, 10 * K), "s2": (10 * K, 10 * K)},
            {
                "s1>a": (10 * K, 5 * K),
                "s2>d": (10 * K, 10 * K),
                "d>e": (20 * K, 10 * K),
                "a>b": (5 * K, 5 * K),
                "e>b": (10 * K, 10 * K),
                "e>f": (10 * K, 8 * K),
                "b>c": (30 * K, 30 * K),
                "c>k1": (30 * K, 30 * K),
                "f>k2": (8 * K, 8 * K),
            },
        )
    )
    node = by_name(layout, found.node)
    assert node["e"] == 0.5
    assert node["b"] == pytest.approx(0.75)
    assert node["f"] == pytest.approx(0.2)
    assert found.job.tolist() == pytest.approx([0.475])


def test_the_weight_of_a_sink_moves_the_juice_towards_it() -> None:
    layout, _ = shape("s>a", "a>k1", "a>k2")
    window = window_of(
        layout, {"s": (100, 100)}, {"s>a": (100, 100), "a>k1": (100, 100), "a>k2": (100, 0)}
    )
    assert juice(window).job[0] == pytest.approx(0.5)
    assert juice(window, np.array([3.0, 1.0])).job[0] == pytest.approx(0.75)
    assert juice(window, np.array([0.0, 1.0])).job[0] == 0


def test_a_filter_that_drops_everything_leaves_nothing_over() -> None:
    layout, _ = shape("s>a", "a>k")
    window = window_of(layout, {"s": (100, 100)}, {"s>a": (100, 100), "a>k": (0, 0)})
    assert juice(window).job[0] == 1


def test_a_source_that_falls_behind_loses_juice_and_gains_it_back() -> None:
    layout, _ = shape("s>a", "a>k")
    behind = window_of(layout, {"s": (100, 60)}, {"s>a": (60, 60), "a>k": (60, 60)})
    ahead = window_of(layout, {"s": (100, 140)}, {"s>a": (140, 140), "a>k": (140, 140)})
    idle = window_of(layout, {"s": (0, 0)}, {"s>a": (0, 0), "a>k": (0, 0)})
    assert juice(behind).job[0] == pytest.approx(0.6)
    assert juice(ahead).job[0] == pytest.approx(1.4)
    assert juice(idle).job[0] == 1
    assert juice_over([behind, ahead, idle])[0] == pytest.approx(1.0)


def test_a_short_burst_weighs_no_more_than_its_part_of_the_minute() -> None:
    layout, _ = shape("s>a", "a>k")
    calm = window_of(layout, {"s": (100, 100)}, {"s>a": (100, 100), "a>k": (100, 100)})
    burst = window_of(layout, {"s": (1000, 500)}, {"s>a": (500, 500), "a>k": (500, 500)})
    assert juice_over([calm] * 5 + [burst])[0] == pytest.approx(5.5 / 6)


def test_weights_of_sinks_count_in_every_part() -> None:
    layout, _ = shape("s>a", "a>k1", "a>k2")
    window = window_of(
        layout, {"s": (100, 100)}, {"s>a": (100, 100), "a>k1": (100, 50), "a>k2": (100, 100)}
    )
    assert juice_over([window] * 2)[0] == pytest.approx(0.75)
    weights = np.array([3.0, 1.0])
    assert juice_over([window] * 2, [weights] * 2)[0] == pytest.approx(
        juice(window, weights).job[0]
    )
    assert juice(window, weights).job[0] == pytest.approx((3 * 0.5 + 1) / 4)


def test_a_missing_count_makes_juice_missing_not_zero() -> None:
    layout, _ = shape("s>a", "a>k")
    nan = float("nan")
    window = window_of(layout, {"s": (100, 100)}, {"s>a": (100, nan), "a>k": (100, 100)})
    assert np.isnan(juice(window).job[0])


@given(jobs(), st.data())
def test_a_job_that_leaves_nothing_over_has_juice_one_whatever_its_shape(
    job: Job, data: st.DataObject
) -> None:
    layout = Layout.build([job])
    edges = len(layout.edge_source)
    emitted = data.draw(st.lists(st.integers(0, 1000), min_size=edges, max_size=edges))
    snapshot = replace(
        Snapshot.empty(1, layout),
        since_s=0,
        sources=Sources.of(
            len(layout.source_nodes),
            arrived=[9] * len(layout.source_nodes),
            taken=[9] * len(layout.source_nodes),
        ),
        edges=Edges.of(edges, emitted=emitted, taken=emitted),
    )
    window = Series.of([snapshot]).window()
    assert window is not None
    assert juice(window).job.tolist() == pytest.approx([1.0])
    weights = np.array([sink.weight for sink in job.sinks])
    order = [
        job.sinks.index(next(s for s in job.sinks if s.name == layout.node_names[n]))
        for n in layout.sink_nodes
    ]
    weighted = juice(window, weights[order]).job[0]
    assert np.isnan(weighted) or weighted == pytest.approx(1.0)
