"""Small jobs and worlds that the tests of the simulated cluster share."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.arrivals import POISSON_CV2
from trilithon.engines.simulated.character import Character, storm
from trilithon.engines.simulated.event_run import EventRun
from trilithon.engines.simulated.job_rows import JobRows, add_job, route
from trilithon.engines.simulated.operator_cost import Assumed
from trilithon.model.allocation import initial
from trilithon.model.job import Edge, Grouping, Job, Operator, Parallelism, Sink, Source
from trilithon.model.profile import Distribution, Profile

ASSUMED = Assumed(
    service_ms=1.0,
    service_cv=1.0,
    distribution=Distribution.EXPONENTIAL,
    cpu_share=0.0,
    selectivity=1.0,
    zipf=0.0,
    keys=1000,
    record_bytes=200.0,
    state_bytes_per_key=0.0,
)
# Queues without bounds and nothing in between: what the textbooks speak of.
TEXTBOOK = storm(transit_s=0.0, outage_s=0.0, restart_s=0.0)


def operator(name: str, instances: int = 1, **profile: Any) -> Operator:
    bounds = Parallelism(instances, 1, max(8, instances))
    return Operator(name, parallelism=bounds, profile=Profile(**{"service_ms": 1.0, **profile}))


def line(*operators: Operator, name: str = "line") -> Job:
    """One source, some operators one after the other, one sink."""
    names = ["in", *(one.name for one in operators), "out"]
    return Job(
        tenant="t",
        name=name,
        sources=(Source("in", (), (), 1),),
        operators=operators,
        edges=tuple(Edge(a, b) for a, b in pairwise(names)),
        sinks=(Sink("out", ()),),
    )


def world_of(
    job: Job, character: Character = TEXTBOOK, cores: Sequence[float] = (64.0,)
) -> tuple[world_tables.World, JobRows]:
    machines = world_tables.rows(world_tables.MACHINE, len(cores), cores=cores)
    world, rows = add_job(
        world_tables.appended(world_tables.empty(), machines=machines), job, character, ASSUMED
    )
    route(world, job, rows, initial(job), ASSUMED.keys, {})
    return world, rows


def rates_of(world: world_tables.World, rows: JobRows, **rates: float) -> world_tables.Floats:
    found = np.zeros(len(world.nodes))
    for name, rate in rates.items():
        found[rows.nodes[name]] = rate
    return found


def mean_latency_s(
    job: Job, rate: float, records: int, seed: int, arrival_cv2: float = POISSON_CV2
) -> float:
    """Mean time in the system of about so many records, after a tenth of them to warm up."""
    world, rows = world_of(job)
    run = EventRun(world, seed, arrival_cv2=arrival_cv2)
    rates = rates_of(world, rows, **{"in": rate})
    warm_s = 0.1 * records / rate
    run.advance(warm_s, rates)
    sink = rows.nodes["out"]
    before = run.world.nodes[sink].copy()
    run.advance(warm_s + records / rate, rates)
    after = run.world.nodes[sink]
    return float(
        (after["latency_s"] - before["latency_s"]) / (after["written"] - before["written"])
    )


def graph(name: str, operators: Sequence[Operator], *edges: str) -> Job:
    """A job from edges like `a>b`, `a=b` (by key) and `a*b` (broadcast); what nothing leads to is a
    source, what leads to nothing is a sink.
    """
    groupings = {">": Grouping.SHUFFLE, "=": Grouping.BY_KEY, "*": Grouping.BROADCAST}
    streams = []
    for text in edges:
        sign = next(sign for sign in groupings if sign in text)
        source, target = text.split(sign)
        key = ("k",) if sign == "=" else ()
        streams.append(Edge(source, target, groupings[sign], key))
    starts, ends = {e.source for e in streams}, {e.target for e in streams}
    return Job(
        tenant="t",
        name=name,
        sources=tuple(Source(n, (), (), 2) for n in sorted(starts - ends)),
        operators=tuple(operators),
        edges=tuple(streams),
        sinks=tuple(Sink(n, ()) for n in sorted(ends - starts)),
    )
