"""Sketches: right within one per cent, the same in whatever order they are merged."""

import numpy as np
import pytest
from ddsketch import DDSketch
from hypothesis import given
from hypothesis import strategies as st

from trilithon.measures.sketch import merge, of_values, quantile, share_below
from trilithon.model.sketches import ALPHA, Sketches, bucket_of, difference, summed, value_of

latencies = st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=200)
quantiles = st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0])


@given(latencies, quantiles)
def test_a_quantile_is_within_one_per_cent_of_the_true_one(values: list[float], q: float) -> None:
    true = float(np.quantile(values, q, method="inverted_cdf"))
    assert quantile(of_values(values), q)[0] == pytest.approx(true, rel=ALPHA * 1.001)


@given(latencies, quantiles)
def test_it_agrees_with_the_library_that_the_field_uses(values: list[float], q: float) -> None:
    peer = DDSketch(relative_accuracy=ALPHA)
    for value in values:
        peer.add(value)
    # The library counts from the first record to the last, we count records.
    rank = max(0, int(np.ceil(q * len(values) - 1e-9)) - 1)
    expected = peer.get_quantile_value(min(1.0, rank / max(1, len(values) - 1) + 1e-12))
    # Both are within one per cent of the same value, from buckets with other borders.
    assert quantile(of_values(values), q)[0] == pytest.approx(expected, rel=2.1 * ALPHA)


@given(st.lists(latencies, min_size=2, max_size=5), st.randoms())
def test_merging_loses_nothing_and_knows_no_order(parts: list[list[float]], random: object) -> None:
    together = of_values([value for part in parts for value in part])
    rows = Sketches.of(of_values(part).row(0) for part in parts)
    merged = merge(rows, np.zeros(len(parts), np.int64), 1)
    backwards = merge(
        rows.take(np.arange(len(parts))[::-1].copy()), np.zeros(len(parts), np.int64), 1
    )
    assert merged.equals(together)
    assert backwards.equals(together)


@given(st.lists(st.none() | latencies, min_size=1, max_size=6), quantiles)
def test_many_rows_at_once_are_the_same_as_one_by_one(
    rows: list[list[float] | None], q: float
) -> None:
    together = Sketches.of(None if row is None else of_values(row).row(0) for row in rows)
    found = quantile(together, q)
    for row, value in zip(rows, found, strict=True):
        if row is None:
            assert np.isnan(value)
        else:
            assert value == quantile(of_values(row), q)[0]


@given(latencies, latencies)
def test_a_difference_is_what_came_in_between(before: list[float], between: list[float]) -> None:
    no, yes = np.array([False]), np.array([True])
    grown = difference(of_values(before), of_values(before + between), no, no)
    assert grown.equals(of_values(between))
    anew = difference(of_values(before), of_values(between), yes, no)
    assert anew.equals(of_values(between))
    assert not difference(of_values(before), of_values(before + between), no, yes).known[0]


def test_a_bucket_that_fell_makes_the_row_unknown() -> None:
    no = np.array([False])
    fell = difference(Sketches.of([{10: 100.0}]), Sketches.of([{10: 5.0, 20: 5.0}]), no, no)
    assert fell.row(0) is None
    with pytest.raises(ValueError, match="must not be negative"):
        Sketches.of([{1: -5.0}])


def test_a_missing_latency_is_no_latency_of_zero() -> None:
    assert quantile(of_values([float("nan"), 5.0]), 0.5)[0] == pytest.approx(5, rel=ALPHA)
    with pytest.raises(ValueError, match="missing"):
        bucket_of([float("nan")])


def test_a_group_with_an_unmeasured_part_is_not_known() -> None:
    rows = Sketches.of([{10: 1.0}, None, {20: 2.0}])
    merged = merge(rows, np.array([0, 0, 1]), 3)
    assert merged.known.tolist() == [False, True, False]
    assert np.isnan(quantile(merged, 0.5)).tolist() == [True, False, True]


def test_weights_count_records_more_than_once() -> None:
    rows = Sketches.of([{0: 10.0}, {500: 10.0}])
    group = np.array([0, 0])
    assert quantile(merge(rows, group, 1, np.array([1.0, 100.0])), 0.5)[0] > 1000
    # Of a single sink the weight changes nothing, however small.
    alone = of_values(np.linspace(1, 100, 1000))
    for weight in (1e-3, 1.0, 50.0):
        merged = merge(alone, np.array([0]), 1, np.array([weight]))
        assert quantile(merged, 0.99)[0] == quantile(alone, 0.99)[0]


def test_a_sink_that_weighs_nothing_need_not_be_known() -> None:
    rows = Sketches.of([{0: 10.0}, None])
    merged = merge(rows, np.array([0, 0]), 1, np.array([1.0, 0.0]))
    assert merged.row(0) == {0: 10.0}


def test_the_share_below_a_bound() -> None:
    sketch = of_values([10.0] * 95 + [1000.0] * 5)
    assert share_below(sketch, 200)[0] == pytest.approx(0.95)
    assert np.isnan(share_below(Sketches.missing(1), 200)[0])


@given(st.floats(1e-3, 1e9))
def test_a_bucket_stands_for_each_of_its_values_within_one_per_cent(value: float) -> None:
    assert value_of(bucket_of(value)) == pytest.approx(value, rel=ALPHA * 1.001)


def test_entries_of_one_bucket_are_added_and_empty_ones_dropped() -> None:
    found = summed(
        np.array([1, 1, 0]), np.array([3, 3, 5]), np.array([2.0, -2.0, 1.0]), np.ones(2, bool)
    )
    assert found.row(0) == {5: 1.0}
    assert found.row(1) == {}
