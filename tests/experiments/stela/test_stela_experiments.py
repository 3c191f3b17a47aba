"""Stela's experiments: table I as data, the paper's criteria on lines by hand, a graph in short."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from trilithon.experiments.definition import Experiment
from trilithon.experiments.runner import Runner
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.stela.catalogue import DEFAULT, EXPERIMENTS, FAIR, SCALED_S, STELA
from trilithon.experiments.stela.measures import (
    MEASURES,
    after,
    before,
    converged_after,
    down_s,
)
from trilithon.experiments.stela.random_dags import (
    FIRST_SEED,
    drawn,
    run_cases,
    scale_in_case,
    scale_out_case,
    section,
    summary,
)
from trilithon.experiments.stela.stela_paper import PAPER
from trilithon.policies.registry import policy
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.scenario import load_scenario

BUILDER = ScenarioBuilder(load_chosen(), "stela")
# Table I: instances and tasks per operator, machines, cores of a machine.
TABLE_I = {
    "star": (2, 4, 4, 1),
    "linear": (6, 12, 6, 1),
    "diamond": (4, 8, 6, 1),
    "pageload": (4, 8, 7, 1),
    "processing": (4, 8, 8, 1),
    "network": (4, 8, 8, 4),
    "scale-in": (15, 15, 8, 1),
}


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_run_has_the_settings_of_table_i(experiment: Experiment) -> None:
    (variant,) = experiment.variants
    scenario = BUILDER.scenario(experiment, variant)
    instances, tasks, machines, cores = TABLE_I[experiment.name]
    (scheduled,) = scenario.jobs
    for operator in scheduled.job.operators:
        assert operator.parallelism.initial == instances
        assert operator.parallelism.max == tasks
    assert [machine.cores for machine in scenario.machines] == [cores] * machines
    (request,) = scenario.requests
    assert request.machines == (4 if experiment.name == "scale-in" else 1)
    for figure in experiment.figures:
        assert math.isfinite(figure.value)
        assert figure.source.startswith(("IV-", "III-C", "abstract"))


def test_machines_of_a_scale_in_begin_with_one_operator_each() -> None:
    experiment = PAPER.by_name["scale-in"]
    (scheduled,) = BUILDER.scenario(experiment, experiment.variants[0]).jobs
    machines = [set(places) for places in scheduled.placement.values()]
    assert [len(names) for names in machines] == [2, 2, 2, 2]
    assert len(set().union(*machines)) == 8


@pytest.mark.parametrize("path", sorted(Path("scenarios").glob("stela-*.yaml")), ids=str)
def test_scenarios_have_the_machines_of_table_i(path: Path) -> None:
    name = path.stem.removeprefix("stela-")
    assert {machine.cores for machine in load_scenario(path).machines} == {TABLE_I[name][3]}


def test_every_strategy_makes_a_policy_and_every_figure_has_a_measure() -> None:
    for strategy in PAPER.strategies:
        assert policy(strategy.policy, dict(strategy.parameters)).name == "stela"
    assert set(MEASURES) == set(PAPER.by_name)


def test_throughput_has_converged_when_it_was_twice_above_and_twice_below() -> None:
    times_s = np.arange(10.0, 110.0, 10.0)
    line = np.array([0, 0, 80, 101, 99, 120, 101, 99, 102, 98.0])
    # The burst at 60 s begins the count anew.
    assert converged_after(times_s, line, 100.0) == 100.0
    assert converged_after(times_s, np.full(10, 50.0), 100.0) is None
    assert converged_after(times_s, np.full(10, 98.0), 100.0) is None


def test_throughput_that_is_flat_has_converged_though_it_creeps() -> None:
    times_s = np.arange(10.0, 110.0, 10.0)
    creeping = np.linspace(99.91, 100.0, 10)
    assert converged_after(times_s, creeping, 100.0) == 20.0


def test_down_time_is_the_time_without_throughput_after_the_request() -> None:
    times_s = np.arange(10.0, SCALED_S + 60.0, 10.0)
    throughput = np.where((times_s > SCALED_S) & (times_s <= SCALED_S + 20), 0.0, 5.0)
    throughput[0] = 0.0  # before the request
    run = SimpleNamespace(times_s=times_s, throughput=throughput)
    assert down_s(run) == 20.0  # type: ignore[arg-type]


def test_a_short_run_is_measured_before_and_after_the_request() -> None:
    experiment = PAPER.by_name["star"]
    short = replace(
        BUILDER.scenario(experiment, experiment.variants[0]), length_s=800.0, arrival_cv2=0.0
    )
    runner = Runner(BUILDER, PAPER.policy)
    by = {s.name: s for s in PAPER.strategies}
    runs = {}
    for name in (STELA, FAIR, DEFAULT):
        prepared = runner.prepared(short, by[name], {})
        runs[name] = runner.simulated(prepared, by[name], 0.0)
    assert before(runs[STELA]) == pytest.approx(before(runs[DEFAULT]))
    assert after(runs[STELA]) > after(runs[FAIR]) > 1.1 * after(runs[DEFAULT])
    assert runs[STELA].instances_at_end == runs[FAIR].instances_at_end == 13
    assert runs[DEFAULT].instances_at_end == 10


def test_random_graphs_are_drawn_from_their_seed_alone() -> None:
    assert drawn(5, 4) == drawn(5, 4)
    assert drawn(5, 4) != drawn(6, 4)
    assert FIRST_SEED == 2000


def test_a_graph_is_compared_with_every_division_and_every_group() -> None:
    chosen = load_chosen()
    out, back = scale_out_case(3, chosen), scale_in_case(3, chosen)
    assert out["divisions"] == 35
    assert 0 < out["before"] < out["stela"] <= 1
    assert back["groups"] == 15
    cases = [{"seed": 3, "out": out, "in": back}]
    (all_cases,) = run_cases(1, lambda _: None, chosen, kept=cases, seeds=[3, 11])
    assert [case["seed"] for case in all_cases] == [3, 11]
    assert json.loads(json.dumps(all_cases)) == all_cases
    assert summary(all_cases)["mean"] <= 1
    assert "2 random graphs" in section(all_cases)
