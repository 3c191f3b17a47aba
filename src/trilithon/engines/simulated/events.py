"""Runs a world exactly: every record by itself, event by event.

An actor takes a record, works on it (computing under processor sharing, then waiting), sends what
comes out to the receivers that the routing says, and parks where one has no credit left. Nothing
here calls itself: who can go on is put on a list, and the list is worked off before time goes on.
"""

import numpy as np

from trilithon.engines.simulated.compiled import compiled, part
from trilithon.engines.simulated.heap import drop_first, plan
from trilithon.engines.simulated.moving import (
    free_record,
    make_ready,
    new_record,
    park,
    put_in_queue,
    take_from_queue,
    unpark_first,
)
from trilithon.engines.simulated.sharing import count_load, start_computing, stop_computing
from trilithon.engines.simulated.shipping import (
    FLUSH,
    TRANSIT,
    arrive,
    count_sent,
    dispatch,
    drop_gathered,
    flush,
    ship_channel,
)
from trilithon.engines.simulated.time_windows import (
    WINDOW,
    close_window,
    end_window,
    plan_window,
    start_sending,
)
from trilithon.engines.simulated.world_tables import (
    BROADCAST,
    BUCKETS,
    BY_KEY,
    COMPUTING,
    DETERMINISTIC,
    DRAINING,
    EXPONENTIAL,
    GAMMA,
    IDLE,
    LOWEST,
    NOBODY,
    PARKED,
    PAUSED,
    SENDING,
    SHUFFLE,
    SINK,
    SOURCE,
    WAITING,
    Floats,
    Rows,
    World,
)
from trilithon.model.sketches import LOG_GAMMA

FINISH, ARRIVAL, NOTHING = 0, 3, 4
DONE, NEEDS_RECORDS, NEEDS_EVENTS = 0, 1, 2
Random = np.random.Generator


@part
def service_s(actor: Rows, rng: Random) -> float:
    """One service time of an actor's distribution."""
    mean = actor.service_s * actor.slow
    if mean <= 0.0 or actor.shape == DETERMINISTIC:
        return float(mean)
    if actor.shape == EXPONENTIAL:
        return float(mean * rng.standard_exponential())
    cv2 = actor.cv**2
    # So little variation is none, and its inverse would have no end.
    if cv2 <= 1e-9:
        return float(mean)
    if actor.shape == GAMMA:
        return float(rng.standard_gamma(1.0 / cv2) * mean * cv2)
    spread = np.log(1.0 + cv2)
    return float(mean * np.exp(np.sqrt(spread) * rng.standard_normal() - spread / 2))


@part
def _begin(world: World, rng: Random, number: int) -> bool:
    """Takes the next record, if there is one and the job goes on."""
    actor = world.actors[number]
    node = world.nodes[actor.node]
    reads = node.pulled == 1 or node.kind == SOURCE
    mode = world.jobs[node.job].mode
    if mode == PAUSED or (mode == DRAINING and reads):
        return False
    queue = node.first if node.pulled == 1 else number
    retired = number - node.first >= node.active
    if world.actors[queue].queue_length == 0 or (node.pulled == 1 and retired):
        return False
    taken = take_from_queue(world, queue)
    record = world.records[taken]
    edge = world.edges[record.edge]
    actor.origin_s = record.origin_s
    actor.in_edge = record.edge
    if node.kind == SOURCE:
        node.read += 1
    else:
        actor.taken += 1
        edge.taken += 1
        if node.pulled == 1:
            world.nodes[edge.source].read += 1
            edge.emitted += 1
            count_sent(world, number)
            # The way from the log takes as long as any other hop. It is added to the age of the
            # record, which comes to the same as waiting for it: it is the same for all records.
            actor.origin_s -= edge.transit_s
        else:
            edge.channel_s += world.single[0].now_s - record.left_s
            _give_back_credit(world, number)
    free_record(world, taken)
    _work(world, number, service_s(actor, rng))
    if node.window_s > 0.0 and actor.unwritten == 1.0:
        plan_window(world, number, node)
    return True


@part
def _give_back_credit(world: World, number: int) -> None:
    """There is room for one more: the sender that has waited longest gets it."""
    actor = world.actors[number]
    actor.in_flight -= 1
    # A limit that has become smaller holds for those who wait already, too.
    if actor.waiters_first == NOBODY or actor.in_flight >= actor.limit:
        return
    waiting = unpark_first(world, number)
    actor.in_flight += 1
    sender = world.actors[waiting]
    sender.granted = 1
    edge = world.edges[world.nodes[sender.node].out_first + sender.out_edge]
    parked_s = world.single[0].now_s - sender.parked_since_s
    edge.parked_s += parked_s
    actor.parked_s += parked_s
    sender.state = SENDING
    make_ready(world, waiting)


