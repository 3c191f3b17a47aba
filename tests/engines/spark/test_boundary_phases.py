"""The benchmarks of boundaries: what they compute, and a short form."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from bench import boundary_phases, pacing, restarts
from bench.boundary_phases import LEVERS, PHASES, Boundary, measure, parser
from bench.pacing import closest_s, stalls
from bench.proofs.traffic import Arrival, Outlet


def test_phases_follow_each_other_and_explain_the_stall() -> None:
    marks_s = (10.05, 10.15, 10.20, 10.30, 10.35, 10.37, 10.38, 10.40)
    boundary = Boundary(10.0, marks_s, stall_s=0.4)
    assert boundary.phases_ms == pytest.approx(
        dict(zip(PHASES, (50, 100, 50, 100, 50, 20, 10, 20), strict=True))
    )
    assert boundary.explained == pytest.approx(0.875)


def test_a_mark_that_is_too_early_makes_no_negative_phase() -> None:
    """Spark writes its commit asynchronously: it may be there after the next batch is planned."""
    marks_s = (10.05, 10.15, 10.35, 10.30, 10.32, 10.40, 10.41, 10.45)
    phases = Boundary(10.0, marks_s, stall_s=0.4).phases_ms
    assert phases["commit"] == pytest.approx(200)
    assert phases["planning"] == phases["tasks up"] == 0
    assert sum(phases.values()) == pytest.approx(450)


def test_what_happens_after_the_first_write_is_no_part_of_the_stall() -> None:
    marks_s = (10.05, 10.15, 10.60, 10.30, 10.32, 10.40, 10.41, 10.45)
    boundary = Boundary(10.0, marks_s, stall_s=0.4)
    assert boundary.phases_ms["commit"] == pytest.approx(300)
    assert boundary.explained == pytest.approx(1.0)


def test_an_interrupted_run_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[str, str, int, int]] = []

    @contextmanager
    def fake_scene(kind: str, cores: int, settings: dict[str, str]) -> Iterator[Any]:
        yield MagicMock(kind=kind, setting=" ".join(settings))

    def fake_run(around: Any, count: int, pmax: int, _: object) -> dict[str, int]:
        if len(runs) == 3:
            raise KeyboardInterrupt
        runs.append((around.kind, around.setting, count, pmax))
        return {"stall_ms_median": len(runs)}

    monkeypatch.setattr(boundary_phases, "scene", fake_scene)
    monkeypatch.setattr(boundary_phases, "run_jobs", fake_run)
    into = tmp_path / "phases.json"
    given = "--masters local --jobs 1 2 --pmax 4 --levers spark.locality.wait=0 --into"
    options = parser().parse_args([*given.split(), str(into)])
    with pytest.raises(KeyboardInterrupt):
        measure(options)
    runs.insert(0, ("earlier", "", 0, 0))  # the fourth run is let through
    results = measure(options)
    lever = "spark.locality.wait"
    assert runs[1:] == [("local", setting, jobs, 4) for setting in ("", lever) for jobs in (1, 2)]
    assert list(results) == [
        "local, 1 jobs, Pmax 4",
        "local, 2 jobs, Pmax 4",
        "local, 1 jobs, Pmax 4, spark.locality.wait=0",
        "local, 2 jobs, Pmax 4, spark.locality.wait=0",
    ]


def test_levers_are_tried_unless_none_is_asked_for() -> None:
    assert parser().parse_args([]).levers == LEVERS
    assert parser().parse_args(["--levers"]).levers == []


def test_stalls_that_are_long_or_close_miss_the_goal() -> None:
    good = {"lost": 0, "doubled": 0, "boundaries": 9, "stall_s_max": 0.5, "closest_s": 1.0}
    assert pacing.missed("local, 8 jobs, paced", good) == []
    assert pacing.missed("local, 8 jobs, paced", {**good, "closest_s": None}) == []
    long, close = {**good, "stall_s_max": 0.51}, {**good, "closest_s": 0.9}
    assert pacing.missed("local, 8 jobs, paced", {**long, "closest_s": 0.9}) == [
        "a stall takes 0.51 s, allowed are 0.5 s",
        "two stalls begin within 0.9 s, allowed are 1 s",
    ]
    assert pacing.missed("local, 8 jobs, paced", {**good, "boundaries": 0}) == ["no batch ended"]
    # Spark ends the batches of all jobs together: that is what is compared with.
    assert pacing.missed("local, 8 jobs, unpaced", {**close, "stall_s_max": 3.0}) == []
    assert pacing.missed("local, 8 jobs, unpaced", {**good, "lost": 2}) == ["2 records lost"]


@pytest.mark.parametrize(
    ("kind", "gap_ms", "met"),
    [
        ("local", 500, True),
        ("local", 501, False),
        ("local-cluster", 1500, True),
        ("cluster", 1501, False),
    ],
)
def test_a_gap_that_is_too_long_misses_the_goal(kind: str, gap_ms: int, *, met: bool) -> None:
    result = {"lost": 0, "doubled": 0, "gap_ms_max": gap_ms}
    assert (restarts.missed(kind, result, at_boundary=True) == []) == met
    # Restarts at once are there to be compared with.
    assert restarts.missed(kind, {**result, "doubled": 7}, at_boundary=False) == []
    assert restarts.missed(kind, {**result, "lost": 1}, at_boundary=False) == ["1 records lost"]


@pytest.mark.spark
@pytest.mark.kafka
def test_the_short_form_explains_the_stall_and_loses_nothing() -> None:
    short = "--masters local --jobs 1 --pmax 4 --boundaries 3 --warm-up 5 --levers"
    ((title, result),) = measure(parser().parse_args(short.split())).items()
    assert title == "local, 1 jobs, Pmax 4"
    assert result["boundaries"] == 3
    assert result["lost"] == result["doubled"] == 0
    assert 0.75 <= result["explained_median"] <= 1.25


def test_stalls_are_found_in_the_order_of_time() -> None:
    first, second = outlet(0.0, 0.1, 0.6, 0.7), outlet(0.0, 0.1, 0.2, 2.0)
    found = stalls([second, first], 0.0, 0.15)
    assert [at_s for at_s, _ in found] == [0.1, 0.2]
    assert [length_s for _, length_s in found] == pytest.approx([0.5, 1.8])
    assert closest_s(found) == pytest.approx(0.1)
    assert closest_s(found[:1]) is None


def outlet(*times_s: float) -> Outlet:
    """An outlet that has seen a record at each of these times."""
    seen = Outlet.__new__(Outlet)
    seen.arrivals = [Arrival(i, at_s, 0.0, (), at_s) for i, at_s in enumerate(times_s)]
    return seen


def test_a_stall_is_around_the_time_at_which_spark_planned_the_batch() -> None:
    seen = outlet(1.0, 1.1, 1.6)
    gap = seen.around(1.3)
    assert gap is not None
    assert [arrival.at for arrival in gap] == [1.1, 1.6]
    assert seen.around(0.5) is None
    assert seen.around(1.7) is None
