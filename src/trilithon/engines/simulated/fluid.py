"""Runs a world as flows: in time steps, over all instances of all jobs at once.

Each step goes over the nodes three times. Forwards: what would flow if everybody could take it.
Backwards: what each can take, and so how far its senders are held back (a sender that is held back
on one edge sends on none). Forwards: what does flow, how many records stay behind, how long they
took.
"""

import numpy as np

from trilithon.engines.simulated.compiled import compiled, part
from trilithon.engines.simulated.holding_back import count_parked, hold_back, stop_sources, taken_in
from trilithon.engines.simulated.service import ANY_NUMBER, LEAST, mean_service_s, most_records
from trilithon.engines.simulated.sharing import usable_cores
from trilithon.engines.simulated.waiting import (
    departure_cv2,
    stretch,
    together_cv2,
    utilisation,
    within_step,
)
from trilithon.engines.simulated.world_tables import (
    BUCKETS,
    BY_KEY,
    DRAINING,
    LOWEST,
    OPERATOR,
    PAUSED,
    RUNNING,
    SHUFFLE,
    SOURCE,
    Floats,
    Rows,
    World,
)
from trilithon.model.sketches import LOG_GAMMA

# Waiting beyond that of a utilisation of 0.95 is a backlog that all share, not chance.
BY_CHANCE = 20.0


@part
def _flow_in(world: World, number: int) -> float:
    """What flows over the edges into a node."""
    node = world.nodes[number]
    node.inflow = 0.0
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        edge.flow = world.nodes[edge.source].pushed
        node.inflow += edge.flow
    return float(node.inflow)


@part
def _spread(world: World, number: int) -> None:
    """What comes to each actor of an operator, from what flows over the edges into it."""
    node = world.nodes[number]
    for a in range(node.first, node.first + node.used):
        world.actors[a].coming = 0.0
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        for task in range(node.active):
            world.actors[node.first + task].coming += edge.flow * world.share[edge.share + task]


@part
def _is_paused(world: World, number: int) -> bool:
    node = world.nodes[number]
    mode = world.jobs[node.job].mode
    return bool(mode == PAUSED or (mode == DRAINING and node.pulled == 1))


@part
def _would_flow(world: World, number: int, span_s: float, arrivals: Floats, at: int) -> None:
    node = world.nodes[number]
    if node.kind == SOURCE:
        node.potential = node.backlog + arrivals[at, number]
        if world.nodes[world.edges[node.out_first].target].pulled == 0:
            reads = world.jobs[node.job].mode == RUNNING
            open_s = span_s * node.open if reads else 0.0
            reader_s = world.actors[node.first].service_s
            most = open_s / reader_s if reader_s > 0.0 else (ANY_NUMBER if open_s > 0.0 else 0.0)
            node.potential = min(node.potential, most)
        node.pushed = node.potential
    elif node.kind == OPERATOR:
        coming = _flow_in(world, number)
        paused = _is_paused(world, number)
        total = 0.0
        if node.pulled == 1:
            for a in range(node.first, node.first + node.active):
                total += most_records(world, world.actors[a], span_s)
            total = 0.0 if paused else min(node.held + coming, total)
        else:
            _spread(world, number)
            taken_in(world, number, paused, span_s)
            for a in range(node.first, node.first + node.used):
                total += world.actors[a].potential
        node.potential = total
        node.pushed = total * node.selectivity


@part
def _read(world: World, number: int, span_s: float, came: float, log: Floats) -> None:
    """A source: what is read, what stays in the log, and how old it was."""
    node = world.nodes[number]
    node.arrived += came
    out = node.potential * node.pressed
    node.backlog += came - out
    if node.backlog < 1e-9 * node.arrived:
        node.backlog = 0.0
    node.pushed = out
    node.delay_s = 0.0
    node.delay_var = 0.0
    node.fixed_s = 0.0
    node.cv2 = node.arrival_cv2
    if world.nodes[world.edges[node.out_first].target].pulled == 1:
        return
    node.read += out
    before = node.age_s
    node.age_s = _age_s(node, log, span_s)
    if out > 0.0:
        # Those that came during a stall waited for half of it, and for the others before them.
        stalled = node.stalled_s
        caught = 1.0 / max(0.02, 1.0 - world.jobs[node.job].busy)
        waited = stalled * stalled / 2 * caught / span_s
        node.fixed_s = (before + node.age_s) / 2
        node.delay_s = node.fixed_s + waited
        node.delay_var = waited * stalled * caught * 2 / 3
    if node.pressed < 1.0 and world.jobs[node.job].stops_sources == 0:
        read_s = out * world.actors[node.first].service_s
        parked_s = node.senders * max(0.0, span_s * node.open - read_s)
        count_parked(world, number, parked_s, span_s)


