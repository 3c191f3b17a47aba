"""The flush time of Spark's shuffle, by the needs of all jobs; pure, without Spark."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engines.spark.diamond import diamond
from tests.engines.spark.test_supervision import World
from tests.policies.latency.model import limit, line
from trilithon.contract.engine import Ability, How, Reallocate, Status
from trilithon.engines.abilities import REAL_TIME
from trilithon.engines.spark.cuts import cut_into_parts, part_job
from trilithon.engines.spark.flush_time import (
    FLUSH_MS,
    LEAST_FLUSH_MS,
    MOST_FLUSH_MS,
    JobState,
    flush_time_ms,
    later_lingers,
    writer_waits,
)
from trilithon.engines.spark.shared_flush_time import SharedFlushTime
from trilithon.model.allocation import initial
from trilithon.model.intent import EdgeName, Metric, Threshold
from trilithon.model.job import Job
from trilithon.model.profile import Profile

DIAMOND = diamond("gathering")
PATH = ("in->a", "a", "a->b", "b")


def job(*limits_ms: float, service_ms: float = 0.0, path: tuple[str, ...] = PATH) -> Job:
    made = line("a", "b", constraints=tuple(limit(ms, *path) for ms in limits_ms))
    operators = tuple(replace(o, profile=Profile(service_ms=service_ms)) for o in made.operators)
    return replace(made, operators=operators)


def state(job: Job, batching_ms: Mapping[str, float] | None = None) -> JobState:
    edges = {EdgeName(*name.split("->")): ms for name, ms in (batching_ms or {}).items()}
    return job, replace(initial(job), batching_ms=edges)


def test_the_smallest_time_that_any_constraint_of_any_job_needs_is_taken() -> None:
    assert flush_time_ms([state(job(100.0)), state(job(50.0, 12.0))]) == 3  # half of 12 / 2 edges
    assert flush_time_ms([state(job(28.0, service_ms=10.0))]) == 2  # half of (28 − 20) / 2


def test_without_constraints_it_is_the_engines_own() -> None:
    assert flush_time_ms([state(job())]) == FLUSH_MS
    assert flush_time_ms([]) == FLUSH_MS
    assert flush_time_ms([state(job())], own_ms=20) == 20


def test_a_loose_constraint_alone_does_not_lengthen_it() -> None:
    """Only a batching time does: it is made from what operators really take."""
    assert flush_time_ms([state(job(1000.0))]) == FLUSH_MS
    assert flush_time_ms([state(job(1000.0), {"in->a": 8.5, "a->b": 14.0})]) == 8


def test_a_constraint_without_batching_times_counts_beside_one_that_has_them() -> None:
    """It was left out as soon as another constraint of the job had been measured."""
    spec = job(1000.0)
    tight = limit(3.0, "a", "a->b", "b")
    both = replace(spec, intent=replace(spec.intent, constraints=(*spec.intent.constraints, tight)))
    assert flush_time_ms([state(both, {"in->a": 9.0})]) == 1  # half of 3
    loose = replace(tight, mean_latency_ms=900.0)
    both = replace(spec, intent=replace(spec.intent, constraints=(*spec.intent.constraints, loose)))
    assert flush_time_ms([state(both, {"in->a": 9.0})]) == FLUSH_MS
    assert flush_time_ms([state(both, {"in->a": 9.0, "a->b": 9.0})]) == 9


def test_other_jobs_keep_it_short() -> None:
    patient = state(job(1000.0), {"in->a": 9.0, "a->b": 9.0})
    assert flush_time_ms([patient, state(job())]) == FLUSH_MS
    assert flush_time_ms([patient, state(job(1000.0), {"in->a": 9.0, "a->b": 7.0})]) == 7


def test_a_threshold_on_latency_keeps_it_short() -> None:
    spec = job(1000.0)
    bounded = replace(spec.intent, thresholds=(Threshold(Metric.LATENCY, 100.0),))
    gathered = {"in->a": 40.0, "a->b": 40.0}
    assert flush_time_ms([state(spec, gathered)]) == MOST_FLUSH_MS
    assert flush_time_ms([state(replace(spec, intent=bounded), gathered)]) == FLUSH_MS


def test_it_has_bounds() -> None:
    assert flush_time_ms([state(job(1.0))]) == LEAST_FLUSH_MS
    assert flush_time_ms([state(job(1.0, service_ms=10.0))]) == LEAST_FLUSH_MS
    gathered = {"in->a": 400.0, "a->b": 400.0}
    assert flush_time_ms([state(job(1000.0), gathered)]) == MOST_FLUSH_MS


def test_an_edge_to_a_sink_has_its_time_in_kafkas_producer() -> None:
    spec = job(100.0)
    (sink,) = spec.sinks
    alone = state(spec, {f"b->{sink.name}": 30.0})
    assert flush_time_ms([alone]) == FLUSH_MS
    assert writer_waits(*alone) == {"kafka.linger.ms": "30"}
    assert writer_waits(*state(spec, {"in->a": 30.0})) == {}


def test_a_cut_edge_divides_its_time_between_producer_and_shuffle() -> None:
    wanted = replace(initial(DIAMOND), batching_ms={EdgeName("split", "left"): 14.0})
    assert flush_time_ms([(DIAMOND, wanted)]) == 7
    graph = cut_into_parts(DIAMOND)
    parts = {part.name: part_job(graph, part, lambda cut: cut.name, {}) for part in graph.parts}
    assert writer_waits(parts.pop("split"), wanted) == {"kafka.linger.ms": "7"}
    assert not any(writer_waits(part, wanted) for part in parts.values())


def test_executors_hear_of_a_flush_time_when_it_changes() -> None:
    sent: list[int] = []
    shared = SharedFlushTime(sent.append)
    patient, tight = state(job(1000.0)), state(job(12.0))
    assert shared.update([patient])
    assert not shared.update([patient])
    with shared.starting(*tight):
        shared.update([patient])
    assert shared.update([patient])
    assert sent == [FLUSH_MS, 3, FLUSH_MS]


def test_a_job_that_does_not_start_leaves_nothing_behind() -> None:
    sent: list[int] = []
    shared = SharedFlushTime(sent.append)
    with pytest.raises(RuntimeError), shared.starting(*state(job(12.0))):
        raise RuntimeError
    shared.update([])
    assert sent == [FLUSH_MS]


def test_the_engine_takes_what_its_jobs_need_and_pushes_no_table_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.engine.flush_time.own_ms = FLUSH_MS
    control: Any = world.engine.control

    def sent() -> list[int]:
        return [call.args[0] for call in control.set_flush_time.call_args_list]

    spec = world.submit("patient")
    tables = control.set_table.call_count
    wanted = replace(initial(spec), batching_ms={spec.edges[0].name: 8.0}).next_generation()
    outcome = world.engine.apply(Reallocate(wanted))
    assert (outcome.status, outcome.code) == (Status.DONE, "AT_BOUNDARY")
    assert outcome.message == "All jobs flush after 8 ms from their next batch on."
    assert control.set_table.call_count == tables
    assert sent() == [FLUSH_MS, 8]
    other = world.submit("other")
    assert sent() == [FLUSH_MS, 8, FLUSH_MS]
    world.engine.cancel(other.id)
    world.engine.cancel(spec.id)
    assert sent() == [FLUSH_MS, 8, FLUSH_MS, 8, FLUSH_MS]
    strange = replace(wanted, batching_ms={EdgeName("a", "nowhere"): 1.0}, generation=9)
    world.submit("patient")
    assert world.engine.apply(Reallocate(strange)).status is Status.REFUSED


def test_batching_changes_at_the_end_of_a_batch() -> None:
    assert REAL_TIME[Ability.BATCHING] is How.AT_BOUNDARY


def test_an_outcome_says_which_times_wait_for_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Kafka's producers gather was reported as done, and changed with the next start."""
    world = World(tmp_path, monkeypatch)
    world.engine.flush_time.own_ms = FLUSH_MS
    spec = world.submit("patient")
    written = spec.edges[-1].name
    wanted = replace(initial(spec), batching_ms={written: 30.0}).next_generation()
    outcome = world.engine.apply(Reallocate(wanted))
    assert (outcome.status, outcome.code) == (Status.DONE, "AT_RESTART")
    assert outcome.message == f"linger.ms of {written} changes when {spec.id} is started again."
    both = {written: 20.0, spec.edges[0].name: 8.0}
    outcome = world.engine.apply(Reallocate(replace(wanted, batching_ms=both).next_generation()))
    assert outcome.code == "AT_BOUNDARY"
    assert outcome.message.startswith("All jobs flush after 8 ms from their next batch on. linger")
    fewer = replace(wanted, batching_ms=both, generation=7, parallelism=wanted.parallelism)
    assert world.engine.apply(Reallocate(fewer)).code == ""
    cut = EdgeName("split", "left")
    gathered = replace(initial(DIAMOND), batching_ms={cut: 14.0, EdgeName("in", "split"): 9.0})
    assert later_lingers(DIAMOND, initial(DIAMOND), gathered) == [cut]
