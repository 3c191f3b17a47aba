"""Sentences about Henge's figures and findings say what the numbers show, and nothing else."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.experiments.sample_results import SERIES, SUMMARY, WORSE, experiment_of
from trilithon.experiments.experiment_result import ComparedFigure, ExperimentResult
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.henge.reasons import REASONS

STEP = "RECONFIGURATION"


def with_figures(result: ExperimentResult, **each: tuple[float | None, ...]) -> ExperimentResult:
    """The result with other numbers; a name's spaces and commas are written as underscores."""
    figures = tuple(
        ComparedFigure.of_seeds(one.figure, each[key])
        if (key := one.figure.name.replace(",", "").replace(" ", "_")) in each
        else one
        for one in result.figures
    )
    return replace(result, figures=figures)


def with_summaries(result: ExperimentResult, **changed: Any) -> ExperimentResult:
    (by_strategy,) = result.summaries.values()
    (variant,) = result.summaries
    return replace(result, summaries={variant: {**by_strategy, **changed}})


def test_steps_are_counted_in_all_runs_or_in_the_plotted_one() -> None:
    acted = ((1000.0, STEP), (21_900.0, STEP), (22_000.0, STEP), (22_100.0, "REDUCTION"))
    series = replace(SERIES, actions=((1000.0, STEP), (1300.0, STEP), (1500.0, STEP)))
    result = with_summaries(experiment_of("cpu-spike"), henge=replace(SUMMARY, acted=acted, runs=5))
    result = replace(result, series={"eight": {"henge": series}})
    # The plotted run is the first; the mean over all is 1,500 s.
    result = with_figures(result, first_converged_by=(1400.0, 1500.0, 1600.0))
    assert REASONS["cpu-spike", "first converged by"](result) == (
        "Henge takes one step at a time and watches each: in the plotted run 2 × reconfiguration "
        "until then."
    )
    steps = "In five runs, 2 × reconfiguration and 1 × reduction after the spike."
    assert REASONS["cpu-spike", "jobs reduced"](result) == steps
    assert REASONS["cpu-spike", "recovered by"](result) == (
        f"{steps} It ends at 75.0 %, the best static allocation at 75.0 % and threshold at 75.0 %."
    )
    idle = with_summaries(result, henge=replace(SUMMARY, acted=acted[:1]))
    assert REASONS["cpu-spike", "jobs reduced"](idle) is None


def test_rounds_that_are_the_same_explain_nothing() -> None:
    why = REASONS["stateful", "longer with state"]
    result = experiment_of("stateful")
    same = with_figures(result, rounds_stateful=(1.0,), rounds_stateless=(1.0,))
    assert why(same) is None
    more = with_figures(result, rounds_stateful=(2.0,), rounds_stateless=(1.0,))
    assert why(more) == "Jobs with state need 2 rounds, those without 1 round."


def test_an_allocation_for_the_median_explains_a_lower_number_only() -> None:
    name = "average satisfaction, manual"
    result = with_summaries(
        experiment_of("diurnal"), manual=WORSE, **{"best static": replace(SUMMARY, average=0.9)}
    )
    below = with_figures(result, average_satisfaction_manual=(0.5,))
    assert REASONS["diurnal", name](below) == (
        "The manual allocation has 12 instances, sized for the median load; the best static one "
        "has 12 instances and reaches 90.0 %."
    )
    above = with_figures(result, average_satisfaction_manual=(0.95,))
    assert REASONS["diurnal", name](above) is None


@pytest.mark.parametrize(
    ("strict_s", "lax_s", "what"),
    [
        (None, None, "neither a promise of 40 ms nor one of 50 ms is ever blacklisted"),
        (1000.0, None, "only the promise of 40 ms is blacklisted"),
        (None, 1000.0, "only the promise of 50 ms is blacklisted"),
        (900.0, 1000.0, "the promise of 40 ms is blacklisted earlier than that of 50 ms"),
        (1000.0, 1000.0, "the promise of 40 ms is blacklisted as early as that of 50 ms"),
        (1100.0, 1000.0, "the promise of 40 ms is blacklisted later than that of 50 ms"),
    ],
)
def test_a_promise_that_is_never_blacklisted_is_not_later(
    strict_s: float | None, lax_s: float | None, what: str
) -> None:
    facts = {
        "runs": 40,
        "runs without a change": 16,
        "40 ms blacklisted at": strict_s,
        "50 ms blacklisted at": lax_s,
        "40 ms Reconfigurations": 5,
        "50 ms Reconfigurations": 6,
    }
    sentence = PAPER.findings["initial-configuration"].sentence(facts)
    assert sentence.startswith(
        f"Henge changes nothing in 16 of 40 runs. With twice the load {what}; "
    )


@pytest.mark.parametrize(
    ("one", "two", "chosen"), [(0.96, 1.0, True), (0.96, 0.97, False), (1.0, 1.0, False)]
)
def test_cores_were_chosen_by_a_job_that_misses_with_one_and_meets_with_two(
    one: float, two: float, chosen: bool
) -> None:
    facts = {"alone on 1 cores, at the end": one, "alone on 2 cores, at the end": two}
    assert ("was chosen by that" in PAPER.findings["cost"].sentence(facts)) is chosen


@pytest.mark.parametrize(
    ("correlation", "said"),
    [
        (-0.3, "a rank correlation of -0.30: juice falls as the queue grows, as in"),
        (0.3, "a rank correlation of 0.30: the two do not move against each other, unlike in"),
        (math.nan, "no rank correlation: one of them stays the same."),
        (None, "no rank correlation: one of them stays the same."),
    ],
)
def test_a_correlation_that_is_not_known_is_none(correlation: float | None, said: str) -> None:
    facts = {"job": "papers/pageload1", "rank correlation": correlation}
    assert said in PAPER.findings["juice"].sentence(facts)
