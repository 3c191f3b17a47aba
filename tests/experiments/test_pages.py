"""The pages of a paper: they hide nothing, and say nothing that is not in the numbers."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.sample_results import experiment_of, sample_results
from trilithon.experiments.details_page import details_page
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.markdown import number, reason
from trilithon.experiments.page import page, spark_sentences
from trilithon.experiments.plots import available_plots, write_plots
from trilithon.experiments.results import PaperResults, read_results
from trilithon.experiments.sensitivity import MovedRun, NumberMove
from trilithon.experiments.spark_results import SparkRunResult
from trilithon.experiments.suite import ComparedFigure

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "results"


def test_a_page_shows_the_paper_ours_and_why_where_ours_is_worse() -> None:
    result = experiment_of("priorities")
    figures = [one.figure for one in result.figures]
    compared = (ComparedFigure(figures[0], 1800.0), ComparedFigure(figures[1], 9.0))
    result = replace(result, figures=compared)
    paper = replace(
        PAPER, reasons={("priorities", "all intents met after"): lambda _: "Because of this."}
    )
    results = PaperResults([result])
    text = page(results, paper, "henge")
    assert "| priorities | all intents met after | 900 s | 1,800 s | worse |" in text
    assert "- **priorities**, all intents met after: Because of this." in text
    assert "1 are as good as the paper's or better, 1 are worse" in text
    details = details_page(results, paper, "henge")
    assert "| Reconfigurations | 13 steps | 9 steps |  |" in details
    assert "- Because of this." in details
    assert "50.0 / 75.0 %" in details


def test_the_details_compare_moved_numbers_with_what_was_chosen() -> None:
    satisfaction = {"henge": 0.9, "uncontrolled": 0.1, "manual": 0.8}
    worse = {**satisfaction, "henge": 0.7}
    names = [figure.name for figure in PAPER.by_name["diurnal"].figures]
    figures: dict[str, float | None] = dict.fromkeys(names, 0.25)
    late = {**figures, "median, Henge": 0.5, "longest convergence": None}

    def run(
        path: str | None,
        factor: float,
        shares: dict[str, float],
        values: dict[str, float | None],
    ) -> MovedRun:
        return MovedRun(NumberMove("diurnal", "two-days", path, factor), shares, values)

    moved = [
        run(None, 1.0, satisfaction, figures),
        run("storm.outage", 0.5, satisfaction, figures),
        run("storm.outage", 1.5, worse, late),
        run("storm.waiting=kept", 1.0, worse, figures),
    ]
    text = details_page(PaperResults([], None, [], moved, ["machine.cores"]), PAPER, "henge")
    assert "| diurnal two-days | median, Henge | 99.1 % | 25.0 % | 25.0 % | 50.0 % |" in text
    assert "| longest convergence | 960 s | 0.2 s | 0.2 s | 0.2 s, none in 1 |" in text
    assert "| diurnal two-days | `storm.waiting=kept` | 70.0 / 10.0 / 80.0 % |  |" in text
    outage = "| diurnal two-days | `storm.outage` | 90.0 / 10.0 / 80.0 % | 70.0 / 10.0 / 80.0 % |"
    assert outage in text
    assert "the largest move is 20.0 points" in text
    assert "because it is 0: `machine.*`.\n" in text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.8812, "ratio", "88.1 %"),
        (0.000006, "ratio", "0.0006 %"),
        (5734, "s", "5,734 s"),
        (6.7, "times", "6.7 ×"),
        (None, "s", "–"),
    ],
)
def test_numbers_are_written_with_their_unit(value: float | None, unit: str, shown: str) -> None:
    assert number(value, unit) == shown


def test_sentences_about_spark_are_written_from_the_numbers() -> None:
    def run(policy: str, share: float, actions: int, hours: list[float]) -> SparkRunResult:
        return SparkRunResult(policy, share, 0.5, actions, {}, hours)

    runs = [run("henge", 0.9, 5, [1.0, 0.5, 0.9]), run("none", 0.8, 0, [1.0, 0.4, 1.0])]
    text = spark_sentences(runs, PAPER)
    assert "90.0 % under Henge (5 actions) and 80.0 % under none (0 actions)" in text
    assert "at most 10.0 points apart" in text
    assert "91.7 % of what all runs lose together" in text  # 1.1 of 1.2
    assert "under every policy (1, counted from 0)" in text
    assert "every policy" not in spark_sentences([run("henge", 0.9, 5, [1.0])], PAPER)


def test_plots_have_the_same_bytes_whenever_they_are_drawn(tmp_path: Path) -> None:
    results = sample_results()
    names = [plot.file for plot in available_plots(results, PAPER)]
    assert names == [
        "plots/henge-priorities.svg",
        "plots/henge-cost.svg",
        "plots/henge-mixes.svg",
        "plots/henge-chosen.svg",
    ]
    for folder in ("one", "two"):
        assert [plot.file for plot in write_plots(results, PAPER, tmp_path / folder)] == names
    for name in names:
        one, two = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
        assert one == two
        assert b"<dc:date>" not in one


def test_the_written_pages_are_those_of_the_written_numbers() -> None:
    results = read_results(FOLDER / "henge.json", PAPER)
    assert [one.experiment.name for one in results.experiments] == list(PAPER.by_name)
    for name, text in (
        ("henge.md", page(results, PAPER, "henge")),
        ("henge-details.md", details_page(results, PAPER, "henge")),
    ):
        assert (FOLDER / name).read_text(encoding="utf-8") == text


def test_the_written_plots_are_those_of_the_written_numbers(tmp_path: Path) -> None:
    results = read_results(FOLDER / "henge.json", PAPER)
    for plot in write_plots(results, PAPER, tmp_path):
        assert (FOLDER / plot.file).read_bytes() == (tmp_path / plot.file).read_bytes(), plot.file


def test_every_figure_that_is_worse_or_missing_has_one_sentence_of_reason() -> None:
    results = read_results(FOLDER / "henge.json", PAPER)
    for result in results.experiments:
        for compared in result.figures:
            why = reason(PAPER, result, compared)
            if compared.worse or compared.ours is None:
                assert why, (result.experiment.name, compared.figure.name)
            if why is not None:
                assert len(re.findall(r"\. [A-Z]", why)) == 0, why
