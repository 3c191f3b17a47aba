"""Dealing records in turn: senders that begin together must not stay together."""

from dataclasses import replace

import numpy as np
import pytest

from tests.engines.simulated.worlds import ASSUMED, line, operator, world_of
from trilithon.engines.simulated.arrivals import EVEN_CV2
from trilithon.engines.simulated.character import nephele
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.engines.simulated.moving import _first_turns, prepared
from trilithon.engines.simulated.world_tables import Ints
from trilithon.model.allocation import initial
from trilithon.workloads.shapes import Constant


def variation(turns: Ints, receivers: int) -> float:
    """c² of the time between two records at a receiver, if all senders are fed in turn."""
    phases = np.sort(turns % receivers)
    gaps = np.append(np.diff(phases), receivers - phases[-1] + phases[0])
    return float(gaps.var() / gaps.mean() ** 2)


@pytest.mark.parametrize("senders", [8, 32, 50])
def test_no_number_of_receivers_has_its_senders_in_step(senders: int) -> None:
    """Independent senders together are nearly a Poisson stream, with c² about 1. With a multiple of
    the index as their beginning, 32 senders had 13 with 146 receivers, and 29 with 219.
    """
    turns = _first_turns(np.arange(senders))
    found = [variation(turns, receivers) for receivers in range(senders + 1, 521)]
    assert 0.5 < np.median(found) < 1.5
    assert max(found) < 4


def test_senders_begin_at_their_turns() -> None:
    world, _ = world_of(line(operator("a", instances=8), operator("b", instances=3)))
    assert set(prepared(world).lanes["turn"]) >= set(_first_turns(np.arange(8)))


def test_records_come_to_the_partitions_of_a_source_by_chance() -> None:
    """In turn, each reader had every fourth record, and its own turns were in step with those of
    the others: for some numbers of receivers, records followed each other to the same one for ever.
    """
    job = line(operator("a", instances=5, service_ms=1.0))
    job = replace(job, sources=tuple(replace(source, partitions=4) for source in job.sources))
    character = nephele(
        ship_s=0.0, buffer_bytes=1e6, transit_s=0.0, queue=500, start_s=0.0, restart_s=1.0
    )
    engine = SimulatedEngine(
        [MachineSpec("m0", 64, 1e9)],
        character,
        ASSUMED,
        mode=SimulationMode.EVENTS,
        seed=3,
        arrival_cv2=EVEN_CV2,
    )
    engine.submit(job, initial(job))
    engine.feed(job.id, "in", Constant(100.0))
    engine.advance(100.0)
    source = engine.world.nodes[engine.running[job.id].rows.nodes["in"]]
    sent = engine.world.actors["emitted"][source["first"] : source["first"] + source["active"]]
    assert len(sent) == 4
    assert sent.sum() == pytest.approx(10_000, abs=2)
    # Binomial: 2500 each, with a standard deviation of 43. In turn they would differ by one.
    assert np.abs(sent - 2500).max() < 200
    assert sent.max() - sent.min() > 10
