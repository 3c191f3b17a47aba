"""Henge on the simulated cluster: the bound on its convergence over random clusters, and its steps
through the guard as everybody has it.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from trilithon.control.rules import Limits
from trilithon.experiments.definition import Experiment, JobSet, Topology, Variant, latency
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.mixes import random_mix
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import Run
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.policies.henge import messages
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.registry import policy
from trilithon.scenarios.chosen import load_chosen
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import Scenario
from trilithon.workloads.shapes import Constant

STEPS = {messages.RECONFIGURATION, messages.REDUCTION, messages.REVERSION}
CONVERGED = {messages.CONVERGED_MET, messages.CONVERGED_STUCK}
BUILDER = ScenarioBuilder(load_chosen(), "henge")
FROM_S = 300.0
DEFAULT = HengeParameters().improvement
# Clusters of few jobs, drawn from seeds of their own: a run has to have room for
# more steps than the bound allows.
SMALL = [
    seed
    for seed in range(100, 140)
    if len(random_mix(seed, BUILDER, PAPER.mixed_topologies).jobs) <= 5
][:6]
# A smaller share is indistinguishable from 0.
LEAST = 1e-6


def steady(seed: int) -> Scenario:
    """The jobs, intents and machines of a random mix, under loads that stay."""
    scenario = random_mix(seed, BUILDER, PAPER.mixed_topologies)
    jobs = tuple(
        replace(
            scheduled,
            loads={
                name: Constant(shape.rate_per_s(0.0)) for name, shape in scheduled.loads.items()
            },
        )
        for scheduled in scenario.jobs
    )
    return replace(scenario, jobs=jobs, warm_up_s=FROM_S, length_s=7500.0)


def searched(run: Run) -> tuple[int, float]:
    """The rounds with a step before Henge was first Converged, and when that was."""
    ended_s = next(action.time_s for action in run.actions if action.reason in CONVERGED)
    steps = {
        action.time_s
        for action in run.actions
        if action.reason in STEPS and action.time_s <= ended_s
    }
    return len(steps), ended_s


@pytest.mark.parametrize(
    ("seed", "delta"),
    [(seed, DEFAULT) for seed in SMALL[:2]] + [(seed, 1.0) for seed in SMALL],
)
def test_a_cluster_converges_within_the_bound(seed: int, delta: float) -> None:
    """SoCC'18, theorem 1, with rounding: N · (⌊log₁₊Δ F⌋ + 1) + 2 steps, F = max(max /
    initial). With a Δ of 5 % and jobs that begin with next to nothing a run has no room for as
    many steps; with one of 100 % it has.
    """
    runner = Runner(BUILDER, PAPER.policy)
    scenario = runner.prepared(steady(seed), PAPER.policy, {"improvement": delta})
    run = runner.simulated(scenario, PAPER.policy, FROM_S)
    first = int(np.argmax(run.times_s >= FROM_S))
    begins = np.maximum(LEAST, np.nan_to_num(run.shares[:, first]))
    f = float(1 / min(1.0, begins.min()))
    steps, ended_s = searched(run)
    bound = len(run.jobs) * (math.floor(math.log(f, 1 + delta)) + 1) + 2
    assert steps <= bound
    room = (scenario.length_s - FROM_S) / HengeParameters().settle_s
    assert delta == DEFAULT or bound < room
    # What it found is worth no less than what it began with.
    before, after = run.satisfaction[first], run.satisfaction[run.times_s > ended_s - 60][0]
    assert after >= before - 0.01


def two_on_few_slots() -> Scenario:
    """One job that meets its intent with instances to spare, one that matters more and has
    too few; and every slot in use.
    """
    poor = JobSet("poor", 1, Topology.PAGELOAD, latency(80), (35,))
    rich = JobSet(
        "rich",
        1,
        Topology.PAGELOAD,
        latency(200),
        (10,),
        instances=(("transform", 5), ("filter", 5), ("join", 8), ("project", 5)),
    )
    experiment = Experiment("few", "few slots", "", 3600.0, (), (), (), FROM_S)
    scenario = BUILDER.scenario(experiment, Variant("few", (poor, rich), machines=4))
    slots = sum(
        sum(o.parallelism.initial for o in scheduled.job.operators) for scheduled in scenario.jobs
    )
    return replace(scenario, slots=slots, policy=policy("henge", {}))


@pytest.mark.parametrize("down_delay_s", [0.0, 60.0])
def test_a_reduction_gets_through_the_guard_and_who_matters_more_gets_the_slots(
    down_delay_s: float,
) -> None:
    """The guard lets a job have fewer instances only after that was
    wished for as long as it says.
    """
    scenario = two_on_few_slots()
    limits = Limits(round_s=scenario.round_s, down_delay_s=down_delay_s)
    result = simulate(scenario, limits=limits)
    run = Run.of(scenario, PAPER.policy.name, result.figures, FROM_S)
    asked = [action for action in run.actions if action.reason == messages.REDUCTION]
    done = [action for action in asked if action.changed]
    assert done
    assert done[0].time_s - asked[0].time_s >= down_delay_s
    assert run.line("papers/poor", "share")[0] < 0.5
    late = run.times_s > 3000
    assert run.line("papers/poor", "share")[late].mean() > 0.99
    assert run.satisfaction[late].mean() > 0.99


def test_the_default_guard_is_one_that_delays() -> None:
    assert Limits().down_delay_s > 0
