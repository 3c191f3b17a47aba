"""The cases of `spark-health` on a simulated Spark: each is diagnosed right, and cured in time."""

from dataclasses import replace

import pytest

from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.engines.simulated.faults import SlowInstance
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.experiments.dhalion import spark_health
from trilithon.experiments.dhalion.spark_health import CASES, HealthCase
from trilithon.experiments.tenants import rules
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.model.profile import Distribution, Profile
from trilithon.plugins import policy
from trilithon.policies.dhalion.diagnosers import OVER, SKEW, SLOW
from trilithon.scenarios.chosen import assumed_costs, load_chosen
from trilithon.scenarios.rounds import ControlledRounds
from trilithon.workloads.shapes import Constant

ROUND_S = 5.0


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_is_diagnosed_right_and_reads_what_arrives_at_its_end(case: HealthCase) -> None:
    job, machine = simulated_job(case), MachineSpec("m0", 8.0, 8e9)
    engine = SimulatedEngine([machine], SPARK_RTM, assumed_costs(load_chosen()), seed=1)
    engine.submit(job, initial(job))
    engine.feed(job.id, "sentences", Constant(spark_health.RATE_PER_S))
    if case.right == SLOW:
        slower = float(spark_health.SLOWER)
        engine.inject(SlowInstance(0.0, None, job.id, "count", 0, slower))
    acting = policy("dhalion", spark_health.PARAMETERS)
    limits = rules("dhalion", spark_health.PARAMETERS).limits
    reasons: list[str] = []
    shares: list[float | None] = []
    with ControlledRounds(engine, acting, limits, 1, None) as rounds:
        while engine.now_s < spark_health.RUN_S:
            engine.advance(ROUND_S)
            reasons += [ruling.decision.reason for ruling in rounds.round()]
            window = rounds.series.window(spark_health.BEFORE_S)
            shares.append(spark_health.read_share(window, job.id))
    diagnoses = [reason for reason in reasons if reason.startswith("DIAGNOSIS_")]
    first = diagnoses[0].removeprefix("DIAGNOSIS_").lower() if diagnoses else spark_health.NONE
    before, after = shares[int(spark_health.BEFORE_S / ROUND_S)], shares[-1]
    run = spark_health.HealthRun(case.name, 0, first, tuple(diagnoses), (), before, after)
    assert run.right
    assert run.met
    assert run.met_before is (case.right in {OVER, spark_health.NONE})
