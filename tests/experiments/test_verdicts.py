"""Verdicts are two-sided, and rows in which nothing was decided are not counted."""

from dataclasses import replace
from math import inf

import pytest

from tests.experiments.sample_results import SERIES, SUMMARY, WORSE, experiment_of
from trilithon.experiments.definition import (
    Experiment,
    FaultKind,
    FigureScope,
    PaperFigure,
    PlannedFault,
    Variant,
    in_words,
)
from trilithon.experiments.experiment_result import (
    ComparedFigure,
    ExperimentResult,
    RunSummary,
)
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.intervals import half_width
from trilithon.experiments.page import verdict_counts
from trilithon.experiments.results import PaperResults, results_from_json, results_to_json
from trilithon.experiments.verdicts import FigureVerdict, compare, judge, judged_figures

AGREES, BETTER, WORSE_, DIFFERENT = (
    FigureVerdict.AGREES,
    FigureVerdict.BETTER,
    FigureVerdict.WORSE,
    FigureVerdict.DIFFERENT,
)
SUMMARIES = {"henge": SUMMARY, "uncontrolled": WORSE, "manual": WORSE, "best static": SUMMARY}


def figure(
    value: float = 100.0,
    unit: str = "s",
    more: bool | None = False,
    scope: FigureScope | None = None,
) -> PaperFigure:
    return PaperFigure("it", value, unit, "1", more, scope=scope or FigureScope())


def result_of(
    compared: PaperFigure,
    ours: float | None,
    summaries: dict[str, RunSummary] | None = None,
    faults: tuple[PlannedFault, ...] = (),
    void: str = "",
) -> ExperimentResult:
    experiment = Experiment(
        "e", "", "", 5000, (Variant("v", (), faults=faults),), (compared,), plotted=()
    )
    one = ComparedFigure(compared, ours, void=void)
    return ExperimentResult(experiment, (one,), {"v": summaries or SUMMARIES})


def judged(*given: object, **more: object) -> tuple[FigureVerdict, str]:
    result = result_of(*given, **more)  # type: ignore[arg-type]
    (one,) = judged_figures(PAPER, result)
    return one.verdict, one.sentence


@pytest.mark.parametrize(
    ("more", "unit", "paper", "ours", "verdict"),
    [
        # Within 10 %, on both sides.
        (False, "steps", 100, 110, AGREES),
        (False, "steps", 100, 90, AGREES),
        (False, "steps", 100, 111, WORSE_),
        (False, "steps", 100, 89, BETTER),
        (True, "steps", 100, 111, BETTER),
        (True, "steps", 100, 89, WORSE_),
        (None, "steps", 2, 3, DIFFERENT),
        (None, "steps", 2, 1, DIFFERENT),
        # Within a percentage point, for shares.
        (None, "ratio", 0.000006, 0.0099, AGREES),
        (None, "ratio", 0.000006, 0.0101, DIFFERENT),
        (True, "ratio", 0.003, 0.0131, BETTER),
        (True, "ratio", 0.9, 0.82, AGREES),
        (True, "ratio", 0.9, 0.80, WORSE_),
        # Within a control round, for times.
        (False, "s", 20, 30, AGREES),
        (False, "s", 20, 31, WORSE_),
        # A number of 0 has no tenth.
        (False, "steps", 0, 0, AGREES),
        (False, "steps", 0, 1, WORSE_),
        # Never reached.
        (False, "s", 100, None, WORSE_),
        (None, "s", 100, None, DIFFERENT),
    ],
)
def test_a_verdict_is_two_sided(
    more: bool | None, unit: str, paper: float, ours: float | None, verdict: FigureVerdict
) -> None:
    assert compare(ComparedFigure(figure(paper, unit, more), ours)) is verdict


def test_a_time_is_compared_from_when_the_paper_counts() -> None:
    since = FigureScope(since_s=900.0)
    # 10 % of the 800 s after the policy may act, not of the 1,700 s of the run.
    assert compare(ComparedFigure(figure(1700, scope=since), 1780.0)) is AGREES
    assert compare(ComparedFigure(figure(1700, scope=since), 1790.0)) is WORSE_
    # Other numbers have no such moment.
    share = figure(0.992, "ratio", None, FigureScope(since_s=4000.0))
    assert compare(ComparedFigure(share, 0.36)) is DIFFERENT