@part
def _work(world: World, number: int, lasts_s: float) -> None:
    actor, now = world.actors[number], world.single[0].now_s
    actor.took_s = now
    actor.unwritten += 1.0
    actor.unwritten_s += now
    # What was shipped since the last record is paid for with this one.
    cpu = lasts_s * actor.cpu + actor.owed_s
    actor.lasts_s = lasts_s + actor.owed_s
    actor.wait_s = lasts_s * (1.0 - actor.cpu)
    actor.owed_s = 0.0
    if cpu > 0.0:
        actor.state = COMPUTING
        actor.work_left_s = cpu
        start_computing(world, number)
    else:
        actor.state = WAITING
        if lasts_s > 0.0:
            actor.version += 1
            plan(world, now + lasts_s, FINISH, number, actor.version)


@part
def _finish(world: World, rng: Random, number: int) -> None:
    """The end of a part of the work: what is left is waiting, or sending what came out."""
    actor, now = world.actors[number], world.single[0].now_s
    if actor.state == COMPUTING:
        actor.cpu_s += actor.lasts_s - actor.wait_s
        stop_computing(world, number)
        actor.state = WAITING
        if actor.wait_s > 0.0:
            actor.version += 1
            plan(world, now + actor.wait_s, FINISH, number, actor.version)
            return
    took = now - actor.took_s
    actor.busy_s += took
    actor.busy_sq_s2 += took * took
    node = world.nodes[actor.node]
    actor.out_left = 1
    if node.window_s > 0.0:
        # What comes out is written at the end of the window.
        actor.out_left = 0
    elif node.kind != SOURCE:
        selectivity = world.edges[actor.in_edge].selectivity
        whole = np.floor(selectivity)
        rest = selectivity - whole
        actor.out_left = int(whole) + (1 if rest > 0.0 and rng.random() < rest else 0)
    start_sending(world, number)


@part
def _choose(world: World, rng: Random, edge: Rows, lane: int) -> int:
    """Which task gets the next record of an edge."""
    target = world.nodes[edge.target]
    if edge.grouping == BROADCAST:
        return int(target.first)
    if edge.grouping == BY_KEY:
        left = rng.random()
        for task in range(target.active):
            left -= world.share[edge.share + task]
            if left < 0.0:
                return int(target.first + task)
        return int(target.first + target.active - 1)
    lane_row = world.lanes[lane]
    if edge.even == 1:
        turn = lane_row.turn
        lane_row.turn += 1
        return int(target.first + turn % target.active)
    best = 0
    for task in range(target.active):
        world.smooth[lane_row.smooth + task] += world.share[edge.share + task]
        if world.smooth[lane_row.smooth + task] > world.smooth[lane_row.smooth + best]:
            best = task
    world.smooth[lane_row.smooth + best] -= 1.0
    return int(target.first + best)


@part
def _send(world: World, rng: Random, number: int) -> bool:
    """Sends what came out of one record. False if the sender had to park meanwhile."""
    actor = world.actors[number]
    node = world.nodes[actor.node]
    while actor.out_left > 0:
        while actor.out_edge < node.out_count:
            row = node.out_first + actor.out_edge
            edge = world.edges[row]
            target = world.nodes[edge.target]
            if target.kind == SINK:
                _write(world, edge, actor.origin_s)
                actor.out_edge += 1
                continue
            lane = actor.lane_first + actor.out_edge
            if actor.out_to == NOBODY:
                actor.out_to = _choose(world, rng, edge, lane)
            to = actor.out_to
            receiver = world.actors[to]
            if actor.granted:
                actor.granted = 0
            elif receiver.in_flight >= receiver.limit:
                actor.state = PARKED
                park(world, number, to)
                ship_channel(world, edge, lane, to)
                return False
            else:
                receiver.in_flight += 1
            actor.emitted += 1
            dispatch(world, actor.origin_s, row, lane, to)
            if edge.grouping == BROADCAST and to < target.first + target.active - 1:
                actor.out_to = to + 1
            else:
                actor.out_to = NOBODY
                actor.out_edge += 1
        actor.out_edge = 0
        actor.out_left -= 1
    return True


@part
def _write(world: World, edge: Rows, origin_s: float) -> None:
    latency_s = world.single[0].now_s - origin_s
    edge.emitted += 1
    edge.taken += 1
    sink = world.nodes[edge.target]
    sink.written += 1
    sink.latency_s += latency_s
    bucket = int(np.ceil(np.log(max(latency_s * 1000.0, 1e-3)) / LOG_GAMMA)) - LOWEST
    world.histogram[edge.target, min(max(bucket, 0), BUCKETS - 1)] += 1


