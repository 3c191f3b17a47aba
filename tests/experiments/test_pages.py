"""The pages of a paper: they hide nothing, and say nothing that is not in the numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.sample_results import experiment_of, sample_results
from trilithon.experiments.details_page import details_page
from trilithon.experiments.experiment_result import ComparedFigure
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.markdown import number
from trilithon.experiments.mixes import rank
from trilithon.experiments.page import (
    DISAGREE,
    MOST_PLOTS,
    MOST_WORDS,
    earlier_versions,
    page,
    words,
)
from trilithon.experiments.plots import available_plots, write_plots
from trilithon.experiments.results import PaperResults, read_results, results_to_json
from trilithon.experiments.sensitivity import MovedRun, NumberMove
from trilithon.experiments.spark_results import SparkRunResult
from trilithon.experiments.spark_section import spark_sentences
from trilithon.experiments.verdicts import FigureVerdict, judged_figures

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
    why = "1,800 s is 900 s more than the paper's 900 s. Because of this."
    assert f"- **priorities**, all intents met after: {why}" in text
    assert "**0 as in the paper**" in text
    assert "**1 better**, **1 worse**" in text
    details = details_page(results, paper, "henge")
    assert "| Reconfigurations | 13 steps | 9 steps | better |" in details
    assert f"- all intents met after: {why}" in details
    assert "| nine | Henge | 50.0 % | 5.0 % | 75.0 % | 7 | 12 | 24.5 |" in details
    assert "Nothing is random here: each strategy was run once." in details


def test_the_details_compare_moved_numbers_with_what_was_chosen() -> None:
    satisfaction = {"henge": 0.9, "threshold": 0.6, "uncontrolled": 0.1, "manual": 0.8}
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
    # An older file has no ds2.
    kept = "70.0 / 60.0 / – / 10.0 / 80.0 %"
    assert f"| diurnal two-days | `storm.waiting=kept` | {kept} |  |" in text
    as_chosen = "90.0 / 60.0 / – / 10.0 / 80.0 %"
    assert f"| diurnal two-days | `storm.outage` | {as_chosen} | {kept} |" in text
    ahead = "at least as good as threshold in 3, uncontrolled in 3 and manual in 1"
    assert ahead in text
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


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ((0.9, 0.8), "ahead in 2 of 2 turns (+10.0 to +20.0 points): it earns its keep."),
        ((0.9, 0.5), "ahead in 1 of 2 turns (-10.0 to +10.0 points): that does not decide"),
        ((0.7, 0.5), "ahead in 0 of 2 turns (-10.0 to -10.0 points): it does not earn its keep."),
    ],
)
def test_control_is_compared_with_none_in_the_same_turn(
    shares: tuple[float, float], sentence: str
) -> None:
    none = [SparkRunResult("none", share, 0.5, 0, {}, turn=i) for i, share in enumerate((0.8, 0.6))]
    runs = [SparkRunResult("henge", share, 0.5, 3, {}, turn=i) for i, share in enumerate(shares)]
    assert f"Against no control in the same turn, Henge is {sentence}" in spark_sentences(
        [*runs, *none], PAPER
    )
    assert "Against" not in spark_sentences(runs, PAPER)


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


def test_the_written_results_are_complete_and_of_one_version() -> None:
    results = read_results(FOLDER / "henge.json", PAPER)
    everybody = {strategy.name for strategy in PAPER.strategies}
    plotted = {strategy.name for strategy in PAPER.plotted_strategies}
    assert plotted > {"henge", "threshold", "ds2", "uncontrolled", "manual", "best static"}
    first = results.experiments[0].made_by
    for one in results.experiments:
        assert one.made_by == first, one.experiment.name
        expected = {"henge"} if one.experiment.policy_only else plotted
        for name, runs in one.summaries.items():
            assert runs.keys() == expected, name
            assert {run.runs for run in runs.values()} == {5}
            assert all(run.instance_hours for run in runs.values())
    assert first
    assert results.mixes_made_by == results.moved_made_by == first
    assert results.ranking is not None
    assert (results.ranking.mixes, set(results.ranking.mean)) == (200, everybody)
    assert set(results.ranking.instance_hours) == everybody


def test_a_page_is_short_and_the_rest_is_on_the_second_one() -> None:
    text = (FOLDER / "henge.md").read_text(encoding="utf-8")
    assert words("| a | b-c |\n| --- | --- |\n*two* words.") == 4
    assert 500 < words(text) <= MOST_WORDS
    assert 0 < text.count("![") <= MOST_PLOTS
    first = [plot for plot in PAPER.plots if not plot.in_details]
    assert len(first) <= MOST_PLOTS


def everything_worse() -> PaperResults:
    """All experiments, the mixes, moved numbers and Spark, with nothing as in the paper."""
    sample = sample_results()
    cheap = dict.fromkeys((strategy.name for strategy in PAPER.cheap_strategies), 0.5)
    plan = PAPER.sensitivity
    assert plan is not None
    moves = [
        MovedRun(NumberMove(experiment, variant, path, 1.0), cheap)
        for experiment, variant in plan.runs
        for path in (None, "arrivals.default=poisson")
    ]
    assert len(moves) == 16
    hours = [0.5, 0.9, *[1.0] * 22]
    runs = [
        SparkRunResult(policy, 0.9 - 0.1 * turn, 0.5, 300, {}, hours, turn)
        for turn in range(3)
        for policy in ("henge", "threshold", "none")
    ]
    experiments = [experiment_of(name, None) for name in PAPER.by_name]
    return replace(sample, experiments=experiments, moved=moves, spark=runs, mixes_made_by=None)


def test_whatever_the_results_are_the_page_is_short_and_counts_what_it_leaves_out() -> None:
    full = everything_worse()
    text = page(full, PAPER, "henge")
    assert text.count("![") <= MOST_PLOTS
    assert words(text) <= MOST_WORDS
    for head in ("## Random mixes", "## Chosen numbers", "## On Spark", "## How it was run"):
        assert head in text
    assert text.count(" arrivals.default=poisson |") == 2
    judged = [one for result in full.experiments for one in judged_figures(PAPER, result)]
    listed = [one for one in judged if one.compared.figure.headline or one.verdict in DISAGREE]
    shown = sum(text.count(f" | {verdict} |\n") for verdict in FigureVerdict)
    assert sum(one.compared.figure.headline for one in judged) <= shown < len(listed)
    left_out = f"… and {len(listed) - shown} more that are worse or different: [the details]"
    assert left_out in text
    # Without the other parts there is room for more.
    assert page(PaperResults(full.experiments), PAPER, "henge").count(" | worse |") > 35


def test_a_page_names_the_results_of_an_earlier_version() -> None:
    results = [experiment_of(name, None) for name in ("juice", "failure", "memory")]
    old, first, second = results
    mixed = PaperResults([old, replace(first, made_by="a"), replace(second, made_by="b")])
    text = page(mixed, PAPER, "henge")
    assert "and to be run again: juice." in text
    assert "The other results were made by 2 versions of the code." in text
    same = PaperResults([replace(result, made_by="a") for result in results])
    assert "version" not in "".join(earlier_versions(same))


def test_every_strategy_has_a_row_over_all_runs() -> None:
    text = page(sample_results(), PAPER, "henge")
    heads = "|  | satisfaction | worst tenth | instance-hours | Henge better in | same in |"
    assert heads in text
    # Six runs of `cost` and one of `priorities`.
    assert "Means over 7 runs" in text
    assert "| Henge | 50.0 % | 5.0 % | 172 |  |  |  |" in text
    for strategy in PAPER.strategies[1:]:
        assert f"| {strategy.name} | 25.0 % | 5.0 % | 172 | 7 | 0 | 0 |" in text, strategy.name


def test_means_over_the_mixes_have_intervals_and_gaps_are_taken_mix_by_mix() -> None:
    sample = sample_results()
    mixes = [
        replace(mix, satisfaction={**mix.satisfaction, "uncontrolled": 0.1 * mix.seed - 100.05})
        for mix in sample.mixes
    ]
    results = replace(sample, mixes=mixes, ranking=rank(mixes))
    text = page(results, PAPER, "henge")
    assert "| Henge | 10.0 % ± 24.8 % |  |" in text
    # Both swing from mix to mix, and by the same.
    assert "| uncontrolled | 5.0 % ± 24.8 % | +5.0 ± 0.0 points |" in text
    assert "a random mix has its own seed, moved numbers share one" in text
    # Without every mix that was ranked there is none.
    text = page(replace(results, mixes=mixes[:2]), PAPER, "henge")
    assert "| uncontrolled | 5.0 % | – |" in text
    assert "over all mixes" not in text


def test_the_written_plots_are_those_of_the_written_numbers(tmp_path: Path) -> None:
    results = read_results(FOLDER / "henge.json", PAPER)
    for plot in write_plots(results, PAPER, tmp_path):
        assert (FOLDER / plot.file).read_bytes() == (tmp_path / plot.file).read_bytes(), plot.file


def test_every_figure_that_does_not_agree_has_a_sentence() -> None:
    results = read_results(FOLDER / "henge.json", PAPER)
    for result in results.experiments:
        for judged in judged_figures(PAPER, result):
            agrees = judged.verdict is FigureVerdict.AGREES
            assert bool(judged.sentence) != agrees, (result.experiment.name, judged)


def test_what_the_first_format_did_not_keep_stays_missing(tmp_path: Path) -> None:
    results = sample_results()
    data = results_to_json(results, PAPER)
    for experiment in data["experiments"]:
        experiment["ways"] = experiment.pop("runs")
        del experiment["made_by"]
        for figure in experiment["figures"]:
            figure["what"] = figure.pop("figure")
            del figure["verdict"], figure["sentence"]
        for by_strategy in experiment["ways"].values():
            for summary in by_strategy.values():
                del summary["instance_hours"], summary["acted"], summary["p10"]
    data["mixes"]["ways"] = data["mixes"].pop("strategies")
    for pair in data["mixes"]["better"]:
        pair["way"] = pair.pop("strategy")
    data["format"] = "trilithon-henge-results/1"
    path = tmp_path / "henge.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    old = read_results(path, PAPER)
    assert old.ranking == results.ranking
    summary = old.experiments[0].summaries["40%"]["henge"]
    assert (summary.average, summary.at_end) == (0.5, 0.75)
    assert (summary.instance_hours, summary.worst_tenth, summary.acted) == (None, None, None)
    assert old.experiments[0].made_by is None
    assert details_page(old, PAPER, "henge")


def test_poisson_arrivals_stand_beside_the_chosen_ones() -> None:
    results = sample_results()
    assert "arrivals.default=poisson" not in page(results, PAPER, "henge")
    poisson = NumberMove("cost", "alone on 1", "arrivals.default=poisson", 1.0)
    shares = dict.fromkeys((strategy.name for strategy in PAPER.cheap_strategies), 0.75)
    both = replace(results, moved=[*results.moved, MovedRun(poisson, shares)])
    text = page(both, PAPER, "henge")
    assert "| run | Henge, as chosen | Henge, arrivals.default=poisson |" in text
    assert "| cost alone on 1 | 50.0 % | 75.0 % | 50.0 % | 75.0 % |" in text
