"""What a run is worth: jobs that write nothing or do not report, and the series of a run."""

import numpy as np
import pytest

from tests.experiments.sample_runs import sample_run
from trilithon.experiments.definition import PaperFigure
from trilithon.experiments.henge.measures import HENGE, MEASURES, stays_from
from trilithon.experiments.run_series import MOST_POINTS, RunSeries
from trilithon.experiments.runs import RunAction
from trilithon.experiments.suite import ComparedFigure, RunSummary


def test_something_holds_from_when_it_is_not_broken_any_more() -> None:
    times = np.array([1.0, 2.0, 3.0, 4.0])
    assert stays_from(times, np.array([False, True, True, True])) == 2
    assert stays_from(times, np.array([True, True, False, True])) == 4
    assert stays_from(times, np.array([True, True, True, False])) is None


def test_what_writes_nothing_counts_as_nothing() -> None:
    queue = np.zeros((2, 4))
    run = sample_run([[0.1, 0.2, 1.0, 1.0], [0.5, np.nan, np.nan, 1.0]], queue=queue)
    assert run.satisfaction == pytest.approx([0.3, 0.1, 0.5, 1.0])
    assert run.average == pytest.approx(0.75)  # of the time in which the policy may act


def test_a_job_that_does_not_report_does_not_count() -> None:
    gone = np.nan
    queue = np.array([[0.0, 0.0, gone, 0.0], [0.0, gone, gone, 0.0]])
    run = sample_run([[0.1, 0.2, gone, 1.0], [0.5, gone, gone, 1.0]], queue=queue)
    assert run.satisfaction == pytest.approx([0.3, 0.2, gone, 1.0], nan_ok=True)
    assert run.average == 1.0
    assert run.percentile(50) == 1.0


def test_steps_are_counted_when_they_changed_something() -> None:
    actions = (
        RunAction(300, "papers/t1", "RECONFIGURATION", True, 15.0),
        RunAction(300, "papers/t2", "RECONFIGURATION", False, 0.0),
        RunAction(400, None, "CONVERGED_ALL_MET", False, 0.0),
    )
    run = sample_run([[0, 0, 1, 1], [0, 0, 1, 1]], actions)
    values = MEASURES["priorities"]({"nine": {HENGE: run}})
    assert values == {"all intents met after": 100.0, "Reconfigurations": 1.0}
    assert RunSummary.of(run).actions == 1
    assert RunSeries.of(run).actions == ((300, "RECONFIGURATION"),)


@pytest.mark.parametrize(
    ("more_is_better", "paper", "ours", "worse"),
    [
        (True, 100, 99.5, False),
        (True, 100, 98, True),
        (False, 100, 98, False),
        (False, 100, 102, True),
        (True, 100, None, None),
        (None, 2, 2, False),
        (None, 2, 3, True),
        (None, 2, 1, True),
    ],
)
def test_worse_is_worse_by_more_than_a_hundredth(
    more_is_better: bool | None, paper: float, ours: float | None, worse: bool | None
) -> None:
    figure = PaperFigure("it", paper, "s", "SoCC'18", more_is_better=more_is_better)
    assert ComparedFigure(figure, ours).worse is worse
    other = PaperFigure("it", paper, "s", "SoCC'18", more_is_better, "it is another thing")
    assert ComparedFigure(other, ours).worse is None


def test_a_series_keeps_means_of_a_few_rounds_and_the_distribution() -> None:
    shares = np.linspace(0, 1, 1000)[None, :]
    run = sample_run(shares, round_s=10.0, policy_from_s=5000.0)
    series = RunSeries.of(run)
    assert len(series.utility) <= MOST_POINTS
    assert series.step_s == 50.0
    assert series.times_s[0] == 25.0
    assert series.utility[0] == pytest.approx(10 * np.mean(shares[0, :5]), rel=1e-4)
    assert set(series.maximum) == {10.0}
    assert series.quantiles[50] == pytest.approx(run.percentile(50), rel=1e-4)
    assert RunSeries.from_json(series.to_json()) == series


def test_a_series_has_gaps_where_no_job_reports() -> None:
    queue = np.array([[0.0, np.nan, 0.0]])
    series = RunSeries.of(sample_run([[0.5, np.nan, 1.0]], queue=queue, policy_from_s=0.0))
    assert series.utility == (5.0, None, 10.0)
    assert series.maximum == (10.0, None, 10.0)
