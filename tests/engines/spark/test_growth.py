"""The benchmark of growth: what it compares, and its short form."""

import argparse

import pytest

from bench.growth import SLACK, Sample, grown, grown_parts, run, tenths


def test_the_last_tenth_is_compared_with_the_first() -> None:
    samples = [Sample(100.0 + i, 20_000.0, 60.0 + 0.05 * i, 9.0) for i in range(200)]
    results = tenths(samples)
    assert results["heap_mb"] == {"first": 109.5, "last": 289.5}
    assert grown(results) == ["heap_mb grew from 109.5 to 289.5"]
    assert grown(tenths(samples[:20])) == []


def test_what_grew_is_named_the_most_first() -> None:
    samples = [
        Sample(1.0, 1.0, 1.0, 1.0, {"threads dispatcher-#": 8 + i, "driver cells": 3 + 2 * i})
        for i in range(10)
    ]
    samples[0] = Sample(1.0, 1.0, 1.0, 1.0, {"threads dispatcher-#": 8, "executor tasks": 4})
    assert grown_parts(samples) == {
        "driver cells": "0 to 21",
        "threads dispatcher-#": "8 to 17",
    }


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_the_short_form_ends_batches_and_grows_neither_heap_nor_threads_of_the_host() -> None:
    options = argparse.Namespace(boundaries=6, losses=0, executors=0, jobs=1, pmax=2)
    results = run(options)
    assert (results["boundaries"], results["losses"]) == (6, 0)
    # Spark's pools of threads and the histograms in the reports are not full so soon.
    steady = {name: results[name] for name in ("heap_mb", "host_threads")}
    assert grown(steady) == []
    assert all(results[name]["last"] > 0 for name in SLACK)
