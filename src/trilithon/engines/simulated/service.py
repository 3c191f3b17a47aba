"""Owns how fast an actor works in a run of flows: what a record takes it, and so what it can do."""

import numpy as np

from trilithon.engines.simulated.compiled import part
from trilithon.engines.simulated.world_tables import Rows, World

# Records that an actor can handle whose work takes no time; an infinite
# number would make others missing.
ANY_NUMBER = 1e18
# Less than this part of a record is none: its inverse would have no end.
LEAST = 1e-9


@part
def mean_service_s(world: World, actor: Rows) -> float:
    machine = world.machines[actor.machine]
    if machine.speed <= 0.0:
        return np.inf
    computing = actor.cpu * machine.stretch / machine.speed
    return float(actor.service_s * actor.slow * (computing + 1.0 - actor.cpu))


@part
def most_records(world: World, actor: Rows, span_s: float) -> float:
    """Records that an actor can work on in a span."""
    service_s = mean_service_s(world, actor)
    return min(ANY_NUMBER, span_s / service_s) if service_s > 0.0 else ANY_NUMBER
