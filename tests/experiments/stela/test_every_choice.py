"""Every choice of a scaling, run by itself, and where the strategies rank among them."""

import json
from dataclasses import replace

import pytest

from tests.experiments.test_pages import FOLDER
from trilithon.experiments.definition import Experiment
from trilithon.experiments.details_page import details_page
from trilithon.experiments.page import MOST_PLOTS, MOST_WORDS, page, words
from trilithon.experiments.plots import available_plots
from trilithon.experiments.results import read_results
from trilithon.experiments.stela import dags_section
from trilithon.experiments.stela.catalogue import EXPERIMENTS, GROUP_1, GROUP_2, SCALE_IN, STELA
from trilithon.experiments.stela.choices_section import section
from trilithon.experiments.stela.every_choice import (
    SAME,
    ScalingSetting,
    better,
    every_division,
    every_group,
    run_choices,
)
from trilithon.experiments.stela.stela_paper import PAPER
from trilithon.scenarios.chosen import load_chosen

RESULTS = read_results(FOLDER / "stela.json", PAPER)
CHOICES = {one["experiment"]: one for one in RESULTS.extra["choices"]["data"]}


def test_divisions_are_all_those_that_operators_have_tasks_for() -> None:
    setting = ScalingSetting.of("star", load_chosen())
    throughputs = every_division(setting)
    # Three instances among five operators of two: 35, without the five of three for one of four.
    assert len(throughputs) == 30
    stela = setting.chosen_by(STELA)
    assert any(value == pytest.approx(stela) for value in throughputs)
    assert setting.throughput(setting.places) < stela <= max(throughputs)


def test_groups_are_all_that_a_request_can_take_and_random_ones_are_among_them() -> None:
    setting = ScalingSetting.of("scale-in", load_chosen())
    one = replace(setting, request=replace(setting.request, machines=1))
    by_etp, in_turn = every_group(one)
    assert len(by_etp) == len(in_turn) == 8
    assert any(value == pytest.approx(one.chosen_by(STELA)) for value in by_etp)
    for name in (GROUP_1, GROUP_2):
        assert any(value == pytest.approx(one.chosen_by(name)) for value in in_turn)


def test_experiments_that_were_run_are_kept() -> None:
    kept = [CHOICES["pageload"]]
    told: list[str] = []
    assert not list(run_choices(1, told.append, load_chosen(), kept, ["pageload"]))
    assert not told


def test_ranks_count_those_that_are_better_by_more_than_nothing() -> None:
    assert better([100.0, 99.8, 90.0], 99.8) == 0
    assert better([100.0, 99.8, 90.0], 90.0) == 2


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_choice_alone_has_the_throughput_of_the_whole_run(experiment: Experiment) -> None:
    """The stored runs went through the controller, with a request, an outage and a recovery."""
    name = experiment.name
    result = RESULTS.experiment(name)
    assert result is not None
    for strategy, throughput in CHOICES[name]["chosen"].items():
        assert throughput == pytest.approx(result.facts[f"{strategy}, after"], rel=SAME / 5)


def test_the_section_says_which_figures_no_choice_can_have() -> None:
    text = section(list(CHOICES.values()))
    assert "No division gains what the paper prints for diamond, pageload and processing" in text
    assert "of all 70 groups of machines Stela's is number 1" in text
    changed = json.loads(json.dumps(CHOICES["diamond"]))
    changed["choices"][0] = 3 * changed["before"]
    other = section([changed])
    assert "No division gains" not in other
    assert "A better division than Stela's exists in diamond." in other
    worst = json.loads(json.dumps(CHOICES[SCALE_IN.name]))
    worst["chosen"][STELA] = worst["choices"][-1]
    assert "Stela's is number 70" in section([worst])


def test_the_section_says_what_the_best_tenth_of_few_groups_is() -> None:
    """The second of 15 was counted as one of the best tenth, and the page did not say so."""
    cases = json.loads(json.dumps(RESULTS.extra["dags"]["data"]))[:4]
    for case, better_groups in zip(cases, (0, 0, 1, 2), strict=True):
        case["in"]["better"] = better_groups
    text = dags_section.section(cases)
    assert "is among the best tenth in 75.0 % of the graphs" in text
    assert "The best tenth of 15 groups is one of the two best (13.3 %)." in text
    assert "Stela's is the best in 50.0 % of the graphs" in text


def test_the_section_says_whether_it_matters_how_often_a_sink_counts() -> None:
    cases = json.loads(json.dumps(RESULTS.extra["dags"]["data"]))
    same = "A sink once per path changes nothing in any of the 200 graphs."
    assert same in dags_section.section(cases)
    cases[0]["out"]["ETP alone, a sink once per path"] *= 0.9
    assert 'differs from "ETP alone" in 1 of 200 graphs' in dags_section.section(cases)


def test_the_pages_are_those_of_the_stored_results_and_short() -> None:
    # As the command writes it, with links to the parts that have pages of their own.
    own_pages = [each.name for each in PAPER.pages if (FOLDER / f"stela-{each.name}.json").exists()]
    first = page(RESULTS, PAPER, "stela", own_pages)
    assert (FOLDER / "stela.md").read_text(encoding="utf-8") == first
    details = details_page(RESULTS, PAPER, "stela")
    assert (FOLDER / "stela-details.md").read_text(encoding="utf-8") == details
    assert words(first) <= MOST_WORDS
    assert first.count("![") <= MOST_PLOTS
    drawn = available_plots(RESULTS, PAPER)
    assert len(drawn) == len(PAPER.plots)
    # Each plot is shown once, on one of the pages.
    assert all((first + details).count(f"]({plot.file})") == 1 for plot in drawn)


@pytest.mark.parametrize("figure", [4, 5, 6, "7a", "7c", 8])
def test_each_figure_of_the_papers_evaluation_has_a_place(figure: object) -> None:
    rows = [line for line in page(RESULTS, PAPER, "stela").splitlines() if line.startswith("| fig")]
    assert any(str(figure) in row.split("|")[1] for row in rows)
