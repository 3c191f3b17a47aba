"""Ends the batches of simulated jobs: drains a job, then stalls it, as Spark does."""

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from trilithon.engines.simulated.simulated_job import SimulatedJob
from trilithon.engines.simulated.world_tables import DRAINING, RUNNING

if TYPE_CHECKING:
    from trilithon.engines.simulated.engine import SimulatedEngine

# How often the engine checks whether a job is drained, and after how long it gives up.
CHECK_DRAINED_S: Final = 0.01
LONGEST_DRAIN_S: Final = 30.0


def end_batch(
    engine: "SimulatedEngine", running: SimulatedJob, since_s: float | None = None
) -> None:
    """Ends a batch of single records: sources are not read until all records are through, and for
    the stall after that. `since_s` is when draining began, if it has begun.
    """
    if engine.running.get(running.job.id) is not running:
        return
    began_s = engine.now_s if since_s is None else since_s
    if since_s is None:
        _next_boundary(engine, running)
        engine.at(running.boundary_s, partial(end_batch, engine, running))
        engine.set_mode(running, DRAINING)
    drained = engine.run.in_system(running.rows.row) == 0
    if drained or engine.now_s - began_s > LONGEST_DRAIN_S:
        resume = partial(engine.set_mode, running, RUNNING)
        engine.at(engine.now_s + _stall_s(engine, running), resume)
    else:
        engine.at(engine.now_s + CHECK_DRAINED_S, partial(end_batch, engine, running, began_s))


def stall_sources(engine: "SimulatedEngine", until_s: float) -> None:
    """Ends the batches of flows that are due by a moment: for which part of the next step the
    sources are not read.
    """
    nodes, span_s = engine.world.nodes, until_s - engine.now_s
    for running in engine.running.values():
        if running.boundary_s <= until_s:
            _next_boundary(engine, running)
            sinks = [running.rows.nodes[sink.name] for sink in running.job.sinks]
            fresh = nodes["delay_s"][sinks] - nodes["fixed_s"][sinks]
            drain_s = float(np.max(fresh, initial=0.0))
            running.stall_left_s += _stall_s(engine, running) + drain_s
        elif running.stall_left_s <= 0:
            continue
        stalled_s = min(running.stall_left_s, span_s)
        running.stall_left_s -= stalled_s
        sources = running.sources
        nodes["open"][sources] = 1 - stalled_s / span_s
        nodes["stalled_s"][sources] = stalled_s
        if running.stall_left_s <= 0:
            engine.at(until_s, partial(_open, engine, sources))


def _next_boundary(engine: "SimulatedEngine", running: SimulatedJob) -> None:
    """A batch is committed: what was read by now is not read again after a crash."""
    running.boundary_s += running.job.batch_s
    running.read_by_boundary = {
        source.name: float(engine.world.nodes["read"][running.rows.nodes[source.name]])
        for source in running.job.sources
    }


def _stall_s(engine: "SimulatedEngine", running: SimulatedJob) -> float:
    return engine.character.stall_s + engine.character.stall_per_task_s * running.job.tasks


def _open(engine: "SimulatedEngine", sources: list[int]) -> None:
    engine.world.nodes["open"][sources] = 1.0
    engine.world.nodes["stalled_s"][sources] = 0.0
