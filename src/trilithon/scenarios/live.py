"""Runs a scenario in real time, for trying the product without Spark."""

import time
from importlib import resources
from pathlib import Path
from typing import Final

from trilithon.control.rules import Limits, Rules
from trilithon.engines.simulated.live import LiveSimulation
from trilithon.model.mode import Mode
from trilithon.scenarios.run import engine_for
from trilithon.scenarios.scenario import Scenario

SHOWCASE: Final = Path(str(resources.files("trilithon.scenarios") / "showcase.yaml"))
# A cluster in memory: nothing is lost by acting soon, and one looks on for minutes, not for days.
FRESH_ROUNDS: Final = 3


def live_simulation(scenario: Scenario, speed: float, load_per_s: float) -> LiveSimulation:
    """The cluster of a scenario with its jobs, in real time. The time of its loads and faults
    begins now, and its loads go on beyond its length.
    """
    return LiveSimulation(
        engine_for(scenario), began_s=time.time(), speed=speed, load_per_s=load_per_s
    )


def live_rules(scenario: Scenario) -> Rules:
    """Rules with the rounds and the policy of a scenario. Without a policy, jobs are observed."""
    limits = Limits(
        round_s=scenario.round_s,
        cool_down_s=scenario.cool_down_s,
        fresh_s=FRESH_ROUNDS * scenario.round_s,
        up_factor=4.0,
        down_factor=0.2,
        down_delay_s=0.0,
        series_every_s=5.0,
    )
    policy = scenario.policy
    if policy is None:
        return Rules(limits=limits, mode=Mode.OFF, seed=scenario.seed)
    return Rules(
        limits=limits,
        policy=policy.name,
        parameters=policy.parameters.given(),
        seed=scenario.seed,
    )