@part
def _age_s(node: Rows, log: Floats, span_s: float) -> float:
    """How old the record is that is read next: `log` holds how many had arrived by the end of each
    step, in a ring. What is older than the ring counts as old as it.
    """
    size = log.shape[1]
    step = node.steps
    node.steps += 1
    log[node.log, step % size] = node.arrived
    if node.backlog <= 0.0:
        node.head = step
        return 0.0
    read = node.arrived - node.backlog
    node.head = max(node.head, step - size + 2)
    while node.head < step and log[node.log, node.head % size] <= read:
        node.head += 1
    return float((step - node.head) * span_s)


@part
def _arrival_cv2(world: World, number: int, task: int, busy: float) -> tuple[float, float]:
    """How irregular arrivals at a task are, and how many came in one batch before a record."""
    node = world.nodes[number]
    total, squares, mean, ahead = 0.0, 0.0, 0.0, 0.0
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        share = world.share[edge.share + task]
        flow = edge.flow * share
        if flow <= 0.0:
            continue
        parent = world.nodes[edge.source]
        senders = float(max(1, parent.active))
        many = parent.selectivity if parent.kind == OPERATOR else 1.0
        if edge.grouping == SHUFFLE:
            cv2 = parent.cv2 * share
            batch = max(0.0, many * share - 1.0)
        elif edge.grouping == BY_KEY:
            cv2 = 1.0 + share * (parent.cv2 - 1.0)
            batch = max(0.0, many - 1.0) * share
        else:
            cv2 = parent.cv2
            batch = max(0.0, many - 1.0)
        total += flow
        squares += flow * flow / senders
        mean += flow * cv2
        ahead += flow * batch
    # A flow whose square is nothing has no shape to speak of.
    if squares < LEAST * LEAST:
        return 1.0, 0.0
    return together_cv2(mean / total, total * total / squares, busy), ahead / total


@part
def _delay_before(world: World, number: int, span_s: float) -> None:
    """How long records took to the door of a node, over the edges into it."""
    node = world.nodes[number]
    total, mean, square, fixed = 0.0, 0.0, 0.0, 0.0
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        if edge.flow <= 0.0:
            continue
        parent = world.nodes[edge.source]
        gathered = 0.0
        if edge.batch_s > 0.0:
            # The first waits for the whole time, those that join it for half of it.
            others = edge.flow / span_s / max(1, parent.active) * edge.batch_s
            gathered = edge.batch_s * (1.0 + others / 2) / (1.0 + others)
            edge.batching_s += gathered * edge.flow
        path_s = parent.delay_s + edge.transit_s + gathered
        if node.kind == OPERATOR and node.pulled == 0:
            edge.channel_s += (edge.transit_s + gathered) * edge.flow
        total += edge.flow
        mean += edge.flow * path_s
        square += edge.flow * (path_s * path_s + parent.delay_var)
        fixed += edge.flow * (parent.fixed_s + edge.transit_s)
    if total > 0.0:
        node.delay_s = mean / total
        node.delay_var = max(0.0, square / total - node.delay_s**2)
        node.fixed_s = fixed / total


@part
def _spent_s(station: Rows, coming: float, out: float, span_s: float) -> float:
    """How long the records that leave a station were in it: those there now came since.

    So it is the number held over the rate at which they came, a mean over about that long; and it
    cannot have grown by more than the time that went by.
    """
    if out <= 1e-9:
        return float(station.spent_s)
    pace = span_s / (span_s + 0.5 * station.spent_s)
    station.rate += pace * (coming / span_s - station.rate)
    if station.rate <= 0.0:
        station.rate = out / span_s
    station.spent_s = min(station.held / station.rate, station.spent_s + span_s)
    return float(station.spent_s)


@part
def _chance_var(wait_s: float, service_s: float, cv2: float, rho: float) -> float:
    """Variance of the waiting: a part ρ of the records waits at all,
    and those nearly exponentially.
    """
    by_chance = min(wait_s, BY_CHANCE * service_s * max(0.1, cv2) / 2)
    return float(by_chance * by_chance * max(0.0, 2.0 / max(rho, 0.3) - 1.0))


