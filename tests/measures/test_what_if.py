"""What a job would do with other instances or another load."""

import math

import pytest

from tests.engines.simulated.test_live import live
from trilithon.contract.observer import Observer
from trilithon.measures.assess import Assessment, assess
from trilithon.measures.what_if import predict
from trilithon.model.job import Job

JOB = "shop/orders"


def measured(seconds: float = 60.0) -> tuple[Assessment, Job]:
    """Some seconds of the showcase, without a controller."""
    cluster, wall = live()
    observer = Observer(600.0)
    for _ in range(7):
        wall.at_s += seconds / 6
        observer.observe(cluster, cluster.now_s())
    window = observer.series.window(seconds / 2)
    assert window is not None
    return assess(window), cluster.jobs()[JOB].job


def test_what_changes_nothing_is_what_was_measured() -> None:
    assessment, job = measured()
    row = assessment.window.layout.job_row[JOB]
    same = predict(assessment, job, {})
    assert same is not None
    assert same.calibrated
    assert same.keeps_up
    assert same.values["latency.p95"] == pytest.approx(
        assessment.intents.values["latency.p95"][row]
    )
    assert same.utility == pytest.approx(assessment.intents.utility[row])
    assert same.values["throughput"] == pytest.approx(
        assessment.intents.values["throughput"][row], rel=0.1
    )
    assert same.slots == sum(o.instances for o in same.operators) == 11


def test_more_load_than_an_operator_can_take_has_no_bound_and_no_utility() -> None:
    assessment, job = measured()
    over = predict(assessment, job, {}, load=4.0)
    assert over is not None
    assert over.keeps_up is False
    assert over.values["latency.p95"] == math.inf
    assert over.utility == 0.0
    assert over.met is False
    juice = over.values["juice"]
    assert juice is not None
    assert juice < 1
    busiest = max(over.operators, key=lambda o: o.utilisation or 0)
    assert busiest.operator == "third"
    assert busiest.waiting_s == math.inf


def test_more_instances_carry_more_load_and_records_wait_less() -> None:
    assessment, job = measured()
    now, more = (predict(assessment, job, counts) for counts in ({}, {"third": 12}))
    assert now is not None
    assert more is not None
    assert more.slots == now.slots + 8
    assert (more.values["latency.mean"] or 0) < (now.values["latency.mean"] or 0)
    cured = predict(assessment, job, {"first": 8, "second": 16, "third": 24, "fourth": 8}, load=4.0)
    assert cured is not None
    assert cured.keeps_up
    assert cured.values["juice"] == pytest.approx(1.0)
    assert cured.values["throughput"] == pytest.approx(
        4 * (now.values["throughput"] or 0), rel=0.01
    )


def test_a_job_that_is_not_in_the_window_has_no_prediction() -> None:
    assessment, job = measured()
    other = Job("no", "body", job.sources, job.operators, job.edges, job.sinks)
    assert predict(assessment, other, {}) is None
