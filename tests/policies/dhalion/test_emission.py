"""The throughput SLO: when the first operators get more instances, and when that cannot help."""

from dataclasses import replace

import pytest

from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.policies.dhalion.diagnosers import NO_DATA, SLO_MISSED, SOURCE_BOUND, UNDER
from trilithon.policies.dhalion.health_policies import ThroughputSloPolicy


def diagnosed(busy: float, *, lag_growth: float = 0.0, emission: float = 1000.0) -> list[str]:
    """What is diagnosed if the first operator is at work for so much of the time, for an SLO of
    2,000 records/s.
    """
    view = operator_view("count", [instance_view(busy=busy)] * 4, 0.0, at_source=True)
    case = case_of(view, emission=emission, arriving=3000.0)
    job = replace(case.view.job, intent=Intent((Threshold(Metric.EMISSION, 2000.0),)))
    case = replace(case, view=replace(case.view, job=job, lag_growth_per_s=lag_growth))
    policy = ThroughputSloPolicy()
    symptoms = [s for detector in policy.detectors for s in detector.detect(case)]
    found = [d for each in policy.diagnosers for d in each.diagnose(case, symptoms)]
    return [diagnosis.kind for diagnosis in found if diagnosis.kind != "over_provisioned"]


@pytest.mark.parametrize("busy", [0.1, 0.45, 0.6, 0.9])
def test_where_the_readers_are_the_limit_the_first_operators_are_left_alone(busy: float) -> None:
    assert diagnosed(busy, lag_growth=300.0) == [SOURCE_BOUND]


def test_a_first_operator_that_is_always_at_work_gets_more_instances() -> None:
    assert diagnosed(0.95, lag_growth=300.0) == [UNDER, SLO_MISSED]
    assert diagnosed(0.95) == [SLO_MISSED]


def test_if_no_more_records_arrive_people_are_told() -> None:
    assert diagnosed(0.2) == [NO_DATA]


def test_at_the_slo_nothing_is_wrong() -> None:
    assert diagnosed(0.2, emission=2000.0) == []
