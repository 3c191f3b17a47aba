"""What holds in every simulated run: nothing is lost, nothing runs
backwards, nothing depends on luck.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.simulated.worlds import ASSUMED, TEXTBOOK, line, operator
from tests.strategies import jobs
from trilithon.contract.engine import Reallocate, RestartJob, Status
from trilithon.engines.simulated import heap, moving, world_tables
from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.engines.simulated.operator_cost import key_shares
from trilithon.engines.simulated.sharing import taking_turns
from trilithon.engines.simulated.waiting import in_station, stretch, utilisation
from trilithon.measures.queueing import OperatorLoad, kingman
from trilithon.model.allocation import Allocation, initial
from trilithon.model.groups import assign_key_groups
from trilithon.model.job import Job
from trilithon.workloads.shapes import Constant

slowly = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def engine_with(job: Job, mode: SimulationMode, rate: float, *, storm: bool) -> SimulatedEngine:
    machines = [MachineSpec(f"m{i}", 2.0, 8e9) for i in range(3)]
    character = TEXTBOOK if storm else SPARK_RTM
    engine = SimulatedEngine(machines, character, ASSUMED, mode=mode, seed=1)
    assert engine.submit(job, initial(job)).changed
    for source in job.sources:
        engine.feed(job.id, source.name, Constant(rate))
    return engine


@slowly
@given(jobs(), st.sampled_from(list(SimulationMode)), st.booleans(), st.floats(1, 300))
def test_nothing_is_taken_that_was_not_sent_and_no_counter_falls(
    job: Job, mode: SimulationMode, storm: bool, rate: float
) -> None:
    engine = engine_with(job, mode, rate, storm=storm)
    before = {table: getattr(engine.world, table).copy() for table in world_tables.COUNTED}
    for _ in range(4):
        engine.advance(1.0)
        world = engine.world
        for table, names in world_tables.COUNTED.items():
            for name in names:
                now, then = getattr(world, table)[name], before[table][name]
                assert (now - then >= -1e-9 * (1 + then)).all(), (table, name)
                before[table][name] = now
        slack = 1e-6 * (1 + world.actors["sent"])
        assert (world.actors["taken"] <= world.actors["sent"] + slack).all()
        slack = 1e-6 * (1 + world.edges["emitted"])
        assert (world.edges["taken"] <= world.edges["emitted"] + slack).all()
        slack = 1e-6 * (1 + world.nodes["arrived"])
        assert (world.nodes["read"] <= world.nodes["arrived"] + slack).all()
        assert np.isfinite(world.nodes["latency_s"]).all()
        written = world.nodes["written"]
        assert world.histogram.sum(axis=1) == pytest.approx(written, rel=1e-6, abs=1e-6)


@slowly
@given(jobs(), st.booleans())
def test_every_record_is_somewhere(job: Job, storm: bool) -> None:
    """Single records: what was taken is what was sent, but for those in flight."""
    engine = engine_with(job, SimulationMode.EVENTS, 50.0, storm=storm)
    engine.advance(5.0)
    world = engine.world
    operators = world.nodes["kind"][world.actors["node"]] == world_tables.OPERATOR
    pulled = world.nodes["pulled"][world.actors["node"]] == 1
    left = (world.actors["sent"] - world.actors["taken"])[operators & ~pulled]
    assert left.tolist() == world.actors["in_flight"][operators & ~pulled].tolist()
    limit = np.minimum(world.actors["limit"], 1 << 40)
    assert (world.actors["in_flight"] <= limit).all()


@pytest.mark.parametrize("mode", list(SimulationMode))
def test_an_action_on_an_unknown_job_changes_nothing(mode: SimulationMode) -> None:
    job = line(operator("a", 2))
    engines = [engine_with(job, mode, 100.0, storm=False) for _ in range(2)]
    for engine in engines:
        engine.advance(3.0)
    touched, untouched = engines
    for action in (
        Reallocate(Allocation("no/body", 5, {"a": 3})),
        RestartJob("x", "no/body"),
        Reallocate(Allocation(job.id, 5, {"a": 99})),
    ):
        assert touched.apply(action).status is Status.REFUSED
    for engine in engines:
        engine.advance(3.0)
    assert touched.jobs() == untouched.jobs()
    for one, two in zip(touched.world, untouched.world, strict=True):
        assert one.tobytes() == two.tobytes()


@given(st.floats(0.01, 0.99), st.floats(1, 4), st.floats(0, 4))
def test_the_waiting_of_a_station_is_kingmans(rho: float, arrival: float, service: float) -> None:
    """L = ρ + λ·W, with W as the measures have it; for regular arrivals it is less."""
    mean_s = 0.004
    one = np.array([1.0])
    load = OperatorLoad(one * rho / mean_s, one * mean_s, one * arrival, one * service, one, one)
    expected = rho + rho / mean_s * float(kingman(load)[0])
    assert in_station(rho, arrival, service, 0.0, 1.0) == pytest.approx(expected)
    assert in_station(rho, arrival / 5, service, 0.0, 1.0) <= expected


@given(
    st.floats(0.1, 1e6),
    st.floats(0.1, 1e6),
    st.floats(0, 4),
    st.floats(0, 4),
    st.sampled_from([1.0, 3.0]),
)
def test_what_is_left_and_what_went_through_are_all_that_was_there(
    records: float, possible: float, arrival: float, service: float, servers: float
) -> None:
    rho = utilisation(records, possible, arrival, service, 0.0, servers)
    assert 0 <= rho < 1
    total = in_station(rho, arrival, service, 0.0, servers) + possible * rho
    assert total <= records * (1 + 1e-6) + 1e-6
    if rho < 0.999:
        assert total == pytest.approx(records, rel=1e-4, abs=1e-6)


@given(st.integers(1, 40), st.floats(0, 1), st.floats(0, 8), st.floats(1, 16), st.floats(0, 0.001))
def test_computing_is_never_faster_on_a_crowded_machine(
    threads: int, share: float, other: float, cores: float, switch_s: float
) -> None:
    found = stretch(float(threads), threads * share, other, cores, switch_s)
    assert found >= 1
    assert found <= taking_turns(threads + other, cores, switch_s) * (1 + 1e-9)
    assert found >= stretch(float(threads), threads * share / 2, other, cores, switch_s) - 1e-9
    assert found >= stretch(float(threads), threads * share, other, cores, 0.0) - 1e-9


@given(st.floats(0, 200), st.floats(0.1, 16), st.floats(0, 0.001))
def test_only_threads_that_take_turns_pay_for_switches(
    threads: float, cores: float, switch_s: float
) -> None:
    found = taking_turns(threads, cores, switch_s)
    if threads <= cores:
        assert found == 1
    else:
        assert found == pytest.approx(
            threads / cores * (1 + switch_s / max(0.00225, 0.018 * cores / threads))
        )


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3)), min_size=1, max_size=200))
def test_events_come_by_time_then_priority_then_in_the_order_they_were_planned(
    planned: list[tuple[float, int]],
) -> None:
    world = moving.with_more_events(world_tables.empty())
    for number, (time_s, priority) in enumerate(planned):
        heap.plan(world, time_s, priority, number, 0)
    found = []
    while world.single["agenda_size"][0]:
        found.append(int(world.agenda["what"][0]))
        heap.drop_first(world)
    assert found == sorted(range(len(planned)), key=lambda i: (*planned[i], i))


@given(st.integers(1, 5000), st.floats(0, 2), st.integers(1, 30))
def test_shares_by_key_are_whole_and_even_without_skew(keys: int, zipf: float, count: int) -> None:
    groups = assign_key_groups([1.0] * count)
    shares = key_shares(keys, zipf, groups, np.ones(count))
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()
    assert key_shares(100_000, 0.0, groups, np.ones(count)) == pytest.approx(1 / count, rel=0.2)
