"""Time that senders are held back, before the instance that holds them back, on both runs."""

import numpy as np
import pytest

from tests.engines.simulated.watched import Watched, both, watched
from tests.engines.simulated.worlds import ASSUMED, graph, operator
from trilithon.contract.engine import Reallocate
from trilithon.engines.simulated.character import heron
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.faults import SlowInstance
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.measures.rates import back_pressure, back_pressure_origin
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.model.profile import Distribution
from trilithon.model.series import Window
from trilithon.workloads.shapes import Constant

CONSTANT = Distribution.DETERMINISTIC


def chain(**count: float) -> Job:
    """A job that splits and counts by key; `count` are numbers of the counting operator."""
    return graph(
        "chain",
        [
            operator("split", 2, service_ms=1.0, distribution=CONSTANT),
            operator("count", 4, **{"service_ms": 4.0, "distribution": CONSTANT, **count}),
        ],
        "in>split",
        "split=count",
        "count>out",
    )


def window_of(cluster: Watched, span_s: float) -> Window:
    window = cluster.series.window(span_s)
    assert window is not None
    return window


def parked_shares(cluster: Watched, job: str, name: str) -> list[float]:
    """Which part of the time that senders were held back falls to each instance of an operator."""
    window = window_of(cluster, 30.0)
    layout = window.layout
    rows = [row for key, row in layout.instance_row.items() if key[:2] == (job, name)]
    parked = window.instances.parked_s[rows]
    return [float(part) for part in parked / parked.sum()]


@both
def test_all_instances_hold_senders_back_where_all_are_too_slow(mode: SimulationMode) -> None:
    cluster = watched(mode, job=chain(), rate=1500.0, machines=4)
    cluster.look(60)
    assert parked_shares(cluster, "t/chain", "count") == pytest.approx([0.25] * 4, abs=0.12)


@both
def test_only_the_slow_instance_holds_senders_back(mode: SimulationMode) -> None:
    job = graph(
        "shuffled",
        [operator("work", 4, service_ms=4.0, distribution=CONSTANT)],
        "in>work",
        "work>out",
    )
    cluster = watched(mode, job=job, rate=900.0, machines=4)
    cluster.engine.inject(SlowInstance(0.0, None, job.id, "work", 2, 2.0))
    cluster.look(60)
    assert parked_shares(cluster, job.id, "work")[2] > 0.95


@both
def test_only_the_instance_of_a_hot_key_holds_senders_back(mode: SimulationMode) -> None:
    cluster = watched(mode, job=chain(hot_key=0.4), rate=700.0, machines=4)
    cluster.look(60)
    shares = parked_shares(cluster, "t/chain", "count")
    taken = window_of(cluster, 30.0).instances.taken[-4:]
    assert shares[int(np.argmax(taken))] > 0.95


@both
def test_time_before_instances_adds_up_to_that_of_the_edges(mode: SimulationMode) -> None:
    cluster = watched(mode, job=chain(), rate=1500.0, machines=4)
    cluster.look(60)
    window = window_of(cluster, 30.0)
    assert window.edges.parked_s.sum() > 0
    assert window.instances.parked_s.sum() == pytest.approx(window.edges.parked_s.sum(), rel=1e-6)


HERON = heron(queue=20_000, low_mark=0.5, transit_s=0.01, outage_s=30.0, restart_s=30.0)


def on_heron(job: Job, rate: float) -> Watched:
    engine = SimulatedEngine([MachineSpec(f"m{i}", 8.0, 8e9) for i in range(4)], HERON, ASSUMED)
    assert engine.submit(job, initial(job)).changed
    engine.feed(job.id, "in", Constant(rate))
    return Watched(engine)


def test_on_heron_queues_fill_for_minutes_before_the_spouts_are_stopped() -> None:
    """The sources are 250 records/s above what four instances of `count` can do."""
    cluster = on_heron(chain(), 1250.0)
    cluster.look(240)
    assert np.nanmax(back_pressure(window_of(cluster, 240.0))) == 0
    cluster.look(360)
    window = window_of(cluster, 200.0)
    origins = [window.layout.node_names[n] for n in np.flatnonzero(back_pressure_origin(window))]
    assert origins == ["count"]
    assert np.nanmax(back_pressure(window)) == pytest.approx(0.2, abs=0.1)


def test_on_heron_a_full_queue_stops_the_sources_and_nothing_waits_in_a_log() -> None:
    cluster = on_heron(chain(), 1250.0)
    cluster.look(700)
    window = window_of(cluster, 300.0)
    assert window.sources.taken[0] / window.span_s == pytest.approx(1000.0, rel=0.1)
    assert window.lag[0] == pytest.approx(0.0, abs=1250.0)


def test_on_heron_nothing_flows_during_a_change() -> None:
    cluster = on_heron(chain(), 500.0)
    cluster.look(60)
    engine = cluster.engine

    wanted = initial(chain()).rescaled({"count": 6}).next_generation()
    assert engine.apply(Reallocate(wanted)).changed
    cluster.look(25)
    assert window_of(cluster, 20.0).sinks.written[0] == 0
    cluster.look(30)
    assert window_of(cluster, 10.0).sinks.written[0] > 0
