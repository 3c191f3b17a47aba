"""Defines the tables that both modes share: jobs, nodes, edges, actors and machines as rows.

An actor is what takes records: a task of an operator, used or idle, or the reader of a source. As
on Spark an operator holds as many tasks as it may ever use, and its parallelism is a routing table
over them. So rows never move: a job that comes appends its rows, one that goes leaves them dead.

A row holds what a thing is, what was counted of it (the report's counters, cumulative), and its
state in a run of single records (`events.py`) or of flows (`fluid.py`).
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from trilithon.model import sketches

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Structured arrays: compiled code reads a field as an attribute, which numpy's types do not know.
Rows = Any

SOURCE, OPERATOR, SINK = 0, 1, 2
SHUFFLE, BY_KEY, BROADCAST = 0, 1, 2
DETERMINISTIC, EXPONENTIAL, GAMMA, LOGNORMAL = 0, 1, 2, 3
# How a job goes on: all of it, without reading (a boundary drains it), or not at all (an outage).
RUNNING, DRAINING, PAUSED = 0, 1, 2
# What an actor does.
IDLE, COMPUTING, WAITING, SENDING, PARKED = 0, 1, 2, 3, 4
NOBODY: Final = -1
UNLIMITED: Final = 1 << 60

LOWEST: Final = int(sketches.bucket_of(sketches.SMALLEST_MS))
BUCKETS: Final = int(sketches.bucket_of(sketches.LARGEST_MS)) - LOWEST + 1


def _fields(whole: str, real: str) -> np.dtype[np.void]:
    return np.dtype(
        [(n, np.int64) for n in whole.split()] + [(n, np.float64) for n in real.split()]
    )


JOB: Final = _fields("mode alive stops_sources stopped generates", "busy low_mark")
# Counted: arrived and read (sources), written and latency_s (sinks). From `potential` on: flows;
# there, the tasks from `used` on are at rest.
NODE: Final = _fields(
    "job kind first tasks active used pulled out_first out_count out_sinks in_first in_count"
    " arrival_version steps head log",
    "selectivity window_s senders arrived read written latency_s arrival_rate arrival_cv2"
    " next_arrival_s"
    " open stalled_s"
    " potential pushed own passed pressed inflow backlog age_s held rate spent_s busy "
    "delay_s delay_var fixed_s cv2",
)
# Counted: emitted, taken, parked_s, channel_s, batching_s.
EDGE: Final = _fields(
    "source target grouping even share batch_records",
    "transit_s batch_s ship_s selectivity emitted taken parked_s channel_s batching_s flow own"
    " lost",
)
# Counted: sent to parked_s. The state is that of single records, from `held` on that of flows.
ACTOR: Final = _fields(
    "node machine shape limit"
    " state version listed out_left out_edge out_to granted parked_next waiters_first waiters_last"
    " in_flight queue_first queue_last queue_length lane_first computing_next computing_before"
    " in_edge window_due",
    "service_s cv cpu slow"
    " sent taken emitted busy_s busy_sq_s2 write_waits write_wait_s cpu_s gaps gap_s gap_sq_s2"
    " parked_s unwritten unwritten_s"
    " owed_s work_left_s since_s took_s wait_s lasts_s origin_s parked_since_s last_sent_s"
    " held coming potential full busy level rate spent_s taken_before",
)
MACHINE: Final = _fields(
    "runnable computing_first",
    "cores speed other overhead switch_s load pace load_s load_since_s stretch threads",
)
# One edge out of an actor: whose turn it is, how many records are being gathered into a batch, and
# where its channels begin.
LANE: Final = _fields("actor turn gathered version smooth", "")
# One lane to one task of its edge's target: the records that are being gathered for it.
CHANNEL: Final = _fields("gathered_first gathered_last gathered", "")
RECORD: Final = _fields("edge to next", "origin_s left_s")
EVENT: Final = _fields("priority sequence what version", "time_s")
# `gathering` are the records that senders gather: each will be an event when it is shipped.
SINGLE: Final = _fields(
    "events planned agenda_size free_first free_count ready_count gathering", "now_s"
)

COUNTED: Final = {
    "nodes": ("arrived", "read", "written", "latency_s"),
    "edges": ("emitted", "taken", "parked_s", "channel_s", "batching_s"),
    "actors": (
        "sent",
        "taken",
        "emitted",
        "busy_s",
        "busy_sq_s2",
        "write_waits",
        "write_wait_s",
        "cpu_s",
        "gaps",
        "gap_s",
        "gap_sq_s2",
        "parked_s",
    ),
}
_NOBODY_AT_FIRST: Final = frozenset(
    "out_to parked_next waiters_first waiters_last queue_first queue_last gathered_first"
    " gathered_last computing_first computing_next computing_before".split()
)
_ONE_AT_FIRST: Final = frozenset(
    "alive slow speed pace stretch open cv2 arrival_cv2 even senders selectivity".split()
)


class World(NamedTuple):
    """All tables. The engine changes routes, machines and modes between two steps."""

    jobs: Rows
    nodes: Rows
    edges: Rows
    actors: Rows
    machines: Rows
    # the edges into a node, side by side
    into: Ints
    # per edge and task of its target: the part of the edge's records that the task gets
    share: Floats
    # nodes × buckets; rows of sinks are in use
    histogram: Floats
    # single records only
    lanes: Rows
    # per lane and task of its edge's target: smooth weighted round robin, and what is gathered
    smooth: Floats
    channels: Rows
    records: Rows
    agenda: Rows
    ready: Ints
    single: Rows


def rows(kind: np.dtype[np.void], count: int, /, **values: npt.ArrayLike) -> Rows:
    """So many rows of a kind, with some fields given."""
    made = np.zeros(count, kind)
    for name in kind.names or ():
        if name in _NOBODY_AT_FIRST:
            made[name] = NOBODY
        elif name in _ONE_AT_FIRST:
            made[name] = 1
        elif name == "last_sent_s":
            made[name] = np.nan
    for name, value in values.items():
        made[name] = value
    return made


def empty() -> World:
    nothing, whole = np.zeros(0), np.zeros(0, np.int64)
    return World(
        jobs=rows(JOB, 0),
        nodes=rows(NODE, 0),
        edges=rows(EDGE, 0),
        actors=rows(ACTOR, 0),
        machines=rows(MACHINE, 0),
        into=whole,
        share=nothing,
        histogram=np.zeros((0, BUCKETS)),
        lanes=rows(LANE, 0),
        smooth=nothing,
        channels=rows(CHANNEL, 0),
        records=rows(RECORD, 0),
        agenda=rows(EVENT, 0),
        ready=whole,
        single=rows(SINGLE, 1),
    )


def appended(world: World, **more: Any) -> World:
    """The same with more rows at the end of the tables that are named."""
    parts = world._asdict()
    return World(
        **{
            name: np.concatenate([table, more[name]]) if name in more else table
            for name, table in parts.items()
        }
    )


def forget(world: World, job: int) -> None:
    """The counters of a job begin anew."""
    nodes = world.nodes["job"] == job
    mine = {
        "nodes": nodes,
        "actors": nodes[world.actors["node"]],
        "edges": nodes[world.edges["source"]],
    }
    for table, names in COUNTED.items():
        for name in names:
            getattr(world, table)[name][mine[table]] = 0.0
    world.edges["lost"][mine["edges"]] = 0.0
    world.histogram[nodes] = 0.0


def renew_limits(world: World, least: int, credit_s: float, span_s: float) -> None:
    """How many records may be in flight to each actor: so many, or what it took in so long, by how
    much it took in the last span. The gate of the Spark engine does the same with each exchange.
    """
    actors = world.actors
    took = actors["taken"] - actors["taken_before"]
    actors["taken_before"] = actors["taken"]
    worth = np.maximum(0.0, took) * credit_s / span_s
    actors["limit"] = np.maximum(least, worth.astype(np.int64))
