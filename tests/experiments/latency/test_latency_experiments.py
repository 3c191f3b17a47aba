"""The latency paper's experiments in small: set-ups, measures, random jobs, kept intervals."""

from dataclasses import replace

import numpy as np
import pytest

from trilithon.experiments.latency import random_jobs, set_ups
from trilithon.experiments.latency.catalogue import EXPERIMENTS, LATENCY, PRIMETESTER, TWITTER
from trilithon.experiments.latency.latency_paper import PAPER
from trilithon.experiments.latency.measures import (
    MEASURES,
    kept,
    lost_s,
    missed_s,
    read,
    task_hours,
)
from trilithon.experiments.latency.mixes_reasons import mixes_with_reasons
from trilithon.experiments.latency.set_ups import LatencyBuilder
from trilithon.experiments.mixes import MixResult
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import Run, read_shares
from trilithon.experiments.strategies import under
from trilithon.experiments.suite import strategies_of
from trilithon.scenarios.chosen import load_chosen
from trilithon.workloads.shapes import Constant

BUILDER = LatencyBuilder(load_chosen(), LATENCY)


def test_every_figure_of_the_text_is_measured() -> None:
    assert {experiment.name for experiment in EXPERIMENTS} == set(MEASURES)
    printed = {figure.value for experiment in EXPERIMENTS for figure in experiment.figures}
    assert {0.91, 46.4, 44.3, 41.8, 37.6, 0.93, 0.96, 28, 564, 348, 180, 300, 360} <= printed


def test_rates_and_instances_are_the_papers() -> None:
    scenario = BUILDER.scenario(PRIMETESTER, PRIMETESTER.variant("20 ms"))
    (scheduled,) = scenario.jobs
    assert len(scenario.machines) * scenario.machines[0].cores == 520
    assert scheduled.job.operator("tester").parallelism.max == 520
    load = scheduled.loads["numbers"]
    assert [load.rate_per_s(60 * i) for i in range(12)] == [
        1e4 * step for step in (1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1)
    ]
    unelastic = BUILDER.scenario(PRIMETESTER, PRIMETESTER.variant("unelastic"))
    assert unelastic.jobs[0].job.operator("tester").parallelism.min == 175
    assert set(unelastic.batching_ms["papers/primetester"].values()) == {60_000.0}


def test_a_burst_comes_with_the_papers_peak_and_other_tweets() -> None:
    rates = set_ups.tweet_rates()
    assert rates.peak_per_s == rates.rate_per_s(2400) == 6734
    scenario = BUILDER.scenario(TWITTER, TWITTER.variant("two weeks"))
    (burst,) = scenario.faults
    assert burst.at_s < 2400 < burst.at_s + (burst.for_s or 0)
    first, second = scenario.jobs[0].job.intent.constraints
    assert (first.mean_latency_ms, second.mean_latency_ms) == (215, 30)


def test_variants_are_run_under_their_own_strategies() -> None:
    named = {
        variant.name: [s.name for s in strategies_of(PAPER, PRIMETESTER, variant)]
        for variant in PRIMETESTER.variants
    }
    assert named["unelastic"] == ["uncontrolled"]
    assert named["20 ms"] == ["latency", "threshold"]
    assert named["100 ms"] == ["latency"]


@pytest.fixture(scope="module")
def short() -> Run:
    """PrimeTester's first 50 s, at a fiftieth of rates and machines."""
    experiment = replace(PRIMETESTER, duration_s=50.0)
    scenario = BUILDER.scenario(experiment, PRIMETESTER.variant("20 ms"))
    (scheduled,) = scenario.jobs
    scenario = replace(
        scenario,
        machines=scenario.machines[:4],
        jobs=(replace(scheduled, loads={"numbers": Constant(400.0)}),),
    )
    runner = Runner(BUILDER, None)
    prepared = runner.prepared(scenario, under(LATENCY), {})
    operators = tuple(
        replace(o, parallelism=replace(o.parallelism, initial=8, min=1, max=16))
        for o in prepared.jobs[0].job.operators
    )
    job = replace(prepared.jobs[0].job, operators=operators)
    prepared = replace(prepared, jobs=(replace(prepared.jobs[0], job=job),))
    return runner.simulated(prepared, under(LATENCY), 0.0)


