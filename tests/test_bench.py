"""The benchmarks can be run: what they are made of follows the model."""

import importlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from bench import chaos, control_plane, isolation
from bench.henge import scene
from bench.measures import parts, snapshots
from bench.proofs.traffic import Arrival
from trilithon.model.series import Series
from trilithon.policies.henge.henge_policy import HengePolicy

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py")))
def test_every_benchmark_can_be_imported_and_says_how_it_is_run(name: str) -> None:
    found = importlib.import_module(f"bench.{name}")
    assert f"python -m bench.{name}" in (found.__doc__ or "")


def test_what_the_measures_are_timed_on_is_a_window() -> None:
    window = Series(snapshots(3, np.random.default_rng(7))).window()
    assert window is not None
    for measure in parts(window).values():
        assert measure() is not None


def test_what_henge_is_timed_on_makes_it_decide() -> None:
    assert HengePolicy().decide(scene(3), {"seed": 1}).decisions


def test_what_the_control_plane_is_timed_on_reports_every_instance() -> None:
    result, drained = control_plane.driver(2, 4, 1)
    assert result["driver_cores"] > 0
    instances = [one for report in drained["reports"] for one in report["instances"]]
    assert len(instances) == 4 * 3 * 2
    assert all(one["taken"] > 0 for one in instances)
    assert control_plane.host_cores(drained, 4, 1) > 0


def test_what_disturbs_a_run_follows_from_its_seed() -> None:
    counts = {"rescale": 5, "driver": 2, "executor": 3, "broker": 5}
    plan = chaos.drawn(7, 100_000, counts)
    assert plan == chaos.drawn(7, 100_000, counts)
    assert plan != chaos.drawn(8, 100_000, counts)
    kinds = [item.kind for item in plan]
    assert {kind: kinds.count(kind) for kind in kinds} == counts
    assert [item.after for item in plan] == sorted(item.after for item in plan)
    # Records pass before the first and after the last.
    assert plan[0].after >= 5_000
    assert plan[-1].after < 90_000


def test_isolation_is_told_from_the_records_of_the_calm_tenants_side_by_side() -> None:
    arrivals = [Arrival(n, float(n), 0.001 * n, (), 0.0) for n in range(1, 101)]
    span = isolation.Span.of(arrivals, 400, 10.0)
    assert (span.per_s, span.noisy_per_s) == (10.0, 40.0)
    assert (span.p50_ms, span.p95_ms) == (51.0, 96.0)
    empty = isolation.Span.of([], 0, 10.0)
    assert empty.p50_ms is None
    run = {"before": asdict(span), "during": asdict(empty), "memory_mb": 900}
    lines = isolation.table({"one application": [run], "one per tenant": [run]})
    assert lines["others' p50 ms, before"].split() == ["51.0", "51.0"]
    assert lines["others' p50 ms, during"].split() == ["n/a", "n/a"]
    assert lines["memory MB"].split() == ["900", "900"]
