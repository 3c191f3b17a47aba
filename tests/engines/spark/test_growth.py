"""The benchmark of growth: what it compares, and its short form."""

import argparse
from typing import Any

import pytest

from bench.growth import (
    FIGURES,
    POOLS,
    SLACK,
    Sample,
    grown,
    grown_parts,
    most_threads,
    run,
    tenths,
    verdict,
)


def test_the_last_tenth_is_compared_with_the_first() -> None:
    samples = [Sample(100.0 + i, 20_000.0, 60.0 + 0.05 * i, 9.0) for i in range(200)]
    results = tenths(samples)
    assert results["heap_mb"] == {"first": 109.5, "last": 289.5}
    assert grown(results, SLACK) == ["heap_mb grew from 109.5 to 289.5"]
    assert grown(results) == [
        "heap_mb grew from 109.5 to 289.5",
        "driver_threads grew from 60.5 to 69.5",
    ]
    assert grown(tenths(samples[:20]), SLACK) == []


def test_the_verdict_lets_ten_percent_pass_and_some_mb_in_short_runs_alone() -> None:
    def results(boundaries: int, last_mb: float, most: int) -> dict[str, Any]:
        same = {"first": 10.0, "last": 11.0}
        heap = {"heap_mb": {"first": 50.0, "last": last_mb}}
        figures = {**dict.fromkeys(FIGURES, same), **heap}
        return {"boundaries": boundaries, "pools": {POOLS[0]: most}, **figures}

    assert verdict(results(500, 55.0, 100)) == []
    assert verdict(results(500, 56.0, 100)) == ["heap_mb grew from 50 to 56"]
    assert verdict(results(10, 56.0, 100)) == []
    (above,) = verdict(results(10, 55.0, 101))
    assert above.endswith("had 101, more than Spark's limit of 100")


def test_pools_that_take_a_thread_per_task_are_counted_apart() -> None:
    samples = [Sample(1.0, 1.0, 1.0, 1.0, {POOLS[0]: threads}) for threads in (3, 90, 41)]
    assert most_threads(samples) == {POOLS[0]: 90, POOLS[1]: 0}


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
    options = argparse.Namespace(boundaries=6, losses=0, executors=0, jobs=1, pmax=2, warm_up=0.0)
    results = run(options)
    assert (results["boundaries"], results["losses"]) == (6, 0)
    # Spark's pools of threads and the histograms in the reports are not full so soon.
    steady = {name: results[name] for name in ("heap_mb", "host_threads")}
    assert grown(steady, SLACK) == []
    assert all(results[name]["last"] > 0 for name in FIGURES)
