"""Adds machines to a simulated cluster and removes them, with the slots and tasks that they bring.

A machine brings the share that each had at the start: of a cluster that begins with S slots on N
machines, machine i = 0, 1 … brings ⌊S · (i + 1) / N⌋ − ⌊S · i / N⌋, those that come later too, and
tasks by the same rule. Without a number of slots there is no limit, with any number of machines. A
machine that crashed keeps its slots: its instances run elsewhere, and it is expected back.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.machines import MachineRegistry, MachineSpec
from trilithon.engines.simulated.simulated_job import SimulatedJob
from trilithon.errors import DoesNotFit, InvalidAllocation

if TYPE_CHECKING:
    from trilithon.engines.simulated.engine import SimulatedEngine

# Tasks and slots in the ledger of a cluster without a limit.
NO_LIMIT: Final = 1_000_000


def shares(machines: MachineRegistry, total: int | None) -> dict[str, int]:
    """What each machine brings of the slots, or tasks, if those at the start have this total.

    Empty where there is no limit.
    """
    if total is None:
        return {}
    bounds = [total * n // machines.count_at_start for n in range(len(machines.all) + 1)]
    return {
        machine.name: bounds[row + 1] - bounds[row]
        for row, machine in enumerate(machines.all)
        if row not in machines.gone
    }


def add_machines(engine: "SimulatedEngine", count: int) -> None:
    """Adds machines like the last one; nothing runs there until it is placed there."""
    if count < 1:
        raise InvalidAllocation(f"{count} machines cannot be added: at least 1.")
    like = engine.machines.all[-1]
    for name in engine.machines.next_names(count):
        row = engine.machines.add(MachineSpec(name, like.cores, like.memory_bytes))
        engine.run.changed(world_tables.appended(engine.world, machines=row))
    engine.resize_ledger()
    engine.rows_changed()


def remove_machines(engine: "SimulatedEngine", names: Sequence[str]) -> float:
    """Removes machines; their instances move to the others. Returns how long jobs pause for it.

    Refused if the instances that run, or the tasks that are held, would not fit.
    """
    rows = [engine.machines.row(name) for name in dict.fromkeys(names)]
    if not rows:
        raise InvalidAllocation("No machine is named.", "Name at least one.")
    if not set(engine.machines.usable()) - set(rows):
        raise InvalidAllocation("These are all machines that are up: one must stay.")
    _check_fit(engine, {engine.machines.all[row].name for row in rows})
    for row in rows:
        engine.report_lost(row)
        engine.machines.gone.add(row)
    engine.resize_ledger()
    return max(map(engine.outage_s, evacuate(engine, rows)), default=0.0)


def _check_fit(engine: "SimulatedEngine", removed: set[str]) -> None:
    """Raises, with numbers, if what runs would not fit on the other machines."""
    entries = engine.ledger.entries
    for what, total, used in (
        ("slots", engine.slots_at_start, {job: e.slots for job, e in entries.items()}),
        ("tasks", engine.tasks_at_start, {job: e.tasks for job, e in entries.items()}),
    ):
        if total is None:
            continue
        others = [n for name, n in shares(engine.machines, total).items() if name not in removed]
        left, needed = sum(others), sum(used.values())
        if needed > left:
            largest = sorted(used.items(), key=lambda item: (-item[1], item[0]))[:5]
            users = ", ".join(f"{job} ({count})" for job, count in largest)
            raise DoesNotFit(
                f"{len(others)} machines would have {left} {what}; "
                f"{needed} are in use, by {users}.",
                "Lower the parallelism of a job or end one, or remove fewer machines.",
            )


def evacuate(engine: "SimulatedEngine", rows: Sequence[int]) -> list[SimulatedJob]:
    """Moves every instance off these machines. Returns the jobs that had one there."""
    actors, nodes = engine.world.actors, engine.world.nodes
    index = np.arange(len(actors)) - nodes["first"][actors["node"]]
    active = index < nodes["active"][actors["node"]]
    hit = set(nodes["job"][actors["node"][active & np.isin(actors["machine"], rows)]].tolist())
    moved = [running for running in engine.running.values() if running.rows.row in hit]
    for running in moved:
        engine.apply_allocation(running)
        if (outage_s := engine.outage_s(running)) > 0:
            engine.pause(running, outage_s, "its instances are being moved")
    engine.rows_changed()
    return moved
