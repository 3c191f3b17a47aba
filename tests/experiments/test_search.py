"""Allocations that stay: by hand at median load, and the best that a search finds."""

from dataclasses import replace

import pytest

from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.search import (
    Allocations,
    Search,
    allocated,
    coarse_run,
    free_slots,
    job_groups,
    manual_allocations,
    peak_allocations,
)
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.scenario import Scenario
from trilithon.workloads.shapes import Shape, StepChange


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """Two PageLoads, alike, whose load doubles half way; forty minutes."""
    experiment = PAPER.by_name["spikes"]
    spikes = ScenarioBuilder(load_chosen(), PAPER.name).scenario(experiment, experiment.variants[0])
    loads: dict[str, Shape] = {"loads": StepChange(170.0, 340.0, 1200.0)}
    jobs = tuple(replace(job, loads=loads) for job in spikes.jobs)
    return replace(spikes, jobs=jobs, length_s=2400.0, warm_up_s=300.0)


def total(wanted: Allocations) -> int:
    return sum(sum(counts.values()) for counts in wanted.values())


def test_jobs_that_are_alike_are_one_group(scenario: Scenario) -> None:
    assert [len(jobs) for jobs in job_groups(scenario).values()] == [2]
    first, second = scenario.jobs
    other = replace(second, job=replace(second.job, intent=replace(second.job.intent, priority=9)))
    assert len(job_groups(replace(scenario, jobs=(first, other)))) == 2


def test_by_hand_all_intents_are_met_at_median_load_and_nothing_is_given_for_more(
    scenario: Scenario,
) -> None:
    wanted = manual_allocations(scenario)
    groups = job_groups(scenario)
    steady = replace(
        scenario,
        jobs=tuple(
            replace(job, loads={"loads": StepChange(255.0, 255.0, 10.0)}) for job in scenario.jobs
        ),
        length_s=600.0,
    )
    run = coarse_run(allocated(steady, groups, wanted), 300.0)
    assert min(run.satisfaction.values()) > 0.99
    # The join is the slowest: with two fifths less of it they would be missed.
    fewer = {name: {**counts, "join": int(0.6 * counts["join"])} for name, counts in wanted.items()}
    assert max(coarse_run(allocated(steady, groups, fewer), 300.0).satisfaction.values()) < 0.99
    assert total(wanted) < total(peak_allocations(scenario))


def test_a_search_finds_nothing_worse_than_what_it_begins_with(scenario: Scenario) -> None:
    search = Search(scenario, scenario.warm_up_s, most=20)
    starts = [manual_allocations(scenario), peak_allocations(scenario)]
    best = search.best(starts)
    assert search.worth(best) >= max(map(search.worth, starts))
    assert search.worth(best) > 0.97
    assert len(search.tried) <= 21


def test_a_search_first_gives_to_who_loses_the_most(scenario: Scenario) -> None:
    first, second = scenario.jobs
    dear = replace(second, job=replace(second.job, intent=replace(second.job.intent, priority=90)))
    tight = replace(scenario, jobs=(first, dear), length_s=900.0)
    search = Search(tight, tight.warm_up_s, most=5)
    few: Allocations = {
        name: dict.fromkeys(counts, 1) for name, counts in peak_allocations(tight).items()
    }
    other = next(iter(search._neighbours(few)))
    assert other[first.job.id] == few[first.job.id]
    assert other[dear.job.id]["join"] > few[dear.job.id]["join"]


def test_a_search_gives_up_when_it_has_tried_enough(scenario: Scenario) -> None:
    tight = replace(scenario, machines=scenario.machines[:1])
    search = Search(tight, tight.warm_up_s, most=5)
    search.best([manual_allocations(tight)])
    assert len(search.tried) <= 6


def test_no_allocation_needs_more_slots_than_there_are(scenario: Scenario) -> None:
    tight = replace(scenario, slots=12)
    groups = job_groups(tight)
    starts = [manual_allocations(tight), peak_allocations(tight)]
    search = Search(tight, tight.warm_up_s, most=6)
    for wanted in (*starts, search.best(starts)):
        assert free_slots(tight, groups, wanted) >= 0
        assert all(count >= 1 for counts in wanted.values() for count in counts.values())
    # Without the limit they need more.
    assert free_slots(tight, groups, peak_allocations(replace(scenario, slots=None))) < 0


def test_headroom_is_for_a_load_above_the_median(scenario: Scenario) -> None:
    assert total(manual_allocations(scenario, 1.5)) > total(manual_allocations(scenario))
