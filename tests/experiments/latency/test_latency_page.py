"""The page of the latency paper: each run beside its rival, what is missed, why figures differ."""

from dataclasses import replace
from pathlib import Path

import pytest

from trilithon.experiments.details_page import details_page
from trilithon.experiments.experiment_result import ExperimentResult
from trilithon.experiments.latency.catalogue import LATENCY
from trilithon.experiments.latency.latency_paper import PAPER
from trilithon.experiments.latency.overview import (
    errors_text,
    missed_spans,
    missed_text,
    overview,
)
from trilithon.experiments.latency.reasons import REASONS, edge_batching_ms
from trilithon.experiments.page import page
from trilithon.experiments.plots import write_plots
from trilithon.experiments.results import PaperResults, read_results
from trilithon.experiments.run_series import RunSeries

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "results"
RESULTS = read_results(FOLDER / "latency.json", PAPER)
SERIES = RESULTS.experiments[0].series["20 ms"][LATENCY]


def result_of(experiment: str) -> ExperimentResult:
    result = RESULTS.experiment(experiment)
    assert result is not None
    return result


def with_series(series: RunSeries) -> PaperResults:
    first = replace(RESULTS.experiments[0], series={"20 ms": {LATENCY: series}})
    return PaperResults([first])


def with_figure(experiment: str, name: str, ours: float) -> ExperimentResult:
    result = result_of(experiment)
    figures = tuple(
        replace(each, ours=ours) if each.figure.name == name else each for each in result.figures
    )
    return replace(result, figures=figures)


def test_the_written_pages_and_plots_are_those_of_the_written_numbers(tmp_path: Path) -> None:
    own_pages = [each.name for each in PAPER.pages]
    for name, text in (
        ("latency.md", page(RESULTS, PAPER, "latency", own_pages)),
        ("latency-details.md", details_page(RESULTS, PAPER, "latency")),
    ):
        assert (FOLDER / name).read_text(encoding="utf-8") == text
    for plot in write_plots(RESULTS, PAPER, tmp_path):
        assert (FOLDER / plot.file).read_bytes() == (tmp_path / plot.file).read_bytes(), plot.file


def test_each_run_stands_beside_its_rival() -> None:
    """Means over all runs set seven of one strategy beside one of another."""
    text = page(RESULTS, PAPER, "latency")
    assert "| primetester | 20 ms | 97.9 % | threshold | 32.9 % | 42.2 | 75.0 |" in text
    assert "| primetester | 30 ms | 95.1 % | – | – | 34.9 | – |" in text
    assert "| primetester | unelastic | – | uncontrolled | 0.0 % | – | 41.4 |" in text
    assert "10 runs" not in text
    assert overview(PaperResults([]), PAPER) == ""


def test_missed_intervals_are_told_beside_the_steps_of_the_load() -> None:
    assert missed_text(RESULTS).startswith(
        "At 20 ms the promise is missed for 10 s from 60 s on (the load doubles) and for 5 s from "
        "120 s on (the load rises to 30,000 records/s); in no other interval (first seed)."
    )
    kept = replace(SERIES, utility=(1.0, None, 1.0))
    assert "missed in no interval" in missed_text(with_series(kept))
    later = replace(SERIES, utility=(1.0, 1.0, 0.0, 0.0, None, 0.0))
    assert missed_spans(later) == [(15.0, 10.0), (30.0, 5.0)]
    assert "for 10 s from 15 s on and for 5 s from 30 s on;" in missed_text(with_series(later))
    assert missed_text(with_series(replace(SERIES, step_s=25.0))) == ""
    assert missed_text(PaperResults([])) == ""


def test_the_errors_of_the_model_are_those_of_the_stored_predictions() -> None:
    text = errors_text(RESULTS)
    first = "primetester, 20 ms: 82 checks, median error 0.24 ms, where records wait 3.2 ms"
    second = "two weeks: 306 checks, median error 0.24 ms, where records wait 2.1 ms"
    assert first in text
    assert second in text
    three = (("tester", 1.0, 2.0), ("tester", 2.0, 1.5), ("tester", 4.0, 7.0))
    text = errors_text(with_series(replace(SERIES, predictions=three)))
    assert "3 checks, median error 1.00 ms, where records wait 2.0 ms in the median." in text
    assert errors_text(with_series(replace(SERIES, predictions=()))) == ""


def test_reasons_are_about_figures_of_the_catalogue() -> None:
    figures = {(e.name, figure.name) for e in PAPER.experiments for figure in e.figures}
    assert set(REASONS) <= figures


def test_adaptive_batching_is_explained_only_where_it_peaks_as_high_as_full_buffers() -> None:
    # (0.8 · (0.9 · 20 − 2.56) − 2 · 0.2) / 2
    assert edge_batching_ms() == pytest.approx(5.976)
    name = "peak throughput, adaptive"
    explain = REASONS["batching", name]
    why = explain(result_of("batching"))
    assert why is not None
    # 1 + 67,713 / 200 · 0.005976
    assert "a tester gathers 3.0 records at the peak, about as many as the 4 of a full" in why
    assert "67,178 records/s" in why
    later = REASONS["batching", "20 ms lost, adaptive"]
    assert "for the reason given for its peak" in (later(result_of("batching")) or "")
    assert later(with_figure("batching", name, 60_000.0)) is None
    assert explain(with_figure("batching", name, 60_000.0)) is None


def test_what_a_record_takes_before_anything_waits_is_of_the_chosen_numbers() -> None:
    why = REASONS["batching", "latency in the warm-up, instant"](result_of("batching"))
    assert why is not None
    assert "takes 4.2 ms: by the chosen numbers a tester works 2.56 ms and ships for 1.22" in why


def test_an_interval_is_told_only_if_it_contains_the_papers_number() -> None:
    name = "instances of sentiment that the burst adds"
    explain = REASONS["twittersentiment", name]
    why = explain(result_of("twittersentiment"))
    assert why is not None
    assert "over 3 seeds, 25.6 to 45.7 instances, contains the paper's 28 instances." in why
    assert explain(with_figure("twittersentiment", name, 40.0)) is None


def test_the_axis_says_what_is_drawn_and_no_time_is_only_observed(tmp_path: Path) -> None:
    write_plots(RESULTS, PAPER, tmp_path)
    for name in ("primetester", "twittersentiment"):
        text = (tmp_path / f"plots/latency-{name}.svg").read_text(encoding="utf-8")
        assert "share of promises kept" in text
        assert "policies only observe" not in text
        assert "total utility" not in text
