"""Begins and ends faults in a simulated engine."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.faults import (
    AnyFault,
    ForeignLoad,
    MachineCrash,
    MetricsStop,
    OtherSelectivity,
    SlowInstance,
    SlowMachine,
)
from trilithon.engines.simulated.scaling import evacuate
from trilithon.engines.simulated.simulated_job import SimulatedJob
from trilithon.errors import NotFound

if TYPE_CHECKING:
    from trilithon.engines.simulated.engine import SimulatedEngine


def inject(engine: "SimulatedEngine", fault: AnyFault) -> None:
    """Plans a fault and its end. A machine that it names must be there
    now. Faults that overlap add up.
    """
    begin, end = _steps_of(engine, fault)
    engine.at(fault.at_s, begin)
    if fault.for_s is not None:
        engine.at(fault.at_s + fault.for_s, end)


def _steps_of(
    engine: "SimulatedEngine", fault: AnyFault
) -> tuple[Callable[[], None], Callable[[], None]]:
    machines = engine.machines
    if isinstance(fault, SlowInstance):
        return partial(_slow_down, engine, fault), partial(_restore_speed, engine, fault)
    if isinstance(fault, OtherSelectivity):
        return (
            partial(_scale_selectivity, engine, fault, fault.factor),
            partial(_scale_selectivity, engine, fault, 1 / fault.factor),
        )
    if isinstance(fault, MachineCrash):
        row = machines.row(fault.machine)
        return partial(_crash, engine, fault, row), partial(_recover, engine, fault, row)
    named = fault.machines if isinstance(fault, MetricsStop) else (fault.machine,)
    rows = [machines.row(name) for name in named or machines.names()]
    return partial(_begin, engine, fault, rows), partial(_end, engine, fault, rows)


def _begin(engine: "SimulatedEngine", fault: AnyFault, rows: list[int]) -> None:
    for row in rows:
        engine.machines.faults[row].append(fault)
        _recompute(engine, row)
    engine.run.refresh()


def _end(engine: "SimulatedEngine", fault: AnyFault, rows: list[int]) -> None:
    for row in rows:
        engine.machines.faults[row].remove(fault)
        _recompute(engine, row)
    engine.run.refresh()


def _recompute(engine: "SimulatedEngine", row: int) -> None:
    """What all faults of now together make of a machine."""
    machines, table = engine.machines, engine.world.machines
    faults = machines.faults[row]
    machines.up[row] = not any(isinstance(active, MachineCrash) for active in faults)
    machines.reporting[row] = not any(isinstance(active, MetricsStop) for active in faults)
    speed = math.prod(active.speed for active in faults if isinstance(active, SlowMachine))
    table["speed"][row] = speed if machines.up[row] else 0.0
    own = engine.character.constant_load if row == 0 else 0.0
    table["other"][row] = own + sum(
        active.threads for active in faults if isinstance(active, ForeignLoad)
    )


def _slow_down(engine: "SimulatedEngine", fault: SlowInstance) -> None:
    actor = _actor(engine, fault)
    if actor is None:
        raise NotFound(
            f"There is no instance {fault.index} of an operator "
            f"{fault.operator!r} of a job {fault.job!r}."
        )
    engine.world.actors["slow"][actor] = fault.factor


def _restore_speed(engine: "SimulatedEngine", fault: SlowInstance) -> None:
    """Whatever is gone by now has nothing to get well from."""
    if (actor := _actor(engine, fault)) is not None:
        engine.world.actors["slow"][actor] = 1.0


def _scale_selectivity(engine: "SimulatedEngine", fault: OtherSelectivity, factor: float) -> None:
    """Whatever is gone by now is not changed."""
    if (running := engine.running.get(fault.job)) is not None:
        for (_, target), row in running.rows.edges.items():
            if target == fault.operator:
                engine.world.edges["selectivity"][row] *= factor


def _actor(engine: "SimulatedEngine", fault: SlowInstance) -> int | None:
    running = engine.running.get(fault.job)
    if running is None or fault.operator not in running.rows.costs:
        return None
    if fault.index >= running.job.operator(fault.operator).parallelism.max:
        return None
    return running.rows.actor(engine.world, fault.operator, fault.index)


def _crash(engine: "SimulatedEngine", fault: MachineCrash, row: int) -> None:
    """A machine is gone: its jobs start again elsewhere, from their last boundary."""
    was_up = engine.machines.up[row]
    _begin(engine, fault, [row])
    if was_up:
        engine.report_lost(row)
        for running in evacuate(engine, [row]):
            _restart(engine, running)


def _recover(engine: "SimulatedEngine", fault: MachineCrash, row: int) -> None:
    _end(engine, fault, [row])
    if engine.machines.up[row]:
        engine.machines.lives[row] += 1


def _restart(engine: "SimulatedEngine", running: SimulatedJob) -> None:
    """A new life: counters from 0, what is under way is lost, what
    was not committed is read again.
    """
    nodes = engine.world.nodes
    sources = [running.rows.nodes[source.name] for source in running.job.sources]
    read = {row: float(nodes["read"][row]) for row in sources}
    backlog = {row: float(nodes["arrived"][row]) - read[row] for row in sources}
    engine.run.clear(running.rows.row)
    world_tables.forget(engine.world, running.rows.row)
    running.life += 1
    since_s = engine.now_s - (running.boundary_s - running.job.batch_s)
    for source in running.job.sources:
        row = running.rows.nodes[source.name]
        # What still lies in the log arrived before: the new life finds it there.
        engine.world.nodes["arrived"][row] = backlog[row]
        if engine.character.replays:
            again = int(read[row] - running.read_by_boundary.get(source.name, 0.0))
            engine.run.replay(row, max(0, again), max(0.0, since_s))
    running.read_by_boundary = {}
    engine.pause(running, engine.character.restart_s, "a machine is gone")
