"""Rates, back-pressure, capacity, skew and slopes, on small windows that can be checked by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import COLUMNS
from trilithon.measures import capacity, rates, skew
from trilithon.measures.queueing import (
    channel_latency,
    edge_waiting,
    operator_load,
    transport,
    waiting,
)
from trilithon.measures.trend import slope
from trilithon.model.columns import Edges, Instances, Sinks, Sources
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot

nan = float("nan")


def chain() -> Job:
    return Job(
        tenant="t",
        name="chain",
        sources=(Source("s", COLUMNS, ()),),
        operators=(Operator("a", parallelism=Parallelism(4)), Operator("b")),
        edges=(Edge("s", "a"), Edge("a", "b"), Edge("b", "k")),
        sinks=(Sink("k", ()),),
    )


@pytest.fixture
def window() -> Window:
    layout = Layout.build([chain()])
    assert layout.node_names == ("s", "a", "b", "k")
    snapshot = replace(
        Snapshot.empty(10, layout),
        since_s=0,
        sources=Sources.of(1, arrived=[3000], taken=[1000]),
        sinks=Sinks.of(1, written=[500]),
        instances=Instances.of(
            5,
            sent=[400, 250, 250, 250, 1000],
            taken=[250, 250, 250, 250, 1000],
            busy_s=[5, 2.5, 2.5, 2.5, 1],
            busy_sq_s2=[0.2, 0.05, 0.05, 0.05, 0.002],
            cpu_s=[0.5, 0.5, 0.5, 0.5, 0.9],
            gaps=[100, 100, 100, 100, 100],
            gap_s=[4, 4, 4, 4, 1],
            gap_sq_s2=[0.32, 0.32, 0.32, 0.32, 0.02],
        ),
        edges=Edges.of(
            3,
            emitted=[1150, 1000, 500],
            taken=[1000, 1000, 500],
            parked_s=[4, 0, 0],
            senders=[2, 4, 1],
            transfers=[100, 100, 100],
            channel_s=[2, 0.5, 0.1],
            batching_s=[0.5, 0.2, 0.0],
            idle_transport_s=[0.001, 0.001, 0.001],
        ),
    )
    found = Series.of([snapshot]).window()
    assert found is not None
    return found


def test_the_processing_rate_is_what_was_taken(window: Window) -> None:
    assert rates.processing_rate(window).tolist() == [100, 100, 100, 50]


def test_the_input_rate_counts_what_was_held_back(window: Window) -> None:
    """Parked for 20 % of the time, the readers would have sent a quarter more."""
    assert rates.back_pressure(window).tolist() == pytest.approx([0.2, 0, 0])
    assert rates.input_rate(window).tolist() == pytest.approx([300, 115 / 0.8, 100, 50])
    assert rates.emit_rate(window).tolist() == [115, 100, 50, 0]
    assert window.lag.tolist() == [2000]


def test_dhalions_factor_turns_time_held_back_into_missing_instances() -> None:
    assert rates.scale_up_factor(np.array([0.0, 0.2, 0.5])).tolist() == pytest.approx([0, 0.25, 1])
    assert np.isfinite(rates.scale_up_factor(np.array([1.0]))).all()


def test_back_pressure_starts_where_edges_in_are_blocked_and_edges_out_are_not(
    window: Window,
) -> None:
    assert rates.back_pressure_origin(window).tolist() == [False, True, False, False]
    both = replace(window, edges=replace(window.edges, parked_s=np.array([4.0, 8.0, 0.0])))
    assert rates.back_pressure_origin(both).tolist() == [False, False, True, False]


def test_capacity_is_that_of_the_busiest_instance(window: Window) -> None:
    found = capacity.capacity(window)
    assert np.isnan(found[[0, 3]]).all()
    assert found[1:3].tolist() == [0.5, 0.1]
    assert capacity.congested_by_capacity(found).tolist() == [False, True, False, False]
    assert capacity.cpu_capacity(window)[1] == pytest.approx(0.05)
    assert capacity.service_s(window)[1] == pytest.approx(0.0125)


def test_congestion_by_rates_compares_what_comes_with_what_is_done(window: Window) -> None:
    asked, done = rates.input_rate(window), rates.processing_rate(window)
    assert capacity.congested_by_rates(asked, done).tolist() == [True, True, False, False]
    assert not capacity.congested_by_rates(np.array([100.0]), np.array([100.0]), 1.0).any()
    assert capacity.congested_by_rates(np.array([1.0]), np.array([0.0])).all()
    assert not capacity.congested_by_rates(np.array([nan, 1.0]), np.array([1.0, nan])).any()


def test_waiting_is_channel_latency_less_batching_less_idle_transport(window: Window) -> None:
    assert waiting(window)[1:].tolist() == pytest.approx([0.014, 0.002, 0.0])
    assert channel_latency(window).tolist() == pytest.approx([0.02, 0.005, 0.001])


def test_load_averages_over_instances_and_not_over_records(window: Window) -> None:
    """Latency guarantees, equation 2: S and c are means of the instances' own."""
    found = operator_load(window)
    assert found.service_s[1] == pytest.approx(0.0125)
    assert found.arrival_per_s[1] == pytest.approx(25)
    assert found.utilisation[1] == pytest.approx(0.3125)
    assert found.arrival_cv2[1] == pytest.approx(1.0)
    variations = [(0.2 / 250 / 0.02**2 - 1) ** 0.5, (0.05 / 250 / 0.01**2 - 1) ** 0.5]
    mean = (variations[0] + 3 * variations[1]) / 4
    assert found.service_cv2[1] == pytest.approx(mean**2)

    # A slow instance that takes fewer counts as much as the others, and one that takes none not.
    few = replace(
        window.instances,
        taken=np.array([25.0, 250, 250, 0, 1000]),
        busy_s=np.array([0.5, 2.5, 2.5, 0, 1]),
        gaps=np.array([25.0, 100, 100, 0, 100]),
        gap_s=np.array([10.0, 4, 4, 0, 1]),
    )
    found = operator_load(replace(window, instances=few))
    assert found.service_s[1] == pytest.approx((0.02 + 0.01 + 0.01) / 3)
    assert found.arrival_per_s[1] == pytest.approx((2.5 + 25 + 25 + 0) / 4)