@part
def _serve(world: World, number: int, span_s: float, drawn: bool) -> None:
    """An operator: what its actors finish, what they keep, how long it took."""
    node = world.nodes[number]
    paused = _is_paused(world, number)
    done, waited, variance, served, cv2, parked_s = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    node.busy = 0.0
    for task in range(node.used):
        actor = world.actors[node.first + task]
        records = actor.held + actor.coming
        rho = 0.0
        if records > LEAST:
            service_s = mean_service_s(world, actor)
            most = 0.0 if paused else most_records(world, actor, span_s)
            arrival_cv2, ahead = _arrival_cv2(world, number, task, actor.busy)
            service_cv2 = actor.cv**2
            if node.passed < 1.0 or node.pressed < 1.0:
                # Senders park before it, or it is parked: queues are full, not random.
                out = min(records, actor.potential * node.pressed)
                rho = min(1.0, out / most) if most > 0.0 else 0.0
                if node.pressed < 1.0 and out < records and task < node.active:
                    parked_s += max(0.0, span_s - out * service_s)
            else:
                felt_cv2 = arrival_cv2
                if drawn:
                    felt_cv2 *= within_step(actor.busy, arrival_cv2, service_cv2, service_s, span_s)
                rho = utilisation(records, most, felt_cv2, service_cv2, ahead, 1.0)
                out = min(records, most * rho)
            _count(actor, node, out, service_s, span_s, arrival_cv2)
            actor.sent += actor.coming
            actor.held = records - out
            spent_s = _spent_s(actor, actor.coming, out, span_s)
            wait_s = max(0.0, spent_s - service_s) if out > 0.0 else 0.0
            done += out
            waited += out * wait_s
            served += out * service_s if out > 0.0 else 0.0
            variance += out * _chance_var(wait_s, service_s, arrival_cv2 + service_cv2, rho)
            variance += out * service_s**2 * service_cv2 if out > 0.0 else 0.0
            cv2 += out * departure_cv2(rho, arrival_cv2, service_cv2, 1.0)
        actor.busy = rho
        node.busy = max(node.busy, rho)
    _leave(world, number, done, waited, served, variance, cv2)
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        edge.channel_s += edge.flow * (waited / done if done > LEAST else 0.0)
    if parked_s > 0.0:
        count_parked(world, number, parked_s, span_s)


@part
def _serve_pool(world: World, number: int, span_s: float, drawn: bool) -> None:
    """An operator whose instances take from the log: several servers, one queue."""
    node = world.nodes[number]
    servers = float(max(1, node.active))
    most, service_cv2 = 0.0, 0.0
    for a in range(node.first, node.first + node.active):
        most += most_records(world, world.actors[a], span_s)
        service_cv2 += world.actors[a].cv ** 2 / servers
    records = node.held + node.inflow
    possible = 0.0 if _is_paused(world, number) else most
    arrival_cv2 = 1.0
    for k in range(node.in_first, node.in_first + node.in_count):
        parent = world.nodes[world.edges[world.into[k]].source]
        arrival_cv2 = parent.arrival_cv2 if node.in_count == 1 else 1.0
    if node.pressed < 1.0:
        out = min(records, node.potential * node.pressed)
        rho = min(1.0, out / possible) if possible > 0.0 else 0.0
    else:
        felt_cv2 = arrival_cv2
        if drawn and most > 0.0:
            felt_cv2 *= within_step(node.busy, arrival_cv2, service_cv2, span_s / most, span_s)
        rho = utilisation(records, possible, felt_cv2, service_cv2, 0.0, servers)
        out = min(records, possible * rho)
    node.held = records - out
    never_made = 0.0
    if world.jobs[node.job].generates == 1:
        # What its instances make themselves does not wait in a log: at most a step's worth is kept.
        never_made = max(0.0, node.held - most)
        node.held -= never_made
    node.busy = rho
    served = 0.0
    for a in range(node.first, node.first + node.tasks):
        actor = world.actors[a]
        active = a < node.first + node.active
        actor.busy = rho if active else 0.0
        if active and out > 0.0:
            service_s = mean_service_s(world, actor)
            actor.coming = out * most_records(world, actor, span_s) / most
            _count(actor, node, actor.coming, service_s, span_s, arrival_cv2)
            actor.sent += actor.coming
            actor.taken = actor.sent
            served += actor.coming * service_s
    mean_s = served / out if out > 0.0 else 0.0
    wait_s = max(0.0, _spent_s(node, node.inflow, out, span_s) - mean_s)
    variance = _chance_var(wait_s, mean_s, arrival_cv2 + service_cv2, rho)
    variance += mean_s**2 * service_cv2
    cv2 = departure_cv2(rho, arrival_cv2, service_cv2, servers)
    _leave(world, number, out, out * wait_s, served, out * variance, out * cv2)
    waiting = max(0.0, node.held - servers * rho)
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        edge.own = edge.flow / node.inflow if node.inflow > 0.0 else edge.own
        source = world.nodes[edge.source]
        source.arrived -= never_made * edge.own
        source.read = max(source.read, source.arrived - waiting * edge.own)
        edge.emitted = source.read
        edge.taken = source.read


