"""What a run is worth: jobs that write nothing or do not report, and the series of a run."""

from dataclasses import replace

import numpy as np
import pytest

from tests.experiments.sample_runs import sample_run
from trilithon.experiments.experiment_result import RunSummary
from trilithon.experiments.henge.measures import HENGE, MEASURES, stays_from
from trilithon.experiments.run_series import MOST_POINTS, MOST_PREDICTIONS, RunSeries
from trilithon.experiments.runs import RunAction


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
    assert RunSummary.of([run]).actions == 1
    assert RunSeries.of(run).actions == ((300, "RECONFIGURATION"),)


def test_instance_hours_are_those_of_the_time_in_which_the_policy_may_act() -> None:
    run = sample_run(np.ones((2, 10)), round_s=360.0, policy_from_s=1800.0)
    assert run.instance_hours == pytest.approx(2 * 4 * 5 * 0.1)
    assert RunSummary.of([run]).instance_hours == run.instance_hours


def test_several_seeds_give_a_mean_with_its_interval() -> None:
    runs = [sample_run([[0, 0, share, share]]) for share in (0.7, 0.8, 0.9)]
    summary = RunSummary.of(runs)
    assert summary.average == pytest.approx(0.8)
    # Student's t for 95 % and two degrees of freedom is 4.303.
    assert summary.half_widths["average"] == pytest.approx(4.303 * 0.1 / 3**0.5, rel=1e-3)
    assert summary.half_widths["instance_hours"] == 0.0
    assert summary.runs == 3
    assert RunSummary.of(runs[:1]).half_widths == {}


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


def test_a_series_keeps_what_a_model_predicted_and_what_was_measured() -> None:
    numbers = {
        "test.predicted_waiting_ms": 3.0,
        "test.predicted_for_load_ms": 4.00004,
        "test.measured_waiting_ms": 5.0,
        "never measured.predicted_for_load_ms": 1.0,
    }
    checked = RunAction(300, "papers/t1", "PREDICTION_CHECKED", False, 0.0, numbers)
    series = RunSeries.of(sample_run([[0, 1]], (checked,), policy_from_s=0.0))
    assert series.predictions == (("test", 4.0, 5.0),)
    assert RunSeries.from_json(series.to_json()) == series
    many = RunSeries.of(sample_run([[0, 1]], (checked,) * 5000, policy_from_s=0.0))
    assert MOST_PREDICTIONS / 2 < len(many.predictions) <= MOST_PREDICTIONS


def test_a_series_keeps_the_instances_of_each_operator_if_asked() -> None:
    run = sample_run([[0, 1]], policy_from_s=0.0)
    run = replace(run, parallelism={("papers/t1", "a"): np.array([1.0, 3.0])})
    assert RunSeries.of(run).instances == {}
    series = RunSeries.of(run, instances=True)
    assert series.instances == {"a": (1.0, 3.0)}
    assert RunSeries.from_json(series.to_json()) == series


def test_a_series_has_gaps_where_no_job_reports() -> None:
    queue = np.array([[0.0, np.nan, 0.0]])
    series = RunSeries.of(sample_run([[0.5, np.nan, 1.0]], queue=queue, policy_from_s=0.0))
    assert series.utility == (5.0, None, 10.0)
    assert series.maximum == (10.0, None, 10.0)