@part
def _run(world: World, rng: Random, number: int) -> None:
    """One actor goes on, for at most one record: others on the list have their turn."""
    actor = world.actors[number]
    if actor.state == SENDING:
        if not _send(world, rng, number):
            return
        actor.state = IDLE
    if actor.state == IDLE and actor.window_due == 1:
        close_window(world, number)
        if not _send(world, rng, number):
            return
        actor.state = IDLE
    if actor.state != IDLE or not _begin(world, rng, number):
        return
    if actor.state == WAITING and actor.lasts_s <= 0.0:
        _finish(world, rng, number)
        make_ready(world, number)


@part
def _comes_in(world: World, rng: Random, source: int, origin_s: float) -> None:
    """A record is in the log of a source."""
    node = world.nodes[source]
    target = world.nodes[world.edges[node.out_first].target]
    if target.pulled == 1:
        put_in_queue(world, target.first, new_record(world, origin_s, node.out_first, target.first))
        for number in range(target.first, target.first + target.active):
            actor = world.actors[number]
            if actor.state == IDLE and actor.listed == 0:
                make_ready(world, number)
                break
    else:
        # Records come to the partitions, and so to their readers, by chance: keys are hashed. In
        # turn they would be in step with the senders' own turns, and follow each other to one task.
        reader = node.first
        if node.active > 1:
            reader += min(int(rng.random() * node.active), node.active - 1)
        put_in_queue(world, reader, new_record(world, origin_s, node.out_first, reader))
        if world.actors[reader].state == IDLE:
            make_ready(world, reader)
    node.arrived += 1


@part
def gap(cv2: float, rng: Random) -> float:
    """The time from one record to the next, in units of its mean."""
    if cv2 <= 0.0:
        return 1.0
    if cv2 == 1.0:
        return float(rng.standard_exponential())
    spread = np.log(1.0 + cv2)
    return float(np.exp(np.sqrt(spread) * rng.standard_normal() - spread / 2))


@part
def _plan_arrival(world: World, rng: Random, source: int) -> None:
    node = world.nodes[source]
    if node.arrival_rate > 0.0:
        gap_s = gap(node.arrival_cv2, rng) / node.arrival_rate
        node.next_arrival_s = world.single[0].now_s + gap_s
        plan(world, node.next_arrival_s, ARRIVAL, source, node.arrival_version)


@compiled
def set_rates(world: World, rng: Random, rates: Floats) -> None:
    """Other rates of the sources. A Poisson stream has no memory: the next record is drawn anew, as
    is that of a steady beat. Of any other stream what is left of the gap is stretched.
    """
    now = world.single[0].now_s
    for number in range(len(world.nodes)):
        node = world.nodes[number]
        if node.kind != SOURCE or rates[number] == node.arrival_rate:
            continue
        before = node.arrival_rate
        node.arrival_rate = rates[number]
        node.arrival_version += 1
        if node.arrival_cv2 in (0.0, 1.0) or before <= 0.0 or rates[number] <= 0.0:
            _plan_arrival(world, rng, number)
        else:
            left_s = (node.next_arrival_s - now) * before / rates[number]
            node.next_arrival_s = now + max(0.0, left_s)
            plan(world, node.next_arrival_s, ARRIVAL, number, node.arrival_version)


@compiled
def replay(world: World, rng: Random, source: int, count: int, span_s: float, margin: int) -> int:
    """Records that are read again after a crash, the oldest first; how many there was room for."""
    done = 0
    while done < count and world.single[0].free_count > margin:
        _comes_in(world, rng, source, world.single[0].now_s - span_s * (count - done) / count)
        done += 1
    return done


@compiled
def move(world: World, number: int, machine: int) -> None:
    """An actor runs elsewhere; what it computes goes along."""
    actor = world.actors[number]
    computing = actor.state == COMPUTING
    if computing:
        stop_computing(world, number)
    actor.machine = machine
    if computing:
        start_computing(world, number)


@compiled
def wake(world: World, job: int) -> None:
    """A job goes on after it stood or was drained, or got other tasks."""
    for number in range(len(world.actors)):
        actor = world.actors[number]
        if world.nodes[actor.node].job == job and actor.state in (IDLE, SENDING):
            make_ready(world, number)


@part
def _receiver(world: World, rng: Random, edge: Rows, turn: int) -> int:
    """Who gets a record of an edge that is dealt anew: each its part, in turn or by chance."""
    target = world.nodes[edge.target]
    if edge.grouping == SHUFFLE and edge.even == 1:
        return int(target.first + turn % target.active)
    left = rng.random()
    for task in range(target.active):
        left -= world.share[edge.share + task]
        if left < 0.0:
            return int(target.first + task)
    return int(target.first + target.active - 1)


