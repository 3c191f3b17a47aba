"""Owns processor sharing: with more runnable threads than cores each gets its part of them."""

from trilithon.engines.simulated.compiled import compiled, part
from trilithon.engines.simulated.heap import plan
from trilithon.engines.simulated.world_tables import NOBODY, World

FINISH = 0


@part
def _plan_finish(world: World, number: int, pace: float) -> None:
    actor, now = world.actors[number], world.single[0].now_s
    actor.since_s = now
    actor.version += 1
    if pace > 0.0:
        plan(world, now + max(0.0, actor.work_left_s) / pace, FINISH, number, actor.version)


@compiled
def refresh_pace(world: World, number: int) -> None:
    """When the part of a core that each gets changes, what is computed finishes at another time."""
    machine = world.machines[number]
    threads = machine.runnable + machine.other
    pace = machine.speed
    if threads > machine.cores:
        pace *= machine.cores / threads
    before = machine.pace
    if pace == before:
        return
    machine.pace = pace
    now = world.single[0].now_s
    computing = machine.computing_first
    while computing != NOBODY:
        actor = world.actors[computing]
        actor.work_left_s -= (now - actor.since_s) * before
        _plan_finish(world, computing, pace)
        computing = actor.computing_next


@part
def count_load(world: World, number: int) -> None:
    machine, now = world.machines[number], world.single[0].now_s
    machine.load_s += machine.runnable * (now - machine.load_since_s)
    machine.load_since_s = now


@part
def start_computing(world: World, number: int) -> None:
    actor = world.actors[number]
    machine = world.machines[actor.machine]
    count_load(world, actor.machine)
    machine.runnable += 1
    refresh_pace(world, actor.machine)
    actor.computing_next = machine.computing_first
    actor.computing_before = NOBODY
    if machine.computing_first != NOBODY:
        world.actors[machine.computing_first].computing_before = number
    machine.computing_first = number
    _plan_finish(world, number, machine.pace)


@part
def stop_computing(world: World, number: int) -> None:
    actor = world.actors[number]
    machine = world.machines[actor.machine]
    count_load(world, actor.machine)
    if actor.computing_before == NOBODY:
        machine.computing_first = actor.computing_next
    else:
        world.actors[actor.computing_before].computing_next = actor.computing_next
    if actor.computing_next != NOBODY:
        world.actors[actor.computing_next].computing_before = actor.computing_before
    machine.runnable -= 1
    refresh_pace(world, actor.machine)
