"""The page of a run, in a real browser: everything is drawn,
nothing is fetched, nothing overlaps.
"""

from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser import page
from tests.scenarios.test_scenarios import SMALL, written
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import load_scenario

pytestmark = pytest.mark.browser
PLOTS = 9


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    simulate(load_scenario(written(folder, SMALL)), folder / "run")
    return folder / "run" / "report.html"


def boxes(found: Page) -> list[dict[str, float]]:
    drawn = found.locator("figure canvas").all()
    return [box for one in drawn if (box := one.bounding_box()) is not None]  # type: ignore[misc]


def apart(one: dict[str, float], two: dict[str, float]) -> bool:
    return (
        one["x"] + one["width"] <= two["x"] + 1
        or two["x"] + two["width"] <= one["x"] + 1
        or one["y"] + one["height"] <= two["y"] + 1
        or two["y"] + two["height"] <= one["y"] + 1
    )


@pytest.mark.parametrize("width", [480, 1200, 1900])
def test_all_plots_are_drawn_side_by_side_without_an_error(report: Path, width: int) -> None:
    with page(width) as (found, wrong):
        found.goto(report.as_uri())
        found.wait_for_selector("figure canvas")
        drawn = boxes(found)
        assert len(drawn) == PLOTS
        assert all(box["width"] > 200 for box in drawn)
        assert all(apart(one, two) for one, two in combinations(drawn, 2))
        assert max(box["x"] + box["width"] for box in drawn) <= width
        assert found.locator("#summary tbody tr").count() == 3
        assert "papers/pageload" in found.locator("#acted").inner_text()
        assert wrong == []


def test_another_job_can_be_looked_at_and_the_window_made_smaller(report: Path) -> None:
    with page() as (found, wrong):
        found.goto(report.as_uri())
        found.select_option("#which", label="papers/linear-1")
        legend = found.locator("#job figure").nth(2).inner_text()
        assert "third" in legend
        assert len(boxes(found)) == PLOTS
        found.set_viewport_size({"width": 700, "height": 900})
        found.wait_for_timeout(200)
        assert max(box["x"] + box["width"] for box in boxes(found)) <= 700
        assert wrong == []
