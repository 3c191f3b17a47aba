"""Batches of single records: when they leave, what they cost their sender, and what they save."""

from dataclasses import replace

import numpy as np
import pytest

from tests.engines.simulated.worlds import ASSUMED, line, operator
from trilithon.contract.engine import Reallocate
from trilithon.engines.simulated.character import Character, nephele
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.faults import OtherSelectivity
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.engines.simulated.moving import FIRST_ROOM
from trilithon.model.allocation import initial
from trilithon.model.intent import EdgeName
from trilithon.model.job import Edge, Grouping, Job, Sink, Source, TimeWindow, Work
from trilithon.workloads.shapes import Constant

SHIP_S = 0.002


def engine_of(character: Character, cores: float = 64.0) -> SimulatedEngine:
    machines = [MachineSpec("m0", cores, 1e9)]
    return SimulatedEngine(machines, character, ASSUMED, mode=SimulationMode.EVENTS, seed=3)


def character(ship_s: float = SHIP_S, records: int = 1000) -> Character:
    return nephele(
        ship_s=ship_s,
        buffer_bytes=records * ASSUMED.record_bytes,
        transit_s=0.0,
        queue=500,
        start_s=0.0,
        restart_s=1.0,
    )


def fed(
    job: Job, rate: float, batching_ms: dict[EdgeName, float], engine: SimulatedEngine
) -> SimulatedEngine:
    engine.submit(job, replace(initial(job), batching_ms=batching_ms))
    for source in job.sources:
        engine.feed(job.id, source.name, Constant(rate))
    return engine


FIRST, SECOND = EdgeName("in", "a"), EdgeName("a", "b")


def two(rate: float, batching_ms: dict[EdgeName, float], records: int = 1000) -> SimulatedEngine:
    """Two operators in a row for 20 s; only `a` ships to an operator."""
    job = line(operator("a", service_ms=1.0, cpu_share=1.0), operator("b", service_ms=0.1))
    engine = fed(job, rate, batching_ms, engine_of(character(records=records)))
    engine.advance(20.0)
    return engine


def service_s(engine: SimulatedEngine, actor: int) -> float:
    actors = engine.world.actors
    return float(actors["busy_s"][actor] / actors["taken"][actor])


def actor_of(engine: SimulatedEngine, operator: str) -> int:
    (running,) = engine.running.values()
    return running.rows.actor(engine.world, operator, 0)


def test_every_shipment_costs_its_sender_and_shows_in_its_service_time() -> None:
    engine = two(100, {})
    assert service_s(engine, actor_of(engine, "a")) == pytest.approx(0.001 + SHIP_S, rel=0.05)


def test_a_batch_is_one_shipment() -> None:
    """100 records/s gathered for 90 ms after the first: ten to a shipment."""
    engine = two(100, {SECOND: 90.0})
    assert service_s(engine, actor_of(engine, "a")) == pytest.approx(0.001 + SHIP_S / 10, rel=0.08)


def test_a_batch_leaves_when_its_time_is_over_and_the_wait_is_counted() -> None:
    engine = two(20, {SECOND: 40.0})
    (running,) = engine.running.values()
    edge = engine.world.edges[running.rows.edges["a", "b"]]
    mean_s = edge["batching_s"] / edge["taken"]
    assert 0.020 < mean_s <= 0.040
    assert edge["channel_s"] >= edge["batching_s"]


def test_a_full_buffer_leaves_before_its_time() -> None:
    engine = two(100, {SECOND: 60_000.0}, records=4)
    (running,) = engine.running.values()
    edge = engine.world.edges[running.rows.edges["a", "b"]]
    assert edge["taken"] >= edge["emitted"] - 4
    # Three gaps of 10 ms, two, one, none.
    assert edge["batching_s"] / edge["taken"] == pytest.approx(0.015, rel=0.1)


def test_batching_raises_the_throughput_that_a_sender_can_have() -> None:
    """1 ms of work and 2 of shipping: 333 records/s one by one, nearly 1,000 in batches."""
    rates = []
    for batching_ms in ({}, {FIRST: 50.0, SECOND: 50.0}):
        engine = two(2000, batching_ms)
        rates.append(engine.world.actors["taken"][actor_of(engine, "a")] / 20)
    assert rates[0] == pytest.approx(333, rel=0.05)
    assert rates[1] > 900


def test_senders_that_wait_for_each_other_do_not_lock_up() -> None:
    """All records in flight to a full receiver may lie in the buffers of its senders."""
    job = line(operator("a", 8, service_ms=1.0), operator("b", service_ms=0.1))
    narrow = replace(character(records=4), credits=20)
    engine = fed(job, 400, {SECOND: 60_000.0}, engine_of(narrow))
    engine.advance(20.0)
    written = engine.world.nodes["written"].sum()
    assert written > 0.95 * 400 * 20


