"""Dhalion's experiments in short: random jobs are diagnosed, and variants can be run."""

from dataclasses import replace
from typing import Any

import pytest

from trilithon.experiments.dhalion import diagnoses, layered_run, spark_health
from trilithon.experiments.dhalion.dhalion_paper import PAPER
from trilithon.experiments.dhalion.measures import right_diagnoses
from trilithon.experiments.dhalion.sick_jobs import Ailment, Examined, draw
from trilithon.experiments.runner import Runner
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.suite import chosen_numbers


def test_random_jobs_are_diagnosed_and_an_interrupted_run_goes_on() -> None:
    """Twelve jobs, two of each ailment, with seeds of development."""
    progress: list[str] = []
    first = list(diagnoses.run_diagnoses({}, progress.append, count=8, first_seed=0))[-1]
    both = list(diagnoses.run_diagnoses(first, progress.append, count=12, first_seed=0))[-1]
    assert len(progress) == 12
    assert [each["seed"] for each in both["examined"]] == list(range(12))
    assert both["right"] >= 11 / 12
    assert both["healthy_cured"] == 0
    page = diagnoses.page(both)
    assert "| slow instance |" in page
    assert list(diagnoses.run_diagnoses(both, progress.append, count=12, first_seed=0)) == [both]


def test_every_ailment_is_drawn_with_its_fault() -> None:
    for seed in range(60):
        sick = draw(seed)
        assert sick == draw(seed)
        hot = [o.profile.hot_key for o in sick.job.operators if o.profile and o.profile.hot_key]
        assert bool(sick.slow) == ("slow_instance" in sick.right)
        assert bool(hot) == ("data_skew" in sick.right)
        assert all(1.2 <= fault.factor <= 10 for fault in sick.slow)
        assert all(0.05 <= share <= 0.6 for share in hot)
        assert len(sick.right) == {Ailment.TWO: 2, Ailment.HEALTHY: 0}.get(sick.ailment, 1)


@pytest.mark.parametrize(
    ("right", "diagnosis", "pressed", "correct"),
    [
        (("slow_instance",), "none", 0.01, True),
        (("slow_instance",), "slow_instance", 0.01, False),
        (("slow_instance",), "slow_instance", 0.5, True),
        (("slow_instance", "data_skew"), "data_skew", 0.5, True),
        ((), "none", 0.06, True),
        ((), "under_provisioned", 0.06, False),
        (("over_provisioned",), "none", 0.0, False),
    ],
)
def test_what_counts_as_right(
    right: tuple[str, ...], diagnosis: str, pressed: float, correct: bool
) -> None:
    assert Examined(1, "", right, diagnosis, pressed, changed=False).correct is correct


def test_the_smallest_slow_instance_and_the_largest_skew_are_diagnosed_right_on_heron() -> None:
    experiment = replace(PAPER.by_name["diagnosis"], duration_s=1200.0)
    runner = Runner(ScenarioBuilder(chosen_numbers(PAPER, None), "dhalion"), PAPER.policy)
    names = ("slow-50", "skew-25")
    runs = {
        name: {PAPER.policy.name: runner.run(experiment, experiment.variant(name), PAPER.policy)[0]}
        for name in names
    }
    assert right_diagnoses(runs, PAPER.policy.name) == len(names)


def test_with_dhalion_first_a_job_with_a_hot_word_keeps_the_slots_that_it_has() -> None:
    begun: dict[str, Any] = {layered_run.ALONE: {}}
    done = list(layered_run.run_layered(begun, lambda _: None, 1500.0))[-1]
    hot = "of the jobs with a hot word"
    alone, layered = done[layered_run.HENGE], done[layered_run.LAYERED]
    assert layered[hot] < alone[hot]
    assert layered["of those that lack instances"] > alone["of those that lack instances"]
    assert layered["satisfaction at the end"] > alone["satisfaction at the end"]
    done.pop(layered_run.ALONE)
    assert "| satisfaction |" in layered_run.page(done)


def test_runs_on_spark_go_on_where_they_were_interrupted() -> None:
    begun: list[tuple[str, int]] = []

    def run(case: spark_health.HealthCase, number: int, _: object) -> spark_health.HealthRun:
        begun.append((case.name, number))
        return spark_health.HealthRun(case.name, number, case.right, (), healed=True)

    first = next(spark_health.run_health({}, lambda _: None, 2, run))
    done = list(spark_health.run_health(first, lambda _: None, 2, run))[-1]
    assert len(begun) == len(set(begun)) == 2 * len(spark_health.CASES)
    page = spark_health.page(done)
    assert "| slow instance |  |  | 2 |  |  | 2 of 2 | 2 of 2 | 0 |" in page
    assert all(case.job.instances <= 2 + spark_health.MOST for case in spark_health.CASES)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("case", spark_health.CASES, ids=lambda case: case.name)
def test_one_short_run_of_each_ailment_on_spark(case: spark_health.HealthCase) -> None:
    run = spark_health.run_case(case, 0, lambda _: None, warm_s=20.0, run_s=60.0)
    assert run.diagnosis == case.right
