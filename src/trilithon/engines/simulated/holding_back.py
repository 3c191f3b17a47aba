"""Owns back-pressure in a run of flows: who is held back, for how long, and before which instance.

By default a receiver without room holds the senders back that it gets records from. On an engine
that stops its sources instead (`Character.stops_sources`, Heron), an instance whose queue reaches
the high-water mark stops all sources of its job until the queue is down to the low one; operators
in between are never held back, and time counts before the instance that stops the sources.
"""

from trilithon.engines.simulated.compiled import part
from trilithon.engines.simulated.service import LEAST, most_records
from trilithon.engines.simulated.waiting import share_of_time_full
from trilithon.engines.simulated.world_tables import (
    OPERATOR,
    RUNNING,
    SINK,
    SOURCE,
    UNLIMITED,
    Floats,
    World,
)


@part
def taken_in(world: World, number: int, paused: bool, span_s: float) -> None:
    """What each actor would finish of what comes. An operator takes in no more than its fullest
    instance has room for (`own`): what its other instances could do beyond that never reaches
    those that it sends to.
    """
    node = world.nodes[number]
    gated = world.jobs[node.job].stops_sources == 0
    node.own = 1.0
    for turn in range(2):
        for a in range(node.first, node.first + node.used):
            actor = world.actors[a]
            actor.coming *= node.own
            records = actor.held + actor.coming
            actor.potential = 0.0
            if records > 0.0 and not paused:
                actor.potential = min(records, most_records(world, actor, span_s))
        if turn == 1 or not gated:
            return
        for a in range(node.first, node.first + node.active):
            actor = world.actors[a]
            if actor.limit != UNLIMITED and actor.coming > 0.0:
                room = max(0.0, actor.limit + 1.0 - actor.held) + actor.potential
                node.own = min(node.own, room / actor.coming)
        if node.own >= 1.0:
            return


@part
def hold_back(world: World, number: int) -> None:
    """`pressed`: the part of what it would send that a node can; `passed`: the part of what would
    come that it can take.
    """
    node = world.nodes[number]
    node.passed = 1.0
    node.pressed = 1.0
    if node.kind == SINK:
        return
    job = world.jobs[node.job]
    if job.stops_sources == 1:
        if job.stopped == 1 and (node.kind == SOURCE or node.pulled == 1):
            node.pressed = 0.0
        return
    for e in range(node.out_first, node.out_first + node.out_count):
        node.pressed = min(node.pressed, world.nodes[world.edges[e].target].passed)
    if node.kind == OPERATOR and node.pulled == 0:
        for a in range(node.first, node.first + node.active):
            actor = world.actors[a]
            if actor.limit == UNLIMITED or actor.coming <= 0.0:
                continue
            room = max(0.0, actor.limit + 1.0 - actor.held) + actor.potential * node.pressed
            node.passed = min(node.passed, room / actor.coming)
        node.passed *= node.own


@part
def stop_sources(world: World, span_s: float, arrivals: Floats, at: int) -> None:
    """Which jobs have a full queue, where one stops the sources: they are stopped for this step,
    and it counts before every instance that is full. Sources that make their records themselves
    make none meanwhile.
    """
    for j in range(len(world.jobs)):
        world.jobs[j].stopped = 0
    for n in range(len(world.nodes)):
        node = world.nodes[n]
        job = world.jobs[node.job]
        if job.stops_sources == 1 and job.alive == 1 and node.kind == OPERATOR and node.pulled == 0:
            _note_full_queues(world, n, span_s)
    for n in range(len(world.nodes)):
        node = world.nodes[n]
        job = world.jobs[node.job]
        if node.kind == SOURCE and job.generates == 1 and (job.stopped == 1 or job.mode != RUNNING):
            arrivals[at, n] = 0.0


@part
def _note_full_queues(world: World, number: int, span_s: float) -> None:
    node = world.nodes[number]
    job = world.jobs[node.job]
    senders = 0.0
    for k in range(node.in_first, node.in_first + node.in_count):
        senders += _senders(world, world.into[k])
    full = False
    for task in range(node.used):
        actor = world.actors[node.first + task]
        if task >= node.active or actor.held <= actor.limit * job.low_mark:
            actor.full = 0.0
        elif actor.held >= actor.limit:
            actor.full = 1.0
        if actor.full == 1.0 and job.mode == RUNNING:
            full = True
            actor.parked_s += senders * span_s
    if full:
        job.stopped = 1
        for k in range(node.in_first, node.in_first + node.in_count):
            world.edges[world.into[k]].parked_s += _senders(world, world.into[k]) * span_s


@part
def _senders(world: World, number: int) -> float:
    """Instances that send over an edge."""
    source = world.nodes[world.edges[number].source]
    return float(source.senders if source.kind == SOURCE else source.active)


@part
def count_parked(world: World, number: int, parked_s: float, span_s: float) -> None:
    """A sender that is held back is parked at the edge that lets least through."""
    node = world.nodes[number]
    for e in range(node.out_first, node.out_first + node.out_count):
        if world.nodes[world.edges[e].target].passed <= node.pressed:
            world.edges[e].parked_s += parked_s
            _count_parked_before(world, world.edges[e].target, parked_s, span_s)
            break


@part
def _count_parked_before(world: World, number: int, parked_s: float, span_s: float) -> None:
    """Divides the time for which senders were parked among the receivers by how often each is full:
    a receiver that keeps up with what passes is full by chance only (`share_of_time_full`).
    """
    node = world.nodes[number]
    total = 0.0
    for a in range(node.first, node.first + node.active):
        actor = world.actors[a]
        # What passes comes to it; what it can do is less if it is held back itself.
        possible = most_records(world, actor, span_s) * node.pressed
        comes = actor.coming * node.passed / node.own if node.own > 0.0 else 0.0
        rho = comes / possible if possible > LEAST else (1.0 if comes > 0.0 else 0.0)
        actor.full = share_of_time_full(rho, float(actor.limit))
        total += actor.full
    for a in range(node.first, node.first + node.active):
        actor = world.actors[a]
        actor.parked_s += parked_s * (actor.full / total if total > 0.0 else 1.0 / node.active)