@part
def _leave(
    world: World,
    number: int,
    done: float,
    waited: float,
    served: float,
    variance: float,
    cv2: float,
) -> None:
    """What an operator sends on, how long records took up to here, and how regularly they leave."""
    node = world.nodes[number]
    node.pushed = done * node.selectivity
    if node.pushed < LEAST:
        node.pushed = 0.0
    if done > LEAST:
        node.delay_s += (waited + served) / done
        node.delay_var += variance / done
        node.cv2 = cv2 / done
        if node.selectivity < 1.0:
            node.cv2 = 1.0 + node.selectivity * (node.cv2 - 1.0)
    # The busiest operator of a job, with a memory of some steps: how fast a backlog goes down.
    job = world.jobs[node.job]
    job.busy = max(0.9 * job.busy, node.busy)


@part
def _count(
    actor: Rows, node: Rows, out: float, service_s: float, span_s: float, arrival_cv2: float
) -> None:
    if out > 0.0:
        actor.busy_s += out * service_s
        actor.busy_sq_s2 += out * service_s**2 * (1.0 + actor.cv**2)
        actor.cpu_s += out * actor.service_s * actor.slow * actor.cpu
        actor.emitted += out * node.selectivity * (node.out_count - node.out_sinks)
        if node.selectivity > 0.0:
            # Each record writes with the chance of the selectivity: so many more until one does.
            # A selectivity next to 0 must not make it infinite.
            more = max(0.0, 1.0 / max(node.selectivity, 1e-12) - 1.0)
            actor.write_waits += out
            actor.write_wait_s += out * service_s + more * span_s
    if actor.coming > LEAST:
        gap_s = span_s / actor.coming
        actor.gaps += actor.coming
        actor.gap_s += span_s
        actor.gap_sq_s2 += span_s * gap_s * (1.0 + arrival_cv2)


@part
def _settle(world: World, number: int, span_s: float) -> None:
    """Taken is what was sent and neither waits nor travels. What is not in use and holds nothing
    is at rest: until somebody changes the tables, later steps would leave it as it is.
    """
    node = world.nodes[number]
    waiting = 0.0
    used = node.active
    for task in range(node.used):
        actor = world.actors[node.first + task]
        under_way = 0.0
        for k in range(node.in_first, node.in_first + node.in_count):
            edge = world.edges[world.into[k]]
            lasts_s = edge.transit_s + edge.batch_s / 2
            under_way += edge.flow * world.share[edge.share + task] * lasts_s / span_s
        actor.level = max(0.0, actor.held - actor.busy) + under_way
        actor.taken = max(actor.taken, actor.sent - actor.level)
        waiting += actor.level
        if actor.held != 0.0 or actor.level != 0.0 or actor.busy != 0.0:
            used = max(used, task + 1)
    node.used = used
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        edge.own = edge.flow / node.inflow if node.inflow > 0.0 else edge.own
        edge.emitted += edge.flow
        edge.taken = max(edge.taken, edge.emitted - edge.lost - waiting * edge.own)


