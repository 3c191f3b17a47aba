"""The flush time of Spark's shuffle, by the constraints of all jobs; pure, without Spark."""

from dataclasses import replace

import pytest

from tests.policies.latency.model import limit, line
from trilithon.cli.plan_command import notes
from trilithon.engines.spark.flush_time import (
    FLUSH_MS,
    LEAST_FLUSH_MS,
    MOST_FLUSH_MS,
    constraint_floor_ms,
    flush_time_ms,
    kafka_waits,
    unreachable_constraints,
)
from trilithon.model.job import Job
from trilithon.model.profile import Profile

PATH = ("in->a", "a", "a->b", "b")


def job(*limits_ms: float, service_ms: float = 0.0, path: tuple[str, ...] = PATH) -> Job:
    made = line("a", "b", constraints=tuple(limit(ms, *path) for ms in limits_ms))
    operators = tuple(replace(o, profile=Profile(service_ms=service_ms)) for o in made.operators)
    return replace(made, operators=operators)


def test_the_smallest_time_that_any_constraint_of_any_job_needs_is_taken() -> None:
    assert flush_time_ms([job(100.0), job(50.0, 30.0)]) == 12  # 0.8 · 30 / 2 edges
    assert flush_time_ms([job(50.0, service_ms=10.0)]) == 12  # 0.8 · (50 − 20) / 2


def test_without_constraints_it_is_the_engines_own() -> None:
    assert flush_time_ms([job()]) == FLUSH_MS
    assert kafka_waits(job()) == {}


def test_it_has_bounds() -> None:
    assert flush_time_ms([job(1.0)]) == LEAST_FLUSH_MS
    assert flush_time_ms([job(1000.0)]) == MOST_FLUSH_MS


def test_kafka_waits_are_those_of_the_job_alone() -> None:
    assert set(kafka_waits(job(30.0)).values()) == {12}


def test_the_floor_of_a_constraint_is_work_flushes_and_pauses() -> None:
    inner = job(20.0, service_ms=2.0, path=("a", "a->b", "b"))
    (constraint,) = inner.intent.constraints
    assert constraint_floor_ms(inner, constraint, 5) == pytest.approx(4.0 + 2.5)
    whole = job(20.0, service_ms=2.0)
    (constraint,) = whole.intent.constraints
    assert constraint_floor_ms(whole, constraint, 5) > 4.0 + 5.0


def test_plan_flags_a_constraint_below_its_floor() -> None:
    assert not unreachable_constraints(job(50.0, service_ms=2.0))
    (sentence,) = unreachable_constraints(job(8.0, service_ms=2.0))
    assert sentence.startswith("8 ms cannot be kept on in->a, a, a->b, b")
    assert sentence in notes(job(8.0, service_ms=2.0))