def test_each_partition_has_a_reader() -> None:
    job = line(operator("a", 4, service_ms=1.0))
    job = replace(job, sources=(replace(job.sources[0], partitions=4),))
    engine = fed(job, 1000, {}, engine_of(character()))
    engine.advance(10.0)
    # One reader could ship 500 records/s.
    assert engine.world.nodes["written"].sum() == pytest.approx(10_000, rel=0.05)


def test_results_of_a_window_are_written_at_its_end() -> None:
    windowed = replace(
        operator("a", 2, service_ms=0.1),
        work=Work(window=TimeWindow("at", 0.2), aggregate=(("n", "count(*)"),)),
    )
    engine = fed(line(windowed), 1000, {}, engine_of(character(0.0)))
    engine.advance(20.0)
    first = actor_of(engine, "a")
    actors = engine.world.actors[first : first + 2]
    # Each of two instances writes five times a second; records have waited for half a window.
    assert engine.world.nodes["written"].sum() == pytest.approx(200, abs=4)
    mean_s = actors["write_wait_s"].sum() / actors["write_waits"].sum()
    assert mean_s == pytest.approx(0.1, rel=0.05)


def side_input() -> Job:
    """`b` filters what comes from `in` and gets what `a` broadcasts."""
    return Job(
        tenant="t",
        name="side",
        sources=(Source("in", (), (), 1),),
        operators=(
            operator("a", service_ms=0.1),
            operator("b", 3, service_ms=0.1, selectivity=0.5),
        ),
        edges=(
            Edge("in", "a"),
            Edge("in", "b"),
            Edge("a", "b", Grouping.BROADCAST),
            Edge("b", "out"),
        ),
        sinks=(Sink("out", ()),),
    )


def test_nothing_comes_out_of_what_is_broadcast_beside_another_input() -> None:
    engine = fed(side_input(), 500, {}, engine_of(character(0.0)))
    engine.advance(20.0)
    (running,) = engine.running.values()
    copies = engine.world.edges["emitted"][running.rows.edges["a", "b"]]
    assert copies == pytest.approx(3 * 500 * 20, rel=0.02)
    assert engine.world.nodes["written"].sum() == pytest.approx(0.5 * 500 * 20, rel=0.05)


def test_what_is_broadcast_is_one_shipment() -> None:
    engine = fed(side_input(), 100, {}, engine_of(character()))
    engine.advance(20.0)
    assert service_s(engine, actor_of(engine, "a")) == pytest.approx(0.0001 + SHIP_S, rel=0.05)


def test_other_data_let_more_through_for_a_while() -> None:
    job = line(operator("a", service_ms=0.1, selectivity=0.2))
    engine = fed(job, 500, {}, engine_of(character(0.0)))
    engine.inject(OtherSelectivity(10.0, 10.0, job.id, "a", 4.0))
    counts = []
    for _ in range(3):
        before = engine.world.nodes["written"].sum()
        engine.advance(10.0)
        counts.append((engine.world.nodes["written"].sum() - before) / 5000)
    assert np.allclose(counts, [0.2, 0.8, 0.2], atol=0.03)


def test_there_is_room_for_everything_that_leaves_at_once() -> None:
    """A flush of more records than one step may use wrote beyond the events' table."""
    job = line(operator("a", instances=40, service_ms=0.1))
    travelling = replace(character(records=10**6), transit_s=0.001)
    engine = fed(job, 20_000, {FIRST: 1000.0}, engine_of(travelling))
    engine.advance(0.9)
    single = engine.world.single[0]
    assert single["gathering"] > FIRST_ROOM
    assert len(engine.world.agenda) - single["agenda_size"] >= single["gathering"]
    engine.advance(5.0)
    assert engine.world.single[0]["gathering"] == engine.world.channels["gathered"].sum()
    assert engine.world.nodes["written"].sum() > 50_000


def test_an_instance_that_goes_works_off_its_queue() -> None:
    """Latency guarantees, section V: a scale-down drains queues first."""
    job = line(operator("a", 4, service_ms=20.0))
    engine = fed(job, 400, {}, engine_of(character(0.0)))
    engine.advance(10.0)
    (running,) = engine.running.values()
    first = running.rows.actor(engine.world, "a", 0)
    queued = engine.world.actors["queue_length"][first + 1 : first + 4].tolist()
    assert engine.apply(Reallocate(initial(job).rescaled({"a": 1}).next_generation())).changed
    engine.advance(15.0)
    leaving = engine.world.actors[first + 1 : first + 4]
    assert min(queued) > 20
    assert leaving["queue_length"].tolist() == [0, 0, 0]
    assert leaving["taken"].tolist() == leaving["sent"].tolist()
