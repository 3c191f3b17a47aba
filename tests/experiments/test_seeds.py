"""What is random is run with several seeds; what is not is run once."""

from dataclasses import replace

import pytest

from trilithon.engines.simulated.engine import SimulationMode
from trilithon.experiments.definition import JobSet, Topology, Variant, latency
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.runner import Runner
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.seeds import SEEDS, is_random, with_seed
from trilithon.experiments.strategies import UNCONTROLLED
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.scenario import Scenario
from trilithon.workloads.shapes import Mmpp

EXPERIMENT = replace(PAPER.by_name["priorities"], duration_s=300, policy_from_s=60)
VARIANT = Variant("small", (JobSet("t", 2, Topology.LINEAR, latency(60), (5,)),), 2, 4)


@pytest.fixture
def steady() -> Scenario:
    even = replace(VARIANT, arrivals="even")
    return ScenarioBuilder(load_chosen(), PAPER.name).scenario(EXPERIMENT, even)


@pytest.fixture
def bursty(steady: Scenario) -> Scenario:
    jobs = tuple(
        replace(job, loads={source: Mmpp(100, 2000, 30, 10) for source in job.loads})
        for job in steady.jobs
    )
    return replace(steady, jobs=jobs)


def rates(scenario: Scenario) -> list[list[float]]:
    return [
        [shape.rate_per_s(t) for t in range(0, 300, 5)]
        for job in scenario.jobs
        for shape in job.loads.values()
    ]


def test_all_runs_but_flows_in_a_steady_beat_are_random(steady: Scenario, bursty: Scenario) -> None:
    assert not is_random(steady)
    assert is_random(bursty)
    assert is_random(replace(steady, arrival_cv2=1.0))
    # Service times are drawn, too.
    assert is_random(replace(steady, way=SimulationMode.EVENTS))


def test_each_source_has_bursts_of_its_own_that_the_seed_decides(bursty: Scenario) -> None:
    first, again, other = (rates(with_seed(bursty, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first[0] != first[1]


def test_a_run_is_repeated_only_if_it_is_random(steady: Scenario, bursty: Scenario) -> None:
    runner = Runner(ScenarioBuilder(load_chosen(), PAPER.name), PAPER.policy)
    (once,) = runner.run_seeds(steady, UNCONTROLLED, {})
    repeated = runner.run_seeds(bursty, UNCONTROLLED, {})
    assert len(repeated) == len(SEEDS)
    assert len({run.average for run in repeated}) > 1
    assert once.strategy == repeated[0].strategy == "uncontrolled"
