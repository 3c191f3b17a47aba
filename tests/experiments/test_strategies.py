"""The rivals: in every run, with the same freedom, and only the paper's policy gets its numbers."""

from dataclasses import replace

import pytest

from tests.experiments.sample_results import SUMMARY
from trilithon.experiments.comparison import all_runs, compare_strategies
from trilithon.experiments.definition import JobSet, Topology, Variant, latency
from trilithon.experiments.experiment_result import ExperimentResult
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.plot_style import _spread
from trilithon.experiments.runner import Runner
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.search import manual_allocations
from trilithon.experiments.strategies import HEADROOM
from trilithon.experiments.suite import strategies_of
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.scenario import Scenario


@pytest.fixture
def scenario() -> Scenario:
    experiment = replace(PAPER.by_name["priorities"], duration_s=300)
    variant = Variant("small", (JobSet("t", 2, Topology.LINEAR, latency(60), (5,)),), 4, 8)
    return ScenarioBuilder(load_chosen(), PAPER.name).scenario(experiment, variant)


def test_rivals_stand_in_every_run_but_those_that_try_the_policys_parameters() -> None:
    everything = {
        "henge",
        "Henge as printed",
        "threshold",
        "ds2",
        "uncontrolled",
        "manual",
        "manual with headroom",
        "best static",
    }
    for experiment in PAPER.experiments:
        for variant in experiment.variants:
            names = {strategy.name for strategy in strategies_of(PAPER, experiment, variant)}
            assert names == ({"henge"} if experiment.name == "reduction" else everything)
    # With Henge's timing in the random mixes, which run everything.
    mixed = {strategy.name for strategy in PAPER.strategies}
    assert mixed - everything == {"threshold (60 s)", "ds2 (60 s)"}
    assert [strategy.name for strategy in PAPER.cheap_strategies] == [
        "henge",
        "threshold",
        "ds2",
        "uncontrolled",
        "manual",
    ]


def test_parameters_of_a_variant_are_for_the_papers_policy_alone(scenario: Scenario) -> None:
    runner = Runner(ScenarioBuilder(load_chosen(), PAPER.name), PAPER.policy)
    prepared = {
        strategy.name: runner.prepared(scenario, strategy, {"reduction": 0.7}).policy
        for strategy in PAPER.strategies
        if strategy.policy
    }
    assert prepared["henge"].parameters.reduction == 0.7  # type: ignore[union-attr]
    windows = [
        prepared[name].parameters.window_s  # type: ignore[union-attr]
        for name in ("threshold", "threshold (60 s)")
    ]
    assert windows == [20.0, 60.0]
    bounds = [
        prepared[name].parameters.least_capacity  # type: ignore[union-attr]
        for name in ("henge", "Henge as printed")
    ]
    assert bounds == [0.3, 0.0]


def test_headroom_is_more_instances_for_the_same_jobs(scenario: Scenario) -> None:
    tight, ample = (manual_allocations(scenario, room) for room in (1.0, HEADROOM))
    assert tight.keys() == ample.keys()
    instances = [sum(sum(counts.values()) for counts in by.values()) for by in (tight, ample)]
    assert instances[0] < instances[1]


def test_strategies_are_compared_in_the_runs_that_have_them() -> None:
    def run(**averages: float) -> dict[str, object]:
        return {name: replace(SUMMARY, average=share) for name, share in averages.items()}

    runs = [run(henge=0.9, ds2=0.8), run(henge=0.9, ds2=0.896), run(henge=0.5, ds2=0.8)]
    runs.append(run(henge=1.0))
    own, ds2 = compare_strategies(runs, ("henge", "ds2", "magic"), "henge")  # type: ignore[arg-type]
    assert [(own.name, own.runs), (ds2.name, ds2.runs)] == [("henge", 4), ("ds2", 3)]
    assert [own.satisfaction, ds2.satisfaction] == pytest.approx([0.825, 0.832])
    assert (ds2.policy_better, ds2.same, ds2.policy_worse) == (1, 1, 1)
    assert ds2.instance_hours == pytest.approx(3 * 24.5)
    old = {"henge": replace(SUMMARY, instance_hours=None, percentiles={})}
    (record,) = compare_strategies([old, old], ("henge",), "henge")
    assert (record.instance_hours, record.worst_tenth) == (None, None)


def test_experiments_that_try_parameters_do_not_count_as_runs() -> None:
    results = [
        ExperimentResult(PAPER.by_name[name], (), {"v": {"henge": SUMMARY}})
        for name in ("cost", "reduction")
    ]
    assert all_runs(results) == [{"henge": SUMMARY}]


def test_labels_at_the_ends_of_lines_do_not_cover_each_other() -> None:
    assert _spread([0.0, 50.0], 10.0, 0.0, 100.0) == [0.0, 50.0]
    assert _spread([0.0, 1.0, 2.0], 10.0, 0.0, 100.0) == [0.0, 10.0, 20.0]
    assert _spread([99.0, 100.0, 100.0], 10.0, 0.0, 100.0) == [80.0, 90.0, 100.0]
