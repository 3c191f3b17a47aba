"""Owns how time is cut into steps, and what comes to the sources in each.

Flows take as many steps at once as there are before something else happens: a call of compiled code
costs more than a step of a small cluster.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from trilithon.engines.simulated.fluid_run import FluidRun
from trilithon.engines.simulated.world_tables import Floats

if TYPE_CHECKING:
    from trilithon.engines.simulated.engine import SimulatedEngine


def step_ends(engine: "SimulatedEngine", until_s: float, timer_s: float) -> list[float]:
    """The ends of the next steps, up to the next timer; none if that is due. It is one step where
    something is done after each: batches are ended, or credits renewed.
    """
    character, step_s = engine.character, engine.step_s
    has_credits = character.credits is not None
    one = not isinstance(engine.run, FluidRun) or character.has_batches or has_credits
    ends_s: list[float] = []
    now_s = engine.now_s
    while now_s < until_s - 1e-9:
        grid_s = (math.floor(now_s / step_s + 1e-9) + 1) * step_s
        stop_s = min(until_s, grid_s, max(timer_s, now_s))
        if stop_s > now_s:
            ends_s.append(stop_s)
            now_s = stop_s
        if one or timer_s <= now_s + 1e-9:
            break
    return ends_s


def load_rates(engine: "SimulatedEngine", ends_s: Sequence[float]) -> Floats:
    """What comes to each source per second in steps with these ends, a row each."""
    rates = np.zeros((len(ends_s), len(engine.world.nodes)))
    spans_s = [end_s - start_s for start_s, end_s in pairwise([engine.now_s, *ends_s])]
    for running in engine.running.values():
        for source, load in running.loads.items():
            totals = load.totals(ends_s)
            before = [running.load_totals[source], *totals]
            running.load_totals[source] = totals[-1]
            rates[:, running.rows.nodes[source]] = [
                (total - was) / span_s if total > was else 0.0
                for was, total, span_s in zip(before, totals, spans_s, strict=False)
            ]
    return rates
