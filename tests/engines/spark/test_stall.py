"""The stall at a batch's end and the floor that it puts under latencies."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.test_validation import GOOD
from trilithon.engines.spark.stall import floor_ms, stall_s, unreachable_thresholds
from trilithon.model.intent import Intent, Metric, Threshold


@given(st.floats(5, 3600), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_the_floor_is_the_quantile_of_records_that_wait_for_nothing_else(
    batch_s: float, quantile: float
) -> None:
    """Records come evenly over a batch; those in the stall wait for its end, others do not."""
    job = replace(GOOD, batch_s=batch_s)
    at_s = np.linspace(0, batch_s, 200_001)
    waits_ms = 1000 * np.maximum(0, stall_s(job.tasks) - at_s)
    assert floor_ms(job, quantile) == pytest.approx(np.quantile(waits_ms, quantile), abs=20)
    assert floor_ms(job, None) == pytest.approx(waits_ms.mean(), rel=0.02, abs=0.5)


def test_only_thresholds_below_the_floor_are_told() -> None:
    latencies = [Threshold(Metric.LATENCY, 100, s) for s in ("p99", "p50", "mean")]
    asked = Intent((*latencies, Threshold(Metric.JUICE, 0.9)))
    sentences = unreachable_thresholds(replace(GOOD, batch_s=10.0, intent=asked))
    assert len(sentences) == 1
    assert "p99 latency ≤ 100 ms cannot be met" in sentences[0]
    assert unreachable_thresholds(replace(GOOD, batch_s=300.0, intent=asked)) == []