@part
def _all_waiting(world: World, node: Rows) -> int:
    """Takes everything out of the queues of an operator, one queue after the other, as one list."""
    first = NOBODY
    last = NOBODY
    for number in range(node.first, node.first + node.tasks):
        actor = world.actors[number]
        if actor.queue_length == 0:
            continue
        if last == NOBODY:
            first = actor.queue_first
        else:
            world.records[last].next = actor.queue_first
        last = actor.queue_last
        actor.queue_first = NOBODY
        actor.queue_last = NOBODY
        actor.queue_length = 0
    return int(first)


@compiled
def redistribute(world: World, rng: Random, job: int) -> None:
    """What waits for the instances of a job's operators is dealt among them anew. A
    record that moves counts as taken where it was and as sent where it goes. What is
    broadcast stays: each has its own.
    """
    for n in range(len(world.nodes)):
        node = world.nodes[n]
        if node.job != job or node.kind in (SOURCE, SINK) or node.pulled == 1:
            continue
        waiting = _all_waiting(world, node)
        turn = 0
        while waiting != NOBODY:
            record = world.records[waiting]
            following = record.next
            edge = world.edges[record.edge]
            to = record.to if edge.grouping == BROADCAST else _receiver(world, rng, edge, turn)
            turn += 1
            if to != record.to:
                before, after = world.actors[record.to], world.actors[to]
                before.in_flight -= 1
                before.taken += 1
                after.in_flight += 1
                after.sent += 1
            record.to = to
            record.next = NOBODY
            put_in_queue(world, to, waiting)
            waiting = following
    for number in range(len(world.actors)):
        actor = world.actors[number]
        if world.nodes[actor.node].job == job and actor.state in (IDLE, SENDING):
            make_ready(world, number)


@compiled
def drop_queued(world: World, job: int) -> None:
    """Drops the queued records of a job. They count as taken, and are never processed."""
    for number in range(len(world.actors)):
        actor = world.actors[number]
        node = world.nodes[actor.node]
        if node.job != job or node.kind == SOURCE or node.pulled == 1:
            continue
        while actor.queue_length > 0:
            free_record(world, take_from_queue(world, number))
            actor.taken += 1
            _give_back_credit(world, number)


@compiled
def clear(world: World, job: int) -> None:
    """Drops the records that a job has read and not finished; its logs stay."""
    for place in range(world.single[0].agenda_size):
        event = world.agenda[place]
        if event.priority == TRANSIT:
            to = world.records[event.what].to
            if world.nodes[world.actors[to].node].job == job:
                free_record(world, event.what)
                event.version = NOTHING
    for number in range(len(world.actors)):
        if world.nodes[world.actors[number].node].job == job:
            _clear_actor(world, number)


@compiled
def _clear_actor(world: World, number: int) -> None:
    actor = world.actors[number]
    node = world.nodes[actor.node]
    if actor.state == COMPUTING:
        stop_computing(world, number)
    actor.state = IDLE
    actor.version += 1
    actor.granted = 0
    actor.in_flight = 0
    actor.parked_next = NOBODY
    actor.waiters_first = NOBODY
    actor.waiters_last = NOBODY
    actor.last_sent_s = np.nan
    if node.kind != SOURCE and node.pulled == 0:
        while actor.queue_length > 0:
            free_record(world, take_from_queue(world, number))
    actor.owed_s = 0.0
    for way in range(node.out_count):
        drop_gathered(world, actor.lane_first + way, node.out_first + way)


@compiled
def advance(world: World, rng: Random, until_s: float, margin: int) -> int:
    """Everything that happens up to a moment. Ends early, to be called again, if room runs out:
    `margin` is what one actor may use before there is another look at what is left.
    """
    single = world.single[0]
    while True:
        if single.free_count < margin:
            return NEEDS_RECORDS
        # All that a sender has gathered leaves at once, an event for each record.
        if len(world.agenda) - single.agenda_size < margin + single.gathering:
            return NEEDS_EVENTS
        if single.ready_count > 0:
            single.ready_count -= 1
            number = world.ready[single.ready_count]
            world.actors[number].listed = 0
            _run(world, rng, number)
            continue
        if single.agenda_size == 0 or world.agenda[0].time_s > until_s:
            break
        event = world.agenda[0]
        kind, what, version = event.priority, event.what, event.version
        single.now_s = event.time_s
        drop_first(world)
        if kind == FINISH:
            if version != world.actors[what].version:
                continue
            _finish(world, rng, what)
            if world.actors[what].state == SENDING:
                make_ready(world, what)
        elif kind == TRANSIT:
            if version == NOTHING:
                continue
            arrive(world, what)
        elif kind == FLUSH:
            if version == world.lanes[what].version:
                flush(world, what)
        elif kind == WINDOW:
            end_window(world, what)
        else:
            if version != world.nodes[what].arrival_version:
                continue
            _comes_in(world, rng, what, single.now_s)
            _plan_arrival(world, rng, what)
        single.events += 1
    single.now_s = until_s
    for machine in range(len(world.machines)):
        count_load(world, machine)
    return DONE
