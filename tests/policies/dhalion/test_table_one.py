"""Table 1: what each condition says, and that at most one holds."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.policies.dhalion.detectors import ratio_to_rest, suspending
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.diagnosers import SKEW, SLOW, UNDER
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy
from trilithon.policies.scene import Span

TABLE_ONE = DhalionParameters(diagnosis="table_1", skew=2.0)
numbers = st.one_of(st.none(), st.floats(0, 1e6))
instances = st.lists(
    st.builds(
        instance_view,
        rate=numbers,
        queue=numbers,
        parked_s=numbers,
        service_s=st.one_of(st.none(), st.floats(1e-6, 10)),
    ),
    min_size=1,
    max_size=6,
)


def diagnoses_of(parameters: DhalionParameters, *views: Any, **operator: Any) -> list[str]:
    case = case_of(operator_view("count", views, **operator), parameters=parameters)
    policy = ProvisioningPolicy()
    symptoms = [s for detector in policy.detectors for s in detector.detect(case)]
    return [
        diagnosis.kind
        for diagnoser in policy.diagnosers
        for diagnosis in diagnoser.diagnose(case, symptoms)
    ]


@given(instances, st.floats(0, 1), st.booleans())
def test_at_most_one_condition_of_table_one_holds(
    views: list[Any], held_back: float, by_table: bool
) -> None:
    parameters = TABLE_ONE if by_table else DhalionParameters()
    found = diagnoses_of(parameters, *views, held_back=held_back)
    assert len([kind for kind in found if kind in {UNDER, SLOW, SKEW}]) <= 1


FULL, EMPTY = 1000.0, 10.0


@pytest.mark.parametrize("parameters", [TABLE_ONE, DhalionParameters()])
def test_instances_that_fare_alike_are_too_few(parameters: DhalionParameters) -> None:
    views = [instance_view(rate=100, queue=FULL, parked_s=50) for _ in range(4)]
    assert diagnoses_of(parameters, *views) == [UNDER]


@pytest.mark.parametrize("parameters", [TABLE_ONE, DhalionParameters()])
def test_equal_rates_and_one_long_queue_are_a_slow_instance(parameters: DhalionParameters) -> None:
    peers = [instance_view(rate=100, queue=EMPTY, parked_s=0, service_s=0.002) for _ in range(3)]
    slow = instance_view(rate=100, queue=FULL, parked_s=200, service_s=0.01)
    assert diagnoses_of(parameters, *peers, slow) == [SLOW]


@pytest.mark.parametrize("parameters", [TABLE_ONE, DhalionParameters()])
def test_a_higher_rate_and_a_longer_queue_are_skew(parameters: DhalionParameters) -> None:
    peers = [instance_view(rate=100, queue=EMPTY, parked_s=0) for _ in range(3)]
    hot = instance_view(rate=300, queue=FULL, parked_s=200)
    assert diagnoses_of(parameters, *peers, hot) == [SKEW]


@pytest.mark.parametrize(
    ("rate", "service_s", "kind"),
    [
        (120, 0.01, SLOW),
        (60, 0.01, SLOW),
        (300, 0.0025, SKEW),
        (120, 0.0023, SKEW),
        (60, 0.002, None),
    ],
)
def test_the_larger_of_rate_and_service_time_is_the_cause(
    rate: float, service_s: float, kind: str | None
) -> None:
    """A slow instance took 1.2 times its peers' records on Spark, as a part of the window was the
    draining of its queue: it was taken for skewed.
    """
    peers = [instance_view(rate=100, queue=EMPTY, parked_s=0, service_s=0.002) for _ in range(3)]
    worst = instance_view(rate=rate, queue=FULL, parked_s=200, service_s=service_s)
    assert diagnoses_of(DhalionParameters(), *peers, worst) == ([] if kind is None else [kind])


def test_table_one_alone_asks_for_rates_only() -> None:
    peers = [instance_view(rate=100, queue=EMPTY, parked_s=0, service_s=0.002) for _ in range(3)]
    draining = instance_view(rate=220, queue=FULL, parked_s=200, service_s=0.01)
    assert diagnoses_of(TABLE_ONE, *peers, draining) == [SKEW]


def test_an_instance_that_is_full_first_by_chance_is_not_slow() -> None:
    """Keys fall unevenly: one instance gets 5 % more and is as fast as the others."""
    peers = [instance_view(rate=100, queue=EMPTY, parked_s=0) for _ in range(3)]
    first = instance_view(rate=105, queue=FULL, parked_s=200)
    assert diagnoses_of(DhalionParameters(), *peers, first) == [UNDER]
    assert diagnoses_of(TABLE_ONE, *peers, first) == [SLOW]


def test_a_lowered_weight_does_not_look_like_skew() -> None:
    """Rates are divided by weights: the slow instance takes a third, as it should."""
    peers = [instance_view(rate=300, queue=FULL, parked_s=100, weight=1.2) for _ in range(3)]
    eased = instance_view(rate=100, queue=FULL, parked_s=100, weight=0.4)
    assert diagnoses_of(DhalionParameters(), *peers, eased) == [UNDER]


def test_without_back_pressure_nothing_of_table_one_holds() -> None:
    peers = [instance_view(rate=100, queue=EMPTY, parked_s=0) for _ in range(3)]
    hot = instance_view(rate=300, queue=FULL, parked_s=1)
    assert SKEW not in diagnoses_of(DhalionParameters(), *peers, hot, held_back=0.01)


def test_set_b_is_missing_where_an_instance_was_not_measured() -> None:
    views = (instance_view(parked_s=10), instance_view(parked_s=None))
    operator = operator_view("count", views)
    assert suspending(operator, 0.5) == ()
    assert ratio_to_rest(operator, (), lambda instance: instance.queue) is None


def test_missing_rates_lead_to_no_diagnosis() -> None:
    views = [instance_view(rate=None, queue=FULL, parked_s=50) for _ in range(2)]
    assert diagnoses_of(DhalionParameters(), *views) == []


def test_over_provisioned_is_predicted_and_by_the_papers_rule_any_healthy_job_is() -> None:
    views = [instance_view(rate=100, queue=0.5, parked_s=0, busy=0.6) for _ in range(3)]
    paper = replace(DhalionParameters(), over="pending")
    assert diagnoses_of(DhalionParameters(), *views, held_back=0.0) == []
    assert diagnoses_of(paper, *views, held_back=0.0) == ["over_provisioned"]
    idle = [replace(view, busy=0.2) for view in views]
    assert diagnoses_of(DhalionParameters(), *idle, held_back=0.0) == ["over_provisioned"]


def test_an_operator_at_its_minimum_is_not_over_provisioned() -> None:
    """The two idle splitters of a healthy job, which must have two, were diagnosed."""
    idle = [instance_view(rate=100, queue=0.5, parked_s=0, busy=0.1) for _ in range(2)]
    view = operator_view("count", idle, held_back=0.0)
    policy = ProvisioningPolicy()
    for least, expected in ((1, ["over_provisioned"]), (2, [])):
        case = case_of(view, spans={"count": Span(least, 8)})
        symptoms = [s for detector in policy.detectors for s in detector.detect(case)]
        diagnosed = [d.kind for each in policy.diagnosers for d in each.diagnose(case, symptoms)]
        assert diagnosed == expected
