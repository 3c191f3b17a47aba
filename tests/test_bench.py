"""The benchmarks can be run: what they are made of follows the model."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from bench import control_plane
from bench.henge import scene
from bench.measures import parts, snapshots
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
