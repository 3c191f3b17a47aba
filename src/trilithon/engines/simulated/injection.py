"""Owns bringing faults about in a simulated engine, and ending them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from trilithon.engines.simulated import tables
from trilithon.engines.simulated.faults import (
    AnyFault,
    ForeignLoad,
    MachineCrash,
    MetricsStop,
    SlowInstance,
    SlowMachine,
)
from trilithon.errors import NotFound

if TYPE_CHECKING:
    from trilithon.engines.simulated.engine import Held, SimulatedEngine


def inject(engine: "SimulatedEngine", fault: AnyFault) -> None:
    """Plans a fault and its end. What it names must be there now."""
    begin, end = _of(engine, fault)
    engine.at(fault.at_s, begin)
    if fault.for_s is not None:
        engine.at(fault.at_s + fault.for_s, end)


def _of(
    engine: "SimulatedEngine", fault: AnyFault
) -> tuple[Callable[[], None], Callable[[], None]]:
    machines = engine.machines
    if isinstance(fault, MachineCrash):
        row = machines.row(fault.machine)
        return (lambda: _crash(engine, row)), (lambda: _recover(engine, row))
    if isinstance(fault, MetricsStop):
        rows = [machines.row(name) for name in fault.machines or machines.names()]
        return (lambda: _hear(engine, rows, False)), (lambda: _hear(engine, rows, True))
    if isinstance(fault, SlowMachine):
        row = machines.row(fault.machine)
        return (
            lambda: _set(engine, "speed", row, fault.speed),
            lambda: _set(engine, "speed", row, 1.0),
        )
    if isinstance(fault, ForeignLoad):
        row = machines.row(fault.machine)
        own = engine.world.machines["other"][row]
        return (
            lambda: _set(engine, "other", row, own + fault.threads),
            lambda: _set(engine, "other", row, own),
        )
    return (
        lambda: _slow(engine, fault, fault.factor),
        lambda: _slow(engine, fault, 1.0),
    )


def _set(engine: "SimulatedEngine", name: str, row: int, value: float) -> None:
    engine.world.machines[name][row] = value
    engine.run.refresh()


def _hear(engine: "SimulatedEngine", rows: list[int], heard: bool) -> None:
    for row in rows:
        engine.machines.heard[row] = heard


def _slow(engine: "SimulatedEngine", fault: SlowInstance, factor: float) -> None:
    held = engine.held.get(fault.job)
    if held is None or fault.operator not in held.rows.costs:
        raise NotFound(f"There is no operator {fault.operator!r} of a job {fault.job!r}.")
    actor = held.rows.actor(engine.world, fault.operator, fault.index)
    engine.world.actors["slow"][actor] = factor


def _crash(engine: "SimulatedEngine", row: int) -> None:
    """A machine is gone: its jobs start again elsewhere, from their last boundary."""
    engine.machines.up[row] = False
    engine.lost(row)
    _set(engine, "speed", row, 0.0)
    for held in engine.evacuate([row]):
        _restart(engine, held)


def _recover(engine: "SimulatedEngine", row: int) -> None:
    engine.machines.up[row] = True
    engine.machines.lives[row] += 1
    _set(engine, "speed", row, 1.0)


def _restart(engine: "SimulatedEngine", held: "Held") -> None:
    """A new life: counters from 0, what is under way is lost, what was not committed is read again."""
    nodes = engine.world.nodes
    sources = [held.rows.nodes[source.name] for source in held.job.sources]
    read = {row: float(nodes["read"][row]) for row in sources}
    backlog = {row: float(nodes["arrived"][row]) - read[row] for row in sources}
    engine.run.clear(held.rows.row)
    tables.forget(engine.world, held.rows.row)
    held.life += 1
    since_s = engine.now_s - (held.boundary_s - held.job.batch_s)
    for source in held.job.sources:
        row = held.rows.nodes[source.name]
        # What still lies in the log arrived before: the new life finds it there.
        engine.world.nodes["arrived"][row] = backlog[row]
        if engine.character.replays:
            again = int(read[row] - held.read_by_boundary.get(source.name, 0.0))
            engine.run.put_back(row, max(0, again), max(0.0, since_s))
    held.read_by_boundary = {}
    engine.stand(held, engine.character.restart_s, "a machine is gone")
