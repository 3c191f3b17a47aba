"""Intents: thresholds, their average, and sequences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import thresholds
from trilithon.errors import InvalidIntent
from trilithon.model.intent import EdgeName, Intent, Metric, Threshold, quantile_of, sequence_of


def test_a_hybrid_slo_is_the_average_of_its_parts_times_the_priority() -> None:
    intent = Intent((Threshold(Metric.LATENCY, 70), Threshold(Metric.JUICE, 1.0)), priority=35)
    assert intent.max_utility == 35
    assert intent.utility({"latency.mean": 140, "juice": 1.0}) == pytest.approx(35 * 0.75)
    assert intent.utility({"latency.mean": 60, "juice": 1.0}) == 35


def test_a_missing_value_makes_the_utility_missing_not_zero() -> None:
    intent = Intent((Threshold(Metric.LATENCY, 70), Threshold(Metric.JUICE, 1.0)))
    assert intent.utility({"latency.mean": 50}) is None
    assert intent.utility({"latency.mean": 50, "juice": None}) is None
    assert Intent().utility({"latency.mean": 50}) is None


def test_an_intent_is_missed_as_soon_as_one_threshold_is() -> None:
    intent = Intent((Threshold(Metric.LATENCY, 200, "p95"), Threshold(Metric.JUICE, 0.95)))
    assert intent.satisfied({"latency.p95": 100, "juice": 1}) is True
    assert intent.satisfied({"latency.p95": 300, "juice": None}) is False
    assert intent.satisfied({"latency.p95": 100, "juice": None}) is None
    assert Intent().satisfied({}) is None


@given(st.lists(thresholds(), min_size=1, max_size=4), st.floats(0.1, 100), st.data())
def test_utility_stays_between_zero_and_the_maximum(
    asked: list[Threshold], priority: float, data: st.DataObject
) -> None:
    intent = Intent(tuple(asked), priority)
    measured = {t.key: data.draw(st.floats(0, 1e6)) for t in asked}
    utility = intent.utility(measured)
    assert utility is not None
    assert 0 <= utility <= intent.max_utility * (1 + 1e-12)


@pytest.mark.parametrize(
    ("statistic", "quantile"),
    [
        ("p50", 0.5),
        ("p95", 0.95),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.5", 0.995),
        ("mean", None),
    ],
)
def test_statistics_have_quantiles(statistic: str, quantile: float | None) -> None:
    assert quantile_of(statistic) == quantile


@pytest.mark.parametrize("statistic", ["p49", "p100", "95", "median", "p9", "p99.99", ""])
def test_what_is_not_a_statistic_is_refused(statistic: str) -> None:
    with pytest.raises(InvalidIntent):
        quantile_of(statistic)


def test_a_sequence_may_begin_and_end_with_an_edge_and_fills_in_the_edges_between() -> None:
    assert sequence_of(["a->b", "b", "b->c"]) == (EdgeName("a", "b"), "b", EdgeName("b", "c"))
    assert sequence_of(["a", "b"]) == ("a", EdgeName("a", "b"), "b")
