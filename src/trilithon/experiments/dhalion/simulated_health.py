"""Runs a case of `spark-health` on a simulated Spark: for tests, and to see what `dhalion` does."""

from dataclasses import dataclass, replace
from typing import Final

from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.engines.simulated.faults import SlowInstance
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.dhalion import spark_health
from trilithon.experiments.dhalion.examined_policy import ExaminedPolicy
from trilithon.experiments.dhalion.spark_health import HealthCase
from trilithon.experiments.tenants import rules
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.model.profile import Distribution, Profile
from trilithon.plugins import policy
from trilithon.policies.decision import Decision
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLOW
from trilithon.scenarios.chosen import assumed_costs, load_chosen
from trilithon.scenarios.rounds import ControlledRounds
from trilithon.workloads.shapes import Constant

ROUND_S: Final = 5.0
_SEED: Final = 1


@dataclass(frozen=True)
class SimulatedHealth:
    """What was decided, and in each round the share that the job read of what arrived."""

    decisions: tuple[Decision, ...]
    read_shares: tuple[float | None, ...]


def simulated_job(case: HealthCase) -> Job:
    """The job of a case with its waits and its hot key as a profile; faults are injected."""
    wait_ms = spark_health.SHORT_WAIT_MS if case.right == OVER else spark_health.WAIT_MS
    counting = Profile(
        service_ms=wait_ms,
        distribution=Distribution.DETERMINISTIC,
        cpu_share=0.0,
        hot_key=spark_health.HOT_PERCENT / 100 if case.right == SKEW else None,
    )
    split, count = case.job.operators
    return replace(case.job, operators=(split, replace(count, profile=counting)))


def simulate_case(case: HealthCase, length_s: float = spark_health.RUN_S) -> SimulatedHealth:
    """The policy may act from the beginning on, with the parameters of the runs on Spark."""
    job, machine = simulated_job(case), MachineSpec("m0", 8.0, 8e9)
    engine = SimulatedEngine([machine], SPARK_RTM, assumed_costs(load_chosen()), seed=_SEED)
    engine.submit(job, initial(job))
    engine.feed(job.id, "sentences", Constant(spark_health.RATE_PER_S))
    if case.right == SLOW:
        slower = float(spark_health.SLOWER)
        engine.inject(SlowInstance(0.0, None, job.id, "count", 0, slower))
    acting = ExaminedPolicy(policy("dhalion", spark_health.PARAMETERS), job.id)
    limits = rules("dhalion", spark_health.PARAMETERS).limits
    shares = []
    with ControlledRounds(engine, acting, limits, _SEED, None) as rounds:
        while engine.now_s < length_s:
            engine.advance(ROUND_S)
            rounds.round()
            window = rounds.series.window(spark_health.BEFORE_S)
            shares.append(spark_health.read_share(window, job.id))
    return SimulatedHealth(tuple(acting.decisions), tuple(shares))
