"""Owns what moves in a run of single records: queues, parked senders, and room for all of it."""

from typing import Final

import numpy as np

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.compiled import part
from trilithon.engines.simulated.world_tables import (
    BROADCAST,
    CHANNEL,
    LANE,
    NOBODY,
    RECORD,
    Ints,
    World,
)

FIRST_ROOM: Final = 1 << 12
# The constants of SplitMix64 (Steele and others, OOPSLA'14), which scatters neighbouring numbers.
GOLDEN_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
MIXERS: Final = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)


def prepared(world: World) -> World:
    """The world with lanes for actors that have none yet, and room for records and events."""
    actors, nodes, edges = world.actors, world.nodes, world.edges
    known = len(world.ready)
    ways = nodes["out_count"][actors["node"][known:]]
    actors["lane_first"][known:] = len(world.lanes) + np.concatenate([[0], np.cumsum(ways)])[:-1]
    node = np.repeat(actors["node"][known:], ways)
    within = np.arange(len(node)) - np.repeat(np.cumsum(ways) - ways, ways)
    width = nodes["tasks"][edges["target"][nodes["out_first"][node] + within]]
    index = np.arange(known, len(actors)) - nodes["first"][actors["node"][known:]]
    lanes = world_tables.rows(
        LANE,
        len(node),
        actor=np.repeat(np.arange(known, len(actors)), ways),
        turn=np.repeat(_first_turns(index), ways),
        smooth=len(world.smooth) + np.cumsum(width) - width,
    )
    world = world_tables.appended(
        world,
        lanes=lanes,
        smooth=np.zeros(int(width.sum())),
        channels=world_tables.rows(CHANNEL, int(width.sum())),
        ready=np.zeros(len(actors) - known, np.int64),
    )
    if not len(world.agenda):
        world = with_more_records(with_more_events(world))
    return world


def _first_turns(index: Ints) -> Ints:
    """Senders begin at receivers that have nothing to do with each other, however many there are.
    They get records in turn, so they stay as they begin: in step, or close behind each other, they
    would send everything to the same few for ever.

    A multiple of the index modulo a power of two is not enough: for one of ten numbers of receivers
    its remainders lie close together.
    """
    mixed = (index.astype(np.uint64) + np.uint64(1)) * GOLDEN_GAMMA
    for shift, factor in MIXERS:
        mixed = (mixed ^ (mixed >> shift)) * factor
    turns: Ints = (mixed >> np.uint64(32)).astype(np.int64)
    return turns


def with_more_events(world: World) -> World:
    """The same with twice the room for events."""
    return world_tables.appended(
        world, agenda=world_tables.rows(world_tables.EVENT, max(FIRST_ROOM, len(world.agenda)))
    )


def with_more_records(world: World) -> World:
    """The same with twice the room for records."""
    room = len(world.records)
    more = world_tables.rows(RECORD, max(FIRST_ROOM, room))
    more["next"] = room + 1 + np.arange(len(more))
    single = world.single
    more["next"][-1] = single["free_first"][0] if single["free_count"][0] else NOBODY
    single["free_first"] = room
    single["free_count"] += len(more)
    return world_tables.appended(world, records=more)


def margin(world: World) -> int:
    """What one actor may use at once: everything that comes out of one record, to every receiver,
    and a new end for everybody who computes beside it.
    """
    nodes, edges = world.nodes, world.edges
    copies = np.where(edges["grouping"] == BROADCAST, nodes["tasks"][edges["target"]], 1).astype(
        float
    )
    out = np.bincount(edges["source"], copies, minlength=len(nodes))
    most = np.max(out * (np.ceil(nodes["selectivity"]) + 1), initial=1.0)
    return int(most) + len(world.actors) + 16


@part
def new_record(world: World, origin_s: float, edge: int, to: int) -> int:
    single = world.single[0]
    number = single.free_first
    record = world.records[number]
    single.free_first = record.next
    single.free_count -= 1
    record.origin_s = origin_s
    record.left_s = single.now_s
    record.edge = edge
    record.to = to
    record.next = NOBODY
    return int(number)


@part
def free_record(world: World, number: int) -> None:
    single = world.single[0]
    world.records[number].next = single.free_first
    single.free_first = number
    single.free_count += 1


@part
def put_in_queue(world: World, to: int, record: int) -> None:
    actor = world.actors[to]
    if actor.queue_last == NOBODY:
        actor.queue_first = record
    else:
        world.records[actor.queue_last].next = record
    actor.queue_last = record
    actor.queue_length += 1


@part
def take_from_queue(world: World, of: int) -> int:
    actor = world.actors[of]
    number = actor.queue_first
    record = world.records[number]
    actor.queue_first = record.next
    if record.next == NOBODY:
        actor.queue_last = NOBODY
    record.next = NOBODY
    actor.queue_length -= 1
    return int(number)


@part
def make_ready(world: World, number: int) -> None:
    """Puts an actor on the list of those that can go on, once."""
    actor, single = world.actors[number], world.single[0]
    if actor.listed == 0:
        actor.listed = 1
        world.ready[single.ready_count] = number
        single.ready_count += 1


@part
def park(world: World, sender: int, at: int) -> None:
    """A sender waits for room at a receiver, behind those who wait already."""
    actor, receiver = world.actors[sender], world.actors[at]
    actor.parked_since_s = world.single[0].now_s
    actor.parked_next = NOBODY
    if receiver.waiters_last == NOBODY:
        receiver.waiters_first = sender
    else:
        world.actors[receiver.waiters_last].parked_next = sender
    receiver.waiters_last = sender


@part
def unpark_first(world: World, at: int) -> int:
    receiver = world.actors[at]
    sender = receiver.waiters_first
    actor = world.actors[sender]
    receiver.waiters_first = actor.parked_next
    if actor.parked_next == NOBODY:
        receiver.waiters_last = NOBODY
    actor.parked_next = NOBODY
    return int(sender)