@part
def _write(world: World, number: int, quantiles: Floats, weights: Floats) -> None:
    """A sink: so many records of this mean latency and this variance."""
    node = world.nodes[number]
    count = _flow_in(world, number)
    for k in range(node.in_first, node.in_first + node.in_count):
        edge = world.edges[world.into[k]]
        edge.emitted += edge.flow
        edge.taken = edge.emitted
    _delay_before(world, number, 1.0)
    if count <= 0.0:
        return
    node.written += count
    node.latency_s += count * node.delay_s
    free = max(1e-9, node.delay_s - node.fixed_s)
    # Rows of the table are variations in steps of 0.05.
    place = min(np.sqrt(node.delay_var) / free * 20.0, len(quantiles) - 1.001)
    row = int(place)
    rest = place - row
    for k in range(len(weights)):
        factor = (1.0 - rest) * quantiles[row, k] + rest * quantiles[row + 1, k]
        latency_ms = max(1e-3, (node.fixed_s + free * factor) * 1000.0)
        bucket = int(np.ceil(np.log(latency_ms) / LOG_GAMMA)) - LOWEST
        world.histogram[number, min(max(bucket, 0), BUCKETS - 1)] += count * weights[k]


@part
def _share_machines(world: World) -> None:
    """How many threads run on each machine, and how long computing takes there from now on."""
    for m in range(len(world.machines)):
        world.machines[m].load = 0.0
        world.machines[m].threads = 0.0
    for n in range(len(world.nodes)):
        node = world.nodes[n]
        if node.kind != OPERATOR:
            continue
        for a in range(node.first, node.first + node.used):
            actor = world.actors[a]
            if actor.busy <= 0.0:
                continue
            machine = world.machines[actor.machine]
            ideal = actor.service_s * actor.slow
            computing = ideal * actor.cpu * machine.stretch / max(machine.speed, 1e-9)
            lasts = computing + ideal * (1.0 - actor.cpu)
            if actor.cpu > 0.0 and lasts > 0.0:
                machine.load += actor.busy * computing / lasts
                machine.threads += 1.0
    for m in range(len(world.machines)):
        machine = world.machines[m]
        wanted = stretch(
            machine.threads,
            machine.load,
            machine.other,
            usable_cores(machine),
            machine.switch_s,
        )
        machine.stretch = (machine.stretch + wanted) / 2
        machine.load += machine.other + machine.overhead


@compiled
def draw_arrivals(rng: np.random.Generator, arrivals: Floats, cv2: float) -> None:
    """Varies by chance how many records come to each source in a step. Gamma has the mean and the
    variance that it takes, and is never negative.
    """
    for source in range(len(arrivals)):
        if arrivals[source] > 0.0:
            arrivals[source] = rng.standard_gamma(arrivals[source] / cv2) * cv2


@part
def _step(
    world: World,
    span_s: float,
    arrivals: Floats,
    at: int,
    log: Floats,
    quantiles: Floats,
    weights: Floats,
    drawn: bool,
) -> None:
    """One step for everybody; row `at` of `arrivals` are the records that come to each source."""
    nodes = world.nodes
    stop_sources(world, span_s, arrivals, at)
    for n in range(len(nodes)):
        if world.jobs[nodes[n].job].alive == 1:
            _would_flow(world, n, span_s, arrivals, at)
    for n in range(len(nodes) - 1, -1, -1):
        if world.jobs[nodes[n].job].alive == 1:
            hold_back(world, n)
    for n in range(len(nodes)):
        node = nodes[n]
        if world.jobs[node.job].alive == 0:
            continue
        if node.kind == SOURCE:
            _read(world, n, span_s, arrivals[at, n], log)
        elif node.kind == OPERATOR:
            _flow_in(world, n)
            _delay_before(world, n, span_s)
            if node.pulled == 1:
                _serve_pool(world, n, span_s, drawn)
            else:
                _spread(world, n)
                _serve(world, n, span_s, drawn)
                _settle(world, n, span_s)
        else:
            _write(world, n, quantiles, weights)
    _share_machines(world)


@compiled
def steps(
    world: World,
    spans_s: Floats,
    arrivals: Floats,
    log: Floats,
    quantiles: Floats,
    weights: Floats,
    drawn: bool,
) -> None:
    """Steps of these lengths, with a row of `arrivals` each: the records that come to each source.
    `drawn` tells whether chance has varied them.
    """
    # Since the last call anything may have been changed: no task is known to be at rest.
    for n in range(len(world.nodes)):
        world.nodes[n].used = world.nodes[n].tasks
    for at in range(len(spans_s)):
        _step(world, spans_s[at], arrivals, at, log, quantiles, weights, drawn)
