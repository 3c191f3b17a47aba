"""Writes results when they are due: at once after a record, or at the end of a time window.

An operator with time windows takes records as they come. At the end of a window each instance that
took any since the last one writes one result. Windows of instances are not in step.
"""

import numpy as np

from trilithon.engines.simulated.compiled import part
from trilithon.engines.simulated.heap import plan
from trilithon.engines.simulated.moving import make_ready
from trilithon.engines.simulated.world_tables import IDLE, NOBODY, SENDING, Rows, World

WINDOW = 5
# The golden ratio spreads any number of instances evenly over a window.
_APART = 0.6180339887498949


@part
def plan_window(world: World, number: int, node: Rows) -> None:
    """The first record of a window is taken: it is written when the window ends."""
    now, window_s = world.single[0].now_s, node.window_s
    shift = ((number - node.first) * _APART % 1.0) * window_s
    ends_s = (np.floor((now - shift) / window_s) + 1.0) * window_s + shift
    plan(world, max(ends_s, now), WINDOW, number, 0)


@part
def end_window(world: World, number: int) -> None:
    """An instance writes as soon as it is done with the record that it has."""
    actor = world.actors[number]
    actor.window_due = 1
    if actor.state == IDLE:
        make_ready(world, number)


@part
def close_window(world: World, number: int) -> None:
    """The result of a window; none if the instance was taken out of use meanwhile."""
    actor = world.actors[number]
    actor.window_due = 0
    actor.out_left = 1 if actor.unwritten > 0.0 else 0
    start_sending(world, number)


@part
def start_sending(world: World, number: int) -> None:
    actor, now = world.actors[number], world.single[0].now_s
    if actor.out_left > 0:
        # The records since the last write have waited for this one.
        actor.write_waits += actor.unwritten
        actor.write_wait_s += actor.unwritten * now - actor.unwritten_s
        actor.unwritten = 0.0
        actor.unwritten_s = 0.0
    actor.out_edge = 0
    actor.out_to = NOBODY
    actor.state = SENDING
