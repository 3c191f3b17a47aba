"""`trilithon top`: the order of jobs, and what keys do."""

import os
import pty
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cluster import chain
from trilithon.cli.keys import pressed_keys
from trilithon.cli.top_screen import ORDERS, TopScreen


def job(name: str, **more: Any) -> dict[str, Any]:
    operator = {
        "operator": "o0",
        "parallelism": 3,
        "processed_per_s": 120.0,
        "capacity": 0.5,
        "queue": None,
        "held_back": 0.25,
        "congested": False,
    }
    return {
        "job": name,
        "health": "running",
        "reason": "",
        "constraints": [],
        "operators": [operator],
        "max_utility": 10.0,
        "lost_utility": None,
        **more,
    }


JOBS = [
    job("a/met", utility=10.0, lost_utility=0.0, p95_ms=50.0, lag=1.0),
    job("a/unknown", max_utility=90.0),
    job("b/little", utility=9.0, lost_utility=1.0, p95_ms=400.0, lag=5.0),
    job("b/failed", health="failed", max_utility=5.0, lost_utility=5.0),
    job("c/much", utility=2.0, max_utility=35.0, lost_utility=33.0, p95_ms=90.0, lag=900.0),
]


def names(screen: TopScreen) -> list[str]:
    return [each["job"] for each in screen.jobs]


def shown(screen: TopScreen) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as captured:
        console.print(screen.draw("headline"))
    return captured.get()


@pytest.fixture
def screen() -> TopScreen:
    screen = TopScreen()
    screen.take(JOBS, [])
    return screen


def test_who_loses_most_utility_stands_first_and_the_unknown_before_those_that_lose_none(
    screen: TopScreen,
) -> None:
    assert names(screen) == ["c/much", "b/failed", "b/little", "a/unknown", "a/met"]
    screen.take([*JOBS, job("d/broken", health="not started")], [])
    assert names(screen)[:3] == ["c/much", "d/broken", "b/failed"]


def test_s_goes_through_the_orders_and_says_which(screen: TopScreen) -> None:
    seen = []
    for _ in ORDERS:
        assert f"sorted by {screen.order}" in shown(screen)
        seen.append(names(screen)[0])
        screen.press("s")
    assert seen == ["c/much", "a/met", "b/little", "c/much", "a/met"]
    assert screen.order == "lost utility"


def test_arrows_select_and_the_selection_stays_with_its_job(screen: TopScreen) -> None:
    assert screen.selected == "c/much"
    screen.press("up")
    screen.press("down")
    assert screen.selected == "b/failed"
    screen.take(list(reversed(JOBS)), [])
    assert screen.selected == "b/failed"
    screen.take(JOBS[:1], [])
    assert screen.selected == "a/met"


def test_p_asks_first_and_only_y_does_it(screen: TopScreen) -> None:
    assert screen.press("p") is None
    assert "Pause c/much?" in shown(screen)
    assert screen.press("n") is None
    assert "Nothing was changed" in shown(screen)
    screen.press("p")
    assert screen.press("y") == ("pause", "c/much")
    screen.press("down")
    screen.press("p")
    assert screen.press("y") == ("resume", "b/failed")


def test_g_draws_the_graph_with_numbers_and_w_the_reasons(screen: TopScreen) -> None:
    screen.graph = chain()
    screen.press("g")
    text = shown(screen)
    assert "●" in text
    assert "×3" in text
    assert "n/a" in text
    assert "25%" in text
    screen.explanations = [{"time": "12:00", "sentences": ["It decided.", "Based on: x 1."]}]
    screen.press("w")
    assert "Based on: x 1." in shown(screen)
    screen.press("escape")
    assert screen.view == "jobs"
    screen.press("q")
    assert screen.ended


def test_the_constraints_of_the_selected_job_are_below_the_table_and_its_graph(
    screen: TopScreen,
) -> None:
    """Only a terminal without keys showed them."""
    bounded = {
        "sequence": ["in->a", "a"],
        "mean_ms": 12.0,
        "at_most_ms": 20.0,
        "over_s": 5.0,
        "met": True,
    }
    expected = "in->a, a: mean 12.0 ms, at most 20 ms over 5 seconds met"
    assert expected not in shown(screen)
    screen.take([job("a/met", utility=10.0, constraints=[bounded])], [])
    assert expected in shown(screen)
    screen.graph = chain()
    screen.press("g")
    assert expected in shown(screen)


def test_keys_come_one_by_one_from_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        with pressed_keys() as key:
            assert key(0.0) is None
            for sent, name in ((b"s", "s"), (b"\x1b[A", "up"), (b"\x1b", "escape")):
                os.write(master, sent)
                assert key(60.0) == name
    os.close(master)


def test_without_a_terminal_keys_only_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        began = time.monotonic()
        with pressed_keys() as key:
            assert key(0.05) is None
        assert time.monotonic() - began >= 0.05
