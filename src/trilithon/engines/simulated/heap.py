"""Keeps the events to come: a binary heap of events, ordered
by (time, priority, sequence).

The sequence number makes runs repeatable: of two events at one moment and of one priority the one
that was planned first comes first, whatever the heap did in between.
"""

from trilithon.engines.simulated.compiled import part
from trilithon.engines.simulated.world_tables import Rows, World


@part
def _before(a: Rows, time_s: float, priority: int, sequence: int) -> bool:
    if a.time_s != time_s:
        return bool(a.time_s < time_s)
    if a.priority != priority:
        return bool(a.priority < priority)
    return bool(a.sequence < sequence)


@part
def plan(world: World, time_s: float, priority: int, what: int, version: int) -> None:
    """Something will happen: its kind is its priority."""
    single, agenda = world.single[0], world.agenda
    sequence = single.planned
    single.planned += 1
    at = single.agenda_size
    single.agenda_size += 1
    while at > 0:
        parent = (at - 1) >> 1
        if _before(agenda[parent], time_s, priority, sequence):
            break
        agenda[at] = agenda[parent]
        at = parent
    event = agenda[at]
    event.time_s = time_s
    event.priority = priority
    event.sequence = sequence
    event.what = what
    event.version = version


@part
def drop_first(world: World) -> None:
    """Takes the first event off. Whoever wants to know it has read it at place 0."""
    single, agenda = world.single[0], world.agenda
    single.agenda_size -= 1
    size = single.agenda_size
    last = agenda[size]
    time_s, priority, sequence = last.time_s, last.priority, last.sequence
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size:
            beside = agenda[child]
            if _before(agenda[right], beside.time_s, beside.priority, beside.sequence):
                child = right
        if not _before(agenda[child], time_s, priority, sequence):
            break
        agenda[at] = agenda[child]
        at = child
    agenda[at] = agenda[size]
