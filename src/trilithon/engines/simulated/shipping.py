"""Ships single records over edges: one by one, or gathered at the sender into batches.

A sender gathers the records of an edge until `batch_s` have passed since the first of them. Then
all of them leave as one shipment, whichever instances they go to. A channel (to one receiver) whose
buffer is full leaves by itself, before that time. Without `batch_s` every record is a shipment.

A shipment costs its sender CPU: headers, system calls, interrupts (Latency guarantees, section
III-C). That is what a batch saves. The sender owes it, and pays with its next record, so that it
shows in the service time.
"""

from trilithon.engines.simulated.compiled import part
from trilithon.engines.simulated.heap import plan
from trilithon.engines.simulated.moving import free_record, make_ready, new_record, put_in_queue
from trilithon.engines.simulated.world_tables import BROADCAST, IDLE, NOBODY, Rows, World

TRANSIT, FLUSH = 1, 2


@part
def count_sent(world: World, to: int) -> None:
    actor, now = world.actors[to], world.single[0].now_s
    gap = now - actor.last_sent_s
    if gap >= 0.0:  # before the first record there is none
        actor.gaps += 1
        actor.gap_s += gap
        actor.gap_sq_s2 += gap * gap
    actor.last_sent_s = now
    actor.sent += 1


@part
def dispatch(world: World, origin_s: float, row: int, lane: int, to: int) -> None:
    """A record leaves its sender, or waits there for others."""
    edge = world.edges[row]
    edge.emitted += 1
    count_sent(world, to)
    number = new_record(world, origin_s, row, to)
    if edge.batch_s > 0.0:
        _gather(world, edge, lane, to, number)
    else:
        _pay(world, edge, lane, to)
        _travel(world, number)


@part
def _pay(world: World, edge: Rows, lane: int, to: int) -> None:
    """A shipment to one receiver. What is broadcast is one shipment to all of them."""
    if edge.grouping != BROADCAST or to == world.nodes[edge.target].first:
        world.actors[world.lanes[lane].actor].owed_s += edge.ship_s


@part
def _gather(world: World, edge: Rows, lane: int, to: int, number: int) -> None:
    lane_row = world.lanes[lane]
    channel = world.channels[lane_row.smooth + to - world.nodes[edge.target].first]
    if lane_row.gathered == 0:
        plan(world, world.single[0].now_s + edge.batch_s, FLUSH, lane, lane_row.version)
    if channel.gathered == 0:
        channel.gathered_first = number
    else:
        world.records[channel.gathered_last].next = number
    channel.gathered_last = number
    channel.gathered += 1
    lane_row.gathered += 1
    world.single[0].gathering += 1
    if channel.gathered == edge.batch_records:
        ship_channel(world, edge, lane, to)


@part
def ship_channel(world: World, edge: Rows, lane: int, to: int) -> None:
    """What was gathered for one receiver leaves before its time: its buffer is full, or the sender
    parks until that receiver has room, which it may never have before it gets these.
    """
    lane_row = world.lanes[lane]
    channel = world.channels[lane_row.smooth + to - world.nodes[edge.target].first]
    if channel.gathered == 0:
        return
    _pay(world, edge, lane, to)
    lane_row.gathered -= channel.gathered
    if lane_row.gathered == 0:
        lane_row.version += 1
    _ship(world, channel)


@part
def _ship(world: World, channel: Rows) -> None:
    """What was gathered for one receiver leaves."""
    world.single[0].gathering -= channel.gathered
    number = channel.gathered_first
    channel.gathered_first = NOBODY
    channel.gathered_last = NOBODY
    channel.gathered = 0
    while number != NOBODY:
        record = world.records[number]
        following = record.next
        record.next = NOBODY
        world.edges[record.edge].batching_s += world.single[0].now_s - record.left_s
        _travel(world, number)
        number = following


@part
def flush(world: World, lane: int) -> None:
    """The time of a sender's batch is over: all of it leaves as one shipment."""
    lane_row = world.lanes[lane]
    actor = world.actors[lane_row.actor]
    row = world.nodes[actor.node].out_first + lane - actor.lane_first
    edge = world.edges[row]
    actor.owed_s += edge.ship_s
    lane_row.version += 1
    left = lane_row.gathered
    lane_row.gathered = 0
    for task in range(world.nodes[edge.target].tasks):
        if left == 0:
            break
        channel = world.channels[lane_row.smooth + task]
        if channel.gathered > 0:
            left -= channel.gathered
            _ship(world, channel)


@part
def _travel(world: World, number: int) -> None:
    transit_s = world.edges[world.records[number].edge].transit_s
    if transit_s > 0.0:
        plan(world, world.single[0].now_s + transit_s, TRANSIT, number, 0)
    else:
        arrive(world, number)


@part
def arrive(world: World, number: int) -> None:
    to = world.records[number].to
    put_in_queue(world, to, number)
    if world.actors[to].state == IDLE:
        make_ready(world, to)


@part
def drop_gathered(world: World, lane: int, row: int) -> None:
    """Frees the records that a sender gathers on an edge."""
    lane_row = world.lanes[lane]
    lane_row.gathered = 0
    lane_row.version += 1
    for task in range(world.nodes[world.edges[row].target].tasks):
        channel = world.channels[lane_row.smooth + task]
        world.single[0].gathering -= channel.gathered
        record = channel.gathered_first
        while record != NOBODY:
            following = world.records[record].next
            free_record(world, record)
            record = following
        channel.gathered_first = NOBODY
        channel.gathered_last = NOBODY
        channel.gathered = 0