def test_a_sentence_is_made_of_the_numbers() -> None:
    verdict, sentence = judged(figure(0.9, "ratio", True), 0.5)
    assert verdict is WORSE_
    assert sentence == (
        "50.0 % is 40.0 points less than the paper's 90.0 %; Henge has 50.0 % of the utility on "
        "average after 7 actions, uncontrolled 25.0 %, manual 25.0 %, best static 50.0 %. The "
        "search finds no static allocation that ends higher (75.0 %)."
    )
    verdict, sentence = judged(figure(100, "s"), None)
    assert (verdict, sentence.partition(";")[0]) == (
        WORSE_,
        "Not reached, unlike the paper's 100 s",
    )
    assert judged(figure(), 100.0) == (AGREES, "")


def test_a_strategy_alone_says_what_its_number_is() -> None:
    static = figure(0.9, "ratio", True, FigureScope(strategy="uncontrolled"))
    _, sentence = judged(static, 0.5, {"uncontrolled": WORSE, "manual": SUMMARY})
    assert "; uncontrolled has 25.0 % of the utility on average, manual 50.0 %." in sentence


def test_it_is_void_if_the_policy_took_no_action_where_the_papers_did() -> None:
    idle = {**SUMMARIES, "henge": replace(SUMMARY, actions=0, acted=())}
    sentence = "Henge took no action, and the paper's did."
    assert judged(figure(), 1.0, idle) == (FigureVerdict.VOID, sentence)
    # It acted at 1,000 s only.
    late = figure(scope=FigureScope(decided_s=(1001.0, inf)))
    sentence = "Henge took no action after 1,001 s, and the paper's did."
    assert judged(late, 1.0) == (FigureVerdict.VOID, sentence)
    early = figure(scope=FigureScope(decided_s=(0.0, 1000.0)))
    assert judged(early, 1.0)[0] is BETTER
    # What another strategy reaches does not depend on the policy's actions.
    manual = figure(scope=FigureScope(strategy="manual"))
    assert judged(manual, 1.0, idle)[0] is BETTER


def test_results_that_do_not_tell_when_the_policy_acted_make_nothing_void() -> None:
    unknown = {**SUMMARIES, "henge": replace(SUMMARY, acted=None)}
    late = figure(scope=FigureScope(decided_s=(1001.0, inf)))
    assert judged(late, 1.0, unknown)[0] is BETTER
    # The series of a plotted run tells.
    result = replace(result_of(late, 1.0, unknown), series={"v": {"henge": SERIES}})
    assert judge(PAPER, result, result.figures[0]).verdict is FigureVerdict.VOID


def test_it_is_void_if_it_makes_no_difference_whether_there_is_a_policy() -> None:
    same = {name: replace(SUMMARY, average=0.999 + 0.0001 * i) for i, name in enumerate(SUMMARIES)}
    verdict, sentence = judged(figure(), 1.0, same)
    assert verdict is FigureVerdict.VOID
    assert "Henge, uncontrolled and manual are the same (99.9 % to 99.9 %)" in sentence
    apart = {**same, "manual": replace(SUMMARY, average=0.99)}
    assert judged(figure(), 1.0, apart)[0] is BETTER


def test_it_is_void_if_the_end_of_the_fault_brought_satisfaction_back() -> None:
    recovery = figure(2000, scope=FigureScope(recovery=True))
    fault = (PlannedFault(FaultKind.CPU_LOAD, 1000, 1500),)
    verdict, sentence = judged(recovery, 1600.0, None, fault)
    assert verdict is FigureVerdict.VOID
    assert "came back at 1,600 s, after the fault had ended by itself at 1,500 s" in sentence
    # While the fault lasts, it was the policy.
    assert judged(recovery, 1400.0, None, fault)[0] is BETTER
    lasting = (PlannedFault(FaultKind.CPU_LOAD, 1000, 5000),)
    assert judged(recovery, 1600.0, None, lasting)[0] is BETTER


def test_a_measure_can_say_that_nothing_was_decided() -> None:
    verdict = judged(figure(), None, void="All shares tie.")
    assert verdict == (FigureVerdict.VOID, "All shares tie.")


