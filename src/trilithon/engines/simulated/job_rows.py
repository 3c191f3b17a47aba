"""Makes the rows of a job: its nodes, edges and actors, and the share of records of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.character import Character
from trilithon.engines.simulated.operator_cost import Assumed, Cost, cost_of, key_shares
from trilithon.engines.simulated.world_tables import (
    BROADCAST,
    BUCKETS,
    BY_KEY,
    DETERMINISTIC,
    SHUFFLE,
    UNLIMITED,
    Ints,
    Rows,
    World,
)
from trilithon.model.allocation import Allocation
from trilithon.model.groups import assign_key_groups
from trilithon.model.job import Edge, Grouping, Job, NodeKind, Source

_KINDS = {
    NodeKind.SOURCE: world_tables.SOURCE,
    NodeKind.OPERATOR: world_tables.OPERATOR,
    NodeKind.SINK: world_tables.SINK,
}
_GROUPINGS = {Grouping.SHUFFLE: SHUFFLE, Grouping.BY_KEY: BY_KEY, Grouping.BROADCAST: BROADCAST}


@dataclass(frozen=True, slots=True)
class JobRows:
    """The rows of a job in the tables."""

    row: int
    nodes: dict[str, int]
    edges: dict[tuple[str, str], int]
    costs: dict[str, Cost]

    def actor(self, world: World, operator: str, index: int) -> int:
        return int(world.nodes["first"][self.nodes[operator]]) + index


def add_job(
    world: World, job: Job, character: Character, assumed: Assumed
) -> tuple[World, JobRows]:
    """The tables with a job more; it has no tasks in use yet."""
    base = len(world.nodes), len(world.edges), len(world.actors)
    nodes = {name: base[0] + i for i, name in enumerate(job.order)}
    edges = sorted(job.edges, key=lambda edge: (nodes[edge.source], nodes[edge.target]))
    rows = JobRows(
        len(world.jobs),
        nodes,
        {(edge.source, edge.target): base[1] + i for i, edge in enumerate(edges)},
        {operator.name: cost_of(operator, assumed) for operator in job.operators},
    )
    tasks = {o.name: o.parallelism.max for o in job.operators}
    tasks |= {s.name: _readers(s, character) for s in job.sources}
    width = [tasks.get(edge.target, 0) for edge in edges]
    into = [i for name in job.order for i, edge in enumerate(edges) if edge.target == name]
    world = world_tables.appended(
        world,
        jobs=world_tables.rows(
            world_tables.JOB,
            1,
            stops_sources=character.stops_sources,
            generates=character.generates,
            low_mark=character.low_mark,
        ),
        nodes=_nodes(job, rows, edges, tasks, base, character),
        edges=_edges(job, rows, edges, character, assumed, len(world.share) + _starts(width)),
        actors=_actors(job, rows, tasks, character),
        into=base[1] + np.array(into, dtype=np.int64),
        share=np.zeros(sum(width)),
        histogram=np.zeros((len(nodes), BUCKETS)),
    )
    return world, rows


def _readers(source: Source, character: Character) -> int:
    return (source.partitions or 1) if character.reader_per_partition else 1


def _starts(lengths: Sequence[int]) -> Ints:
    """Where each of some adjacent ranges begins."""
    return np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)


def _nodes(
    job: Job,
    rows: JobRows,
    edges: Sequence[Edge],
    tasks: Mapping[str, int],
    base: tuple[int, int, int],
    character: Character,
) -> Rows:
    kinds = dict(job.nodes())
    count = [tasks.get(name, 0) for name in job.order]
    out = [sum(edge.source == name for edge in edges) for name in job.order]
    into = [sum(edge.target == name for edge in edges) for name in job.order]
    costs = rows.costs
    partitions = {source.name: source.partitions or 1 for source in job.sources}
    return world_tables.rows(
        world_tables.NODE,
        len(job.order),
        job=rows.row,
        kind=[_KINDS[kinds[name]] for name in job.order],
        first=base[2] + _starts(count),
        tasks=count,
        active=[tasks[name] if kinds[name] is NodeKind.SOURCE else 0 for name in job.order],
        pulled=[int(character.pulls and _pulls(job, name)) for name in job.order],
        out_first=base[1] + _starts(out),
        out_count=out,
        out_sinks=[
            sum(kinds[edge.target] is NodeKind.SINK for edge in job.children[name])
            for name in job.order
        ],
        in_first=base[1] + _starts(into),
        in_count=into,
        senders=[partitions.get(name, 1) for name in job.order],
        selectivity=[costs[name].selectivity if name in costs else 1.0 for name in job.order],
        window_s=[costs[name].window_s if name in costs else 0.0 for name in job.order],
    )


def _edges(
    job: Job,
    rows: JobRows,
    edges: Sequence[Edge],
    character: Character,
    assumed: Assumed,
    share: Ints,
) -> Rows:
    kinds = dict(job.nodes())
    buffer = character.buffer_bytes
    batch_records = 0 if buffer is None else max(1, int(buffer / max(1.0, assumed.record_bytes)))
    return world_tables.rows(
        world_tables.EDGE,
        len(edges),
        source=[rows.nodes[edge.source] for edge in edges],
        target=[rows.nodes[edge.target] for edge in edges],
        grouping=[_GROUPINGS[edge.grouping] for edge in edges],
        transit_s=[_transit_s(edge, kinds, character) for edge in edges],
        ship_s=character.ship_s,
        batch_records=batch_records,
        selectivity=[_selectivity(job, rows, edge) for edge in edges],
        share=share,
    )


def _selectivity(job: Job, rows: JobRows, edge: Edge) -> float:
    """Records out per record of an edge into an operator. What is broadcast to an operator beside
    its other input changes what it knows: nothing comes out of it.
    """
    into = job.parents[edge.target]
    if edge.grouping is Grouping.BROADCAST and any(e.grouping != edge.grouping for e in into):
        return 0.0
    return rows.costs[edge.target].selectivity if edge.target in rows.costs else 1.0


def _actors(job: Job, rows: JobRows, tasks: Mapping[str, int], character: Character) -> Rows:
    names = [name for name in job.order for _ in range(tasks.get(name, 0))]
    reader = Cost(character.reader_s, 0.0, DETERMINISTIC, 0.0, 1.0, 0.0, 0.0, 0.0)
    costs = [rows.costs.get(name, reader) for name in names]
    limit = UNLIMITED if character.credits is None else character.credits
    return world_tables.rows(
        world_tables.ACTOR,
        len(names),
        node=[rows.nodes[name] for name in names],
        shape=[cost.shape for cost in costs],
        limit=limit,
        service_s=[cost.service_s for cost in costs],
        cv=[cost.cv for cost in costs],
        cpu=[cost.cpu for cost in costs],
    )


def _pulls(job: Job, name: str) -> bool:
    """Whether the instances of an operator can take from the log: nothing else comes to them, and
    nobody else reads it.
    """
    sources = {source.name for source in job.sources}
    into = job.parents[name] if name in {operator.name for operator in job.operators} else ()
    return bool(into) and all(
        edge.source in sources
        and edge.grouping is Grouping.SHUFFLE
        and len(job.children[edge.source]) == 1
        for edge in into
    )


def _transit_s(edge: Edge, kinds: dict[str, NodeKind], character: Character) -> float:
    if kinds[edge.target] is NodeKind.SINK:
        return 0.0
    return character.transit_s + (
        character.fetch_s if kinds[edge.source] is NodeKind.SOURCE else 0.0
    )


def route(
    world: World,
    job: Job,
    rows: JobRows,
    wanted: Allocation,
    keys: int,
    groups: dict[str, tuple[int, ...]],
) -> None:
    """The tasks that an allocation wants in use, and what each gets. `groups` is where key groups
    are; as few as possible are moved, and where they are then is written there.
    """
    for operator, count in wanted.parallelism.items():
        node = rows.nodes[operator]
        first, before = world.nodes["first"][node], world.nodes["active"][node]
        world.nodes["active"][node] = count
        # What an instance left unwritten does not wait until it is used again.
        idle = slice(first + min(before, count), first + world.nodes["tasks"][node])
        world.actors["unwritten"][idle] = world.actors["unwritten_s"][idle] = 0.0
        weights = np.array(wanted.weights.get(operator, (1.0,) * count), dtype=float)
        for edge in job.parents[operator]:
            row = rows.edges[edge.source, operator]
            if edge.grouping is Grouping.BY_KEY:
                given = wanted.groups.get(operator) or assign_key_groups(
                    weights.tolist(), groups.get(operator)
                )
                groups[operator] = given
                cost = rows.costs[operator]
                shares = key_shares(keys, cost.zipf, given, weights, cost.hot_key)
            elif edge.grouping is Grouping.BROADCAST:
                shares = np.ones(count)
            else:
                shares = weights / weights.sum()
            start = world.edges["share"][row]
            world.share[start : start + world.nodes["tasks"][node]] = 0.0
            world.share[start : start + count] = shares
            world.edges["even"][row] = int(np.all(weights == weights[0]))
    for row in rows.edges.values():
        world.edges["batch_s"][row] = 0.0
    for name, wait_ms in wanted.batching_ms.items():
        world.edges["batch_s"][rows.edges[name.source, name.target]] = wait_ms / 1000
