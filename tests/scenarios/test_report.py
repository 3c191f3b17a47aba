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


def boxes(page_: Page) -> list[dict[str, float]]:
    drawn = page_.locator("figure canvas").all()
    boxes_ = [canvas.bounding_box() for canvas in drawn]
    return [box for box in boxes_ if box is not None]  # type: ignore[misc]


def apart(first: dict[str, float], second: dict[str, float]) -> bool:
    return (
        first["x"] + first["width"] <= second["x"] + 1
        or second["x"] + second["width"] <= first["x"] + 1
        or first["y"] + first["height"] <= second["y"] + 1
        or second["y"] + second["height"] <= first["y"] + 1
    )


@pytest.mark.parametrize("width", [480, 1200, 1900])
def test_all_plots_are_drawn_side_by_side_without_an_error(report: Path, width: int) -> None:
    with page(width) as (opened, wrong):
        opened.goto(report.as_uri())
        opened.wait_for_selector("figure canvas")
        drawn = boxes(opened)
        assert len(drawn) == PLOTS
        assert all(box["width"] > 200 for box in drawn)
        assert all(apart(first, two) for first, two in combinations(drawn, 2))
        assert max(box["x"] + box["width"] for box in drawn) <= width
        assert opened.locator("#summary tbody tr").count() == 3
        assert "papers/pageload" in opened.locator("#acted").inner_text()
        assert wrong == []


def test_another_job_can_be_looked_at_and_the_window_made_smaller(report: Path) -> None:
    with page() as (opened, wrong):
        opened.goto(report.as_uri())
        opened.select_option("#which", label="papers/linear-1")
        legend = opened.locator("#job figure").nth(2).inner_text()
        assert "third" in legend
        assert len(boxes(opened)) == PLOTS
        opened.set_viewport_size({"width": 700, "height": 900})
        opened.wait_for_function(
            "[...document.querySelectorAll('figure canvas')]"
            ".every(canvas => canvas.getBoundingClientRect().right <= 700)"
        )
        assert max(box["x"] + box["width"] for box in boxes(opened)) <= 700
        assert wrong == []