@pytest.mark.parametrize(
    ("paper", "unit", "each", "verdict", "sentence"),
    [
        (0.8, "ratio", (None, 0.7, None, None, None), FigureVerdict.VOID, ""),
        (
            0.992,
            "ratio",
            (0.36, 0.36, None, 0.32, 0.36),
            DIFFERENT,
            "35.0 % in 4 of 5 runs is ",
        ),
        (5000, "s", (4010.0, 4010.0, None, 4010.0, 4010.0), DIFFERENT, "4,010 s in 4 of 5 runs is"),
        (0.35, "ratio", (0.36, 0.36, None, 0.32, 0.36), AGREES, ""),
    ],
)
def test_where_neither_direction_is_better_runs_without_a_number_are_left_out(
    paper: float,
    unit: str,
    each: tuple[float | None, ...],
    verdict: FigureVerdict,
    sentence: str,
) -> None:
    neither = figure(paper, unit, None)
    one = ComparedFigure.of_seeds(neither, each)
    known = [value for value in each if value is not None]
    assert one.ours == pytest.approx(sum(known) / len(known))
    told = judge(PAPER, replace(result_of(neither, None), figures=(one,)), one)
    assert told.verdict is verdict
    assert told.sentence.startswith(sentence)
    if verdict is FigureVerdict.VOID:
        assert told.sentence == "Nothing was decided in 4 of 5 runs."
    else:
        assert one.half_width == half_width(known)


def test_a_number_that_some_run_does_not_reach_is_none_where_a_direction_is_better() -> None:
    one = ComparedFigure.of_seeds(figure(more=False), (90.0, None, 90.0))
    assert (one.ours, one.half_width, compare(one)) == (None, None, WORSE_)


def test_stored_results_get_the_mean_of_the_runs_that_have_a_number() -> None:
    each = (0.36, 0.36, None, 0.35, 0.36)
    result = experiment_of("juice")
    figures = tuple(ComparedFigure.of_seeds(one.figure, each) for one in result.figures)
    results = PaperResults([replace(result, figures=figures)])
    data = results_to_json(results, PAPER)
    for stored in data["experiments"][0]["figures"]:
        stored["ours"] = None
    (read,) = results_from_json(data, PAPER).experiments
    assert [one.ours for one in read.figures] == pytest.approx([0.3575, 0.3575, None, None])


def test_void_and_incomparable_figures_are_not_counted() -> None:
    result = experiment_of("cost", 0.93)
    text = verdict_counts(judged_figures(PAPER, result))
    assert "Of 3 figures that the texts print, 2 are counted: **2 as in the paper**" in text
    assert "void" not in text
    assert text.endswith(" 1 cannot be compared.")
    missing = replace(result, figures=tuple(replace(one, measured=False) for one in result.figures))
    text = verdict_counts(judged_figures(PAPER, missing))
    assert "0 are counted" in text
    assert "2 have no number in the stored results." in text
    idle = {**SUMMARIES, "henge": replace(SUMMARY, actions=0, acted=())}
    void = judged_figures(PAPER, result_of(figure(), 1.0, idle))
    assert "0 are counted" in verdict_counts(void)
    assert verdict_counts(void).endswith("a fault's end brought satisfaction back.")
    assert " 1 is void: " in verdict_counts(void)
    all_counted = verdict_counts(2 * judged_figures(PAPER, result_of(figure(), 1.0)))
    assert all_counted.startswith("All 2 figures that the texts print are counted: **0 as in the")
    assert all_counted.endswith(
        "**2 better**, **0 worse**, **0 different** (no direction is better)."
    )


def test_a_void_figure_says_why_nothing_was_decided() -> None:
    because = replace(PAPER, void_reasons={("e", "it"): lambda _: "The load is small."})
    result = result_of(figure(), None, void="Nothing was changed.")
    (one,) = judged_figures(because, result)
    assert one.verdict is FigureVerdict.VOID
    assert one.sentence == "Nothing was changed. The load is small."


def test_words_agree_where_they_hold_and_are_quoted_where_they_do_not() -> None:
    said = in_words("gain", "barely improves", 0.0, (0.0, 0.05), "ratio", "1")
    assert judged(said, 0.03) == (AGREES, "")
    verdict, sentence = judged(said, -0.02)
    assert verdict is DIFFERENT
    assert sentence.startswith("-2.0 % here; the paper says “barely improves”")
    verdict, sentence = judged(said, None)
    assert verdict is DIFFERENT
    assert "Not reached, unlike the paper's “barely improves”" in sentence
