"""The paper's experiments, as data: complete, consistent, and with the paper's own sums."""

import math

import pytest

from trilithon.experiments.definition import Experiment
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.registry import policy
from trilithon.workloads import trace

ALL = PAPER.experiments
EXPERIMENTS = PAPER.by_name


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.name)
def test_every_experiment_names_its_source_and_has_figures_with_theirs(
    experiment: Experiment,
) -> None:
    assert "section" in experiment.source
    assert experiment.figures
    for figure in experiment.figures:
        assert figure.source.startswith(("SoCC'18", "report"))
        assert math.isfinite(figure.value)
    assert len({figure.name for figure in experiment.figures}) == len(experiment.figures)


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.name)
def test_every_run_is_possible(experiment: Experiment) -> None:
    assert 0 < experiment.policy_from_s < experiment.duration_s
    assert len({variant.name for variant in experiment.variants}) == len(experiment.variants)
    for variant in experiment.variants:
        assert variant.count == sum(len(jobs.intents) for jobs in variant.jobs)
        for fault in variant.faults:
            assert experiment.policy_from_s < fault.from_s < fault.to_s <= experiment.duration_s
        for jobs in variant.jobs:
            assert jobs.arrive_s < experiment.duration_s
            assert all(change.at_s < experiment.duration_s for change in jobs.load.changes)
            assert jobs.load.trace is None or jobs.load.trace in trace.names()
            assert all(intent.max_utility > 0 for intent in jobs.intents)
        henge = policy("henge", dict(variant.parameters))
        assert henge.parameters != HengeParameters() or not variant.parameters


@pytest.mark.parametrize(
    ("name", "variant", "jobs", "total"),
    [
        ("priorities", "nine", 9, 450),
        ("hybrid", "ten", 10, 350),
        ("spikes", "two", 2, 70),
        ("diurnal", "two-days", 10, 350),
        ("production", "table-3", 5, 175),
        ("more-jobs", "to-85", 85, 85 * 35),
        ("more-machines", "10x8", 40, 800),
        ("memory", "eight", 8, 400),
    ],
)
def test_jobs_and_maxima_are_the_papers(name: str, variant: str, jobs: int, total: float) -> None:
    described = EXPERIMENTS[name].variant(variant)
    assert (described.count, described.max_utility) == (jobs, total)


def test_the_production_cluster_ends_at_the_share_that_the_paper_prints() -> None:
    experiment = EXPERIMENTS["production"]
    share = experiment.figures[0].value / experiment.variant("table-3").max_utility
    assert round(100 * share, 1) == 68.6


def test_two_days_of_a_trace_take_eight_hours() -> None:
    experiment = EXPERIMENTS["diurnal"]
    load = experiment.variant("two-days").jobs[0].load
    assert load.trace is not None
    assert load.row_s is not None
    assert experiment.duration_s == 8 * 3600 == 2 * len(trace.load(load.trace)) * load.row_s
