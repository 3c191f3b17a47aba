"""The cases of `spark-health` on a simulated Spark: each is diagnosed right, and cured in time."""

import pytest

from trilithon.experiments.dhalion import spark_health
from trilithon.experiments.dhalion.confusion import NONE, first_diagnosis
from trilithon.experiments.dhalion.simulated_health import ROUND_S, simulate_case
from trilithon.experiments.dhalion.spark_health import CASES, HealthCase
from trilithon.policies.dhalion.diagnosers import OVER


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_is_diagnosed_right_and_reads_what_arrives_at_its_end(case: HealthCase) -> None:
    simulated = simulate_case(case)
    first = first_diagnosis(decision.reason for decision in simulated.decisions)
    shares = simulated.read_shares
    before, after = shares[int(spark_health.BEFORE_S / ROUND_S)], shares[-1]
    run = spark_health.HealthRun(case.name, 0, first, (), (), before, after)
    assert run.right
    assert run.met
    assert run.met_before is (case.right in {OVER, NONE})