def test_a_short_run_keeps_its_promise_with_batching_and_fewer_instances(short: Run) -> None:
    assert kept(short, 0, 20.0) >= 0.8
    assert short.average == pytest.approx(kept(short, 0, 20.0))
    assert short.parallelism["papers/primetester", "tester"][-1] < 8
    assert "BATCHING_ADAPTED" in {action.reason for action in short.changes()} or any(
        action.reason == "FEWER_KEEP_CONSTRAINTS" for action in short.changes()
    )
    assert task_hours(short) > 0
    assert lost_s(short) is None
    assert missed_s(short, 20.0) is None


def test_an_interval_in_which_the_backlog_grows_is_not_kept() -> None:
    lag, arriving = np.array([0.0, 0.0, 100.0, 50.0]), np.full(4, 100.0)
    shares = read_shares(lag, arriving, np.full(4, 5.0))
    assert shares == pytest.approx([1.0, 1.0, 0.8, 1.1])
    assert list(shares >= 0.99) == [True, True, False, True]


def test_what_is_read_is_measured(short: Run) -> None:
    assert read(short) == pytest.approx(np.ones(len(short.times_s)), abs=0.02)


def test_a_random_job_is_its_seed() -> None:
    first, again, other = (random_jobs.random_job(seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert 1 <= len(first.job.operators) <= 3
    service_ms = sum(o.profile.service_ms or 0 for o in first.job.operators if o.profile)
    assert first.promise_ms > service_ms


def test_the_fewest_instances_carry_the_load_and_one_less_does_not_keep_the_promise() -> None:
    drawn = random_jobs.random_job(1)
    scenario = random_jobs.scenario_of(drawn, load_chosen(), 1)
    rate = min(drawn.load.rates_per_s)
    counts = random_jobs.fewest_instances(scenario, rate)
    assert random_jobs._keeps(scenario, counts, rate)
    for name, count in counts.items():
        if count > 1:
            assert not random_jobs._keeps(scenario, {**counts, name: count - 1}, rate)


def mix(latency: tuple[float, float], threshold: tuple[float, float]) -> MixResult:
    values = {
        "latency": latency,
        "threshold": threshold,
        "threshold (10 s)": threshold,
        "fewest instances": (0.95, 1.0),
    }
    return MixResult(
        1, 1, 1, {n: v[0] for n, v in values.items()}, {}, {n: v[1] for n, v in values.items()}
    )


def test_the_text_about_random_jobs_counts_both_goals() -> None:
    text = random_jobs.mixes_text(
        [mix((0.95, 1.2), (0.9, 1.3)), mix((0.95, 1.4), (0.9, 1.3)), mix((0.8, 1.0), (0.9, 1.3))]
    )
    assert "at least as many intervals in 2 of 3 jobs" in text
    assert "no more instance-hours in 1 (33%" in text
    assert "at most 1.3 times in 2 jobs" in text


def test_jobs_that_count_against_a_goal_are_told_apart() -> None:
    dearer, fewer = mix((0.98, 1.4), (0.9, 1.3)), mix((0.85, 1.1), (0.9, 1.3))
    worse, good = mix((0.8, 1.5), (0.9, 1.3)), mix((0.95, 1.2), (0.9, 1.3))
    text = mixes_with_reasons([dearer, fewer, worse, good])
    assert text.startswith(random_jobs.mixes_text([dearer, fewer, worse, good]))
    assert "Of the 3 jobs that count against the goal, in 1 the policy keeps more" in text
    assert "8.0 points more with 8% more hours" in text
    assert "in 1 it keeps fewer with fewer hours (in the median 5.0 points fewer)" in text
    assert "in 1 threshold is at least as good in both." in text
    assert "Of the 2 jobs with more than 1.3 times the fewest instance-hours (1.45 times" in text
    assert "keeps more intervals than the fewest instances in 1," in text
    assert mixes_with_reasons([good]) == random_jobs.mixes_text([good])


def test_experiments_last_as_long_as_their_loads() -> None:
    lengths = {e.name: e.duration_s for e in EXPERIMENTS}
    assert lengths == {"primetester": 720, "batching": 540, "twittersentiment": 6000}