def test_an_instance_that_was_not_measured_leaves_the_load_of_its_operator_unknown(
    window: Window,
) -> None:
    unknown = replace(window.instances, taken=np.array([nan, 250, 250, 250, 1000]))
    found = operator_load(replace(window, instances=unknown))
    assert np.isnan(found.service_s[1])
    assert found.service_s[2] == pytest.approx(0.001)


def test_where_two_streams_meet_each_edge_has_its_own_waiting() -> None:
    """Latency guarantees, equation 4: a sequence waits as the records of its own edge do."""
    job = replace(
        chain(),
        sources=(Source("s", COLUMNS, ()), Source("t", COLUMNS, ())),
        edges=(Edge("s", "a"), Edge("t", "a"), Edge("a", "b"), Edge("b", "k")),
    )
    layout = Layout.build([job])
    snapshot = replace(
        Snapshot.empty(10, layout),
        since_s=0,
        edges=Edges.of(
            4,
            transfers=[100, 300, 100, 100],
            channel_s=[2, 1.5, 0.5, 0.1],
            batching_s=[0.5, 0, 0.2, 0],
            idle_transport_s=[0.001, 0.001, 0.001, 0.001],
        ),
    )
    seen = Series.of([snapshot]).window()
    assert seen is not None
    assert transport(seen)[:2].tolist() == pytest.approx([0.006, 0.001])
    assert edge_waiting(seen)[:2].tolist() == pytest.approx([0.014, 0.004])
    assert waiting(seen)[2] == pytest.approx((100 * 0.014 + 300 * 0.004) / 400)


def test_imbalance_is_the_largest_over_the_mean(window: Window) -> None:
    found = skew.imbalance(window.layout, window.queue)
    assert found[1] == pytest.approx(4)  # all that waits, waits at one of four
    assert found[2] == 1  # one instance is always even
    assert np.isnan(found[[0, 3]]).all()


def test_the_slope_of_a_queue_leaves_out_what_is_missing() -> None:
    times = np.array([0.0, 10.0, 20.0, 30.0])
    values = np.array([[0, 5, nan, nan], [100, 5, nan, 1], [200, 5, 7, nan], [300, nan, 9, nan]])
    found = slope(times, values)
    assert found[:3].tolist() == pytest.approx([10, 0, 0.2])
    assert np.isnan(found[3])


@given(st.floats(-100, 100), st.floats(-1e4, 1e4), st.integers(2, 20))
def test_the_slope_of_a_line_is_its_slope(m: float, c: float, n: int) -> None:
    times = 1e6 + np.arange(n, dtype=float)
    assert slope(times, (m * (times - 1e6) + c)[:, None])[0] == pytest.approx(m, abs=1e-6)
