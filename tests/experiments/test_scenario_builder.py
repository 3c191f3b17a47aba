"""Experiments become runs: the paper's numbers as they are, the chosen ones from one file."""

import math
from dataclasses import replace

import pytest

from trilithon.engines.simulated.faults import ForeignLoad, MetricsStop
from trilithon.experiments.definition import Experiment, LoadChange, RelativeLoad, Variant
from trilithon.experiments.demand import operator_demands
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.scenario_builder import ScenarioBuilder, load_shape, median_rate
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import Scenario

BUILDER = ScenarioBuilder(load_chosen(), PAPER.name)
EXPERIMENTS = PAPER.by_name
ALL = [
    pytest.param(experiment, variant, id=f"{experiment.name}-{variant.name}")
    for experiment in EXPERIMENTS.values()
    for variant in experiment.variants
]


def scenario_of(name: str, variant: str | None = None) -> Scenario:
    experiment = EXPERIMENTS[name]
    chosen = experiment.variant(variant) if variant else experiment.variants[0]
    return BUILDER.scenario(experiment, chosen)


@pytest.mark.parametrize(("experiment", "variant"), ALL)
def test_every_variant_is_a_run_with_the_papers_jobs(
    experiment: Experiment, variant: Variant
) -> None:
    scenario = BUILDER.scenario(experiment, variant)
    assert len(scenario.jobs) == variant.count
    assert len({scheduled.job.id for scheduled in scenario.jobs}) == variant.count
    assert (
        sum(scheduled.job.intent.max_utility for scheduled in scenario.jobs) == variant.max_utility
    )
    assert scenario.length_s == experiment.duration_s
    assert scenario.warm_up_s == 900
    # As many for each core in every cluster, and enough for what the jobs begin with.
    assert scenario.slots == 10 * sum(machine.cores for machine in scenario.machines)
    assert sum(scheduled.job.instances for scheduled in scenario.jobs) <= scenario.slots
    for scheduled in scenario.jobs:
        assert set(scheduled.loads) == {source.name for source in scheduled.job.sources}
        for operator in scheduled.job.operators:
            assert operator.profile is not None
            assert operator.profile.service_ms is not None
    if variant.resources is None:
        assert len(scenario.machines) == variant.machines


def test_loads_change_when_the_paper_says_so() -> None:
    (load,) = scenario_of("juice").jobs[0].loads.values()
    assert load.rate_per_s(5000) == 3 * load.rate_per_s(3999)
    b, a = scenario_of("spikes").jobs
    (first,), (second,) = b.loads.values(), a.loads.values()
    rates = [[shape.rate_per_s(at_s) for at_s in (3000, 4000, 8000)] for shape in (first, second)]
    usual = rates[0][0]
    assert rates == [[usual, 2 * usual, usual], [usual, usual, 2 * usual]]
    assert load_shape(RelativeLoad(2.0, (LoadChange(10, 5),)), 7.0).rate_per_s(20) == 35


def test_a_trace_has_the_mean_that_the_job_was_sized_for_and_a_lower_median() -> None:
    scenario = scenario_of("diurnal")
    (load,) = scenario.jobs[0].loads.values()
    assert load.total(scenario.length_s) / scenario.length_s == pytest.approx(86)
    assert median_rate(load, scenario.length_s) < 86


def test_the_trace_is_cut_where_the_authors_source_sends_no_more() -> None:
    """The EPA trace goes up to 4,716; nine of its hours are cut to 2,287."""
    scenario = scenario_of("diurnal")
    (load,) = scenario.jobs[0].loads.values()
    hourly = [load.rate_per_s((hour + 0.5) * 600) for hour in range(24)]
    assert sum(rate == max(hourly) for rate in hourly) == 9
    assert max(hourly) / hourly[3] == pytest.approx(2287 / 248)


def utilisation(scenario: Scenario) -> float:
    """The cores that the jobs need at their highest load, of those there are; without a run."""
    needed = sum(demand.cores for job in scenario.jobs for demand in operator_demands(job))
    return needed / sum(machine.cores for machine in scenario.machines)


def test_production_has_more_load_than_its_machines_can_carry() -> None:
    assert utilisation(scenario_of("production")) == pytest.approx(1.15, abs=0.005)


def test_the_most_pageloads_need_as_many_cores_as_there_are() -> None:
    assert utilisation(scenario_of("more-jobs")) == pytest.approx(1.0, abs=0.005)


def test_some_division_of_the_least_resources_is_feasible() -> None:
    assert utilisation(scenario_of("cost", "40%")) < 1


def test_the_machines_of_figure_16_keep_their_eight_cores() -> None:
    machines = scenario_of("more-machines", "10x8").machines
    assert [machine.cores for machine in machines] == [8] * 10


def test_arrivals_are_as_chosen_unless_a_variant_says_otherwise() -> None:
    experiment = EXPERIMENTS["hybrid"]
    variant = experiment.variants[0]
    assert BUILDER.scenario(experiment, variant).arrival_cv2 == pytest.approx(math.e - 1)
    poisson = replace(variant, arrivals="poisson")
    assert BUILDER.scenario(experiment, poisson).arrival_cv2 == 1


def test_sizes_of_table_3_are_in_proportion_to_workers() -> None:
    jobs = {scheduled.job.name: scheduled for scheduled in scenario_of("production").jobs}
    rates = {
        name: next(iter(scheduled.loads.values())).rate_per_s(0) for name, scheduled in jobs.items()
    }
    assert rates["t1"] / rates["t5"] == 234
    assert jobs["t1"].job.operators[0].parallelism.max == 1729 // 4
    assert jobs["t5"].job.operators[0].parallelism.initial == 1


def test_faults_are_on_all_machines() -> None:
    assert scenario_of("failure").faults == (MetricsStop(1020, 360),)
    spike = scenario_of("cpu-spike")
    assert len(spike.faults) == len(spike.machines)
    assert all(isinstance(fault, ForeignLoad) and fault.threads == 20 for fault in spike.faults)


def test_a_share_of_the_resources_is_so_many_machines_of_those_that_jobs_would_have_alone() -> None:
    names = [variant.name for variant in EXPERIMENTS["cost"].variants]
    cores = {
        name: [machine.cores for machine in scenario_of("cost", name).machines] for name in names
    }
    assert cores == {
        "40%": [2, 2],
        "60%": [2] * 3,
        "80%": [2] * 4,
        "100%": [2] * 5,
        "alone on 1": [1],
        "alone on 2": [2],
    }
    assert scenario_of("more-machines").machines[0].memory_bytes == 64e9


def test_only_the_job_that_keeps_state_keeps_it() -> None:
    jobs = {scheduled.job.name: scheduled.job for scheduled in scenario_of("stateful").jobs}
    assert any(operator.work.stateful for operator in jobs["stateful1"].operators)
    assert not any(operator.work.stateful for operator in jobs["stateless1"].operators)
    joined = next(o for o in scenario_of("memory").jobs[0].job.operators if o.name == "join")
    assert joined.work.window is not None
    assert joined.work.window.duration_s == 30


def test_no_job_meets_its_intent_by_itself_where_the_paper_says_so() -> None:
    """SoCC'18, section 8: before Henge acts, jobs miss their SLOs."""
    for name in ("priorities", "hybrid", "stateful"):
        scenario = scenario_of(name)
        short = scenario.__class__(**{**vars(scenario), "length_s": 900.0})
        figures = simulate(short).figures
        for lines in figures.jobs.values():
            last = lines.satisfaction[-1]
            assert last is not None
            assert last < 0.9
