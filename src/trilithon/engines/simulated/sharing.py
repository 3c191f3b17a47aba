"""Owns processor sharing: with more runnable threads than cores each gets its part of them.

Two things make threads cost CPU. Each thread that a machine holds costs a little of a core, idle or
not (`overhead`): it wakes up, looks and sleeps again. And where threads take turns each turn costs
a switch; the more threads there are to a core, the shorter are the turns.
"""

from trilithon.engines.simulated.compiled import compiled, part
from trilithon.engines.simulated.heap import plan
from trilithon.engines.simulated.world_tables import NOBODY, Rows, World

FINISH = 0
# How long a turn on a core lasts: all runnable threads within the first, none for less than the
# second. Linux 3.2, kernel/sched_fair.c (Ubuntu 12.04, as in Henge's experiments):
# sched_latency 6 ms and sched_min_granularity 0.75 ms, times 1 + log2(cores) of four cores.
ALL_TURNS_S = 0.018
SHORTEST_TURN_S = 0.00225
# What threads leave of a machine's cores for records, at the least.
LEAST_CORES = 0.05


@part
def usable_cores(machine: Rows) -> float:
    """The cores that are left beside what the threads cost by being there."""
    return float(max(machine.cores - machine.overhead, LEAST_CORES * machine.cores))


@part
def taking_turns(threads: float, cores: float, switch_s: float) -> float:
    """How much longer computing takes with so many runnable threads: 1 if each has a core."""
    if threads <= cores:
        return 1.0
    # A turn lasts max(SHORTEST_TURN_S, ALL_TURNS_S / crowd), and costs a switch.
    crowd = threads / cores
    return float(crowd * (1.0 + switch_s * min(1.0 / SHORTEST_TURN_S, crowd / ALL_TURNS_S)))


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
    pace = machine.speed / taking_turns(threads, usable_cores(machine), machine.switch_s)
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
