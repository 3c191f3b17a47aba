"""The benchmark beside queries that are written by hand: how it goes on, and its short form."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from bench import hand_written
from bench.hand_written import ROWS, measure, parser


def test_rounds_before_the_first_that_counts_are_taken_and_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []

    class FakeTurns:
        def __init__(self, *_: object) -> None:
            pass

        def take(self, name: str) -> dict[str, float | None]:
            taken.append(name)
            return {"p50_ms": float(len(taken))}

    monkeypatch.setattr(hand_written, "Turns", FakeTurns)
    given = "--queries plain trilithon --rounds 2 --warm-rounds 1"
    rounds = hand_written.compare(MagicMock(), "ysb", parser().parse_args(given.split()))
    assert taken == ["plain", "trilithon", "trilithon", "plain", "plain", "trilithon"]
    assert rounds == {
        "plain": [{"p50_ms": 4.0}, {"p50_ms": 5.0}],
        "trilithon": [{"p50_ms": 3.0}, {"p50_ms": 6.0}],
    }


def test_an_interrupted_run_goes_on_with_the_workload_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, str]] = []

    @contextmanager
    def fake_scene(kind: str, cores: int, settings: dict[str, str]) -> Iterator[Any]:
        yield MagicMock(kind=kind)

    def fake_compare(around: Any, workload: str, _: object) -> dict[str, list[dict[str, float]]]:
        if len(compared) == 3:
            raise KeyboardInterrupt
        compared.append((around.kind, workload))
        return {"plain": []}

    monkeypatch.setattr(hand_written, "scene", fake_scene)
    monkeypatch.setattr(hand_written, "compare", fake_compare)
    options = parser().parse_args(["--into", str(tmp_path / "rounds.json")])
    with pytest.raises(KeyboardInterrupt):
        measure(options)
    compared.insert(0, ("earlier", ""))  # the fourth is let through
    results = measure(options)
    both = ("base64", "ysb")
    assert compared[1:] == [(kind, name) for kind in ("local", "cluster") for name in both]
    assert list(results) == ["base64, local", "ysb, local", "base64, cluster", "ysb, cluster"]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "queries"),
    [("base64", ("plain", "staged", "open-gate")), ("ysb", ("staged", "trilithon"))],
)
def test_the_short_form_gives_all_figures_of_each_query_and_loses_nothing(
    workload: str, queries: tuple[str, ...]
) -> None:
    short = "--masters local --rounds 1 --warm-rounds 0 --seconds 3 --warm-up 3 --rate 200"
    given = [*short.split(), "--records", "100000", "--workloads", workload, "--queries", *queries]
    ((title, rounds),) = measure(parser().parse_args(given)).items()
    assert title == f"{workload}, local"
    assert tuple(rounds) == queries
    for name, (measured,) in rounds.items():
        assert measured["lost"] == measured["doubled"] == 0, name
        by_hand = name in {"plain", "staged"}
        unknown = {row for row in ROWS if measured[row] is None}
        assert unknown == ({"parked_s"} if by_hand else set()), name
        assert (measured["rate_per_s"] or 0) > 200, name
