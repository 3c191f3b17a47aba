"""Counts the threads on each machine, and what they cost by being there.

An instance is a thread on its machine. Where an engine holds tasks that get no records they are
threads, too, spread evenly over the machines that are up.
"""

from typing import TYPE_CHECKING

import numpy as np

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.world_tables import Floats

if TYPE_CHECKING:
    from trilithon.engines.simulated.engine import SimulatedEngine


def count_threads(engine: "SimulatedEngine") -> None:
    """Brings the overhead of each machine up to date with the threads that it has now."""
    machines = engine.world.machines
    machines["switch_s"] = engine.character.switch_s
    if engine.character.thread_cores > 0:
        machines["overhead"] = engine.character.thread_cores * threads_by_machine(engine)
        engine.run.refresh()


def threads_by_machine(engine: "SimulatedEngine") -> Floats:
    threads = engine.instances_by_machine().astype(float)
    usable = engine.machines.usable()
    if engine.character.holds_tasks and usable:
        nodes = engine.world.nodes
        alive = engine.world.jobs["alive"][nodes["job"]] == 1
        operator = (nodes["kind"] == world_tables.OPERATOR) & alive
        idle = np.sum(nodes["tasks"][operator] - nodes["active"][operator])
        threads[usable] += idle / len(usable)
    return threads
