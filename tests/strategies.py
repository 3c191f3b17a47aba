"""Hypothesis strategies: random valid jobs, intents and snapshots."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from trilithon.model.columns import Columns, Edges, Instances, Machines, Sinks, Sources
from trilithon.model.intent import Constraint, EdgeName, Intent, Metric, Threshold
from trilithon.model.job import (
    Bounds,
    Edge,
    Field,
    Grouping,
    HeldTasks,
    Job,
    Operator,
    Parallelism,
    Sink,
    Source,
    Work,
)
from trilithon.model.layout import Layout
from trilithon.model.profile import Distribution, Profile
from trilithon.model.sketches import Sketches
from trilithon.model.snapshot import Snapshot
from trilithon.model.utility import Sense, Utility

COLUMNS = (Field("k", "STRING"), Field("v", "BIGINT"))
positive = st.floats(min_value=1e-3, max_value=1e6, allow_nan=False)
values = st.floats(min_value=0, max_value=1e9, allow_nan=False)
senses = st.sampled_from(list(Sense))


@st.composite
def utilities(draw: st.DrawFn, threshold: float, sense: Sense) -> Utility:
    """Any built-in utility function with parameters that fit the threshold."""
    function = draw(st.sampled_from(["knee", "linear", "step", "piecewise", "lognormal"]))
    if function == "linear":
        factor = draw(st.floats(1.1, 5) if sense is Sense.AT_MOST else st.floats(0, 0.9))
        return Utility(function, {"zero_at": threshold * factor})
    if function == "step":
        return Utility(function, {"otherwise": draw(st.floats(0, 1))})
    if function == "lognormal":
        return Utility(function, {"spread": draw(st.floats(0.05, 5))})
    if function == "piecewise":
        # From the threshold, where it is 1, to the worst value.
        n = draw(st.integers(1, 4))
        steps = np.cumsum(draw(st.lists(st.floats(0.1, 2), min_size=n, max_size=n)))
        factors = 1 + steps if sense is Sense.AT_MOST else 1 / (1 + steps)
        ys = sorted(draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)), reverse=True)
        points = [(threshold, 1.0), *zip((threshold * factors).tolist(), ys, strict=True)]
        return Utility(function, {"points": tuple(sorted(points))})
    return Utility(function)


@st.composite
def thresholds(draw: st.DrawFn) -> Threshold:
    metric = draw(st.sampled_from(list(Metric)))
    value = draw(st.floats(0.01, 1) if metric is Metric.JUICE else st.floats(1, 1e5))
    statistic = None
    if metric is Metric.LATENCY:
        statistic = draw(st.sampled_from([None, "mean", "p50", "p95", "p99", "p99.9"]))
    threshold = Threshold(metric, round(value, 3), statistic)
    utility = draw(utilities(threshold.value, threshold.sense))
    return Threshold(metric, threshold.value, statistic, utility)


profiles = st.builds(
    Profile,
    service_ms=st.none() | st.floats(0, 100),
    service_cv=st.none() | st.floats(0, 3),
    distribution=st.none() | st.sampled_from(list(Distribution)),
    cpu_share=st.none() | st.floats(0, 1),
    selectivity=st.none() | st.floats(0, 10),
    zipf=st.none() | st.floats(0, 2),
)


@st.composite
def parallelisms(draw: st.DrawFn) -> Parallelism:
    low, initial, high = sorted(draw(st.lists(st.integers(1, 12), min_size=3, max_size=3)))
    return Parallelism(initial, low, high, draw(st.none() | st.sampled_from(list(HeldTasks))))


@st.composite
def edges(draw: st.DrawFn, source: str, target: str, to_sink: bool = False) -> Edge:
    grouping = Grouping.SHUFFLE if to_sink else draw(st.sampled_from(list(Grouping)))
    return Edge(source, target, grouping, ("k",) if grouping is Grouping.BY_KEY else ())


@st.composite
def jobs(draw: st.DrawFn, name: str = "job", max_operators: int = 6) -> Job:
    """A valid job: any DAG in which every node lies on a path from a source to a sink."""
    sources = [f"s{i}" for i in range(draw(st.integers(1, 3)))]
    operators = [f"o{i}" for i in range(draw(st.integers(1, max_operators)))]
    job_edges: list[Edge] = []
    nodes = list(sources)
    for operator in operators:
        parents = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True))
        job_edges += [draw(edges(parent, operator)) for parent in parents]
        nodes.append(operator)
    read = {edge.source for edge in job_edges}
    # Each node without a reader gets a sink, and so do some others.
    ends = [node for node in nodes if node not in read]
    ends += draw(st.lists(st.sampled_from(nodes), max_size=2, unique=True))
    sinks = [f"k{i}" for i in range(len(dict.fromkeys(ends)))]
    job_edges += [Edge(end, sink) for end, sink in zip(dict.fromkeys(ends), sinks, strict=True)]
    internal = [edge for edge in job_edges if edge.target in operators]
    sequence: tuple[str | EdgeName, ...] = ()
    if internal:
        edge = draw(st.sampled_from(internal))
        sequence = (edge.name, edge.target)
    constraint = Constraint(sequence, draw(st.integers(1, 500)), draw(st.integers(1, 60)))
    constrained: bool = draw(st.booleans())
    slo = tuple(draw(st.lists(thresholds(), max_size=3)))
    metadata = draw(st.sampled_from([(), (("sent_at", "timestamp"), ("part", "partition"))]))
    return Job(
        tenant=draw(st.sampled_from(["ads", "search", "default"])),
        name=name,
        sources=tuple(
            Source(
                s,
                COLUMNS,
                (("subscribe", f"in-{s}"),),
                draw(st.none() | st.integers(1, 8)),
                metadata,
            )
            for s in sources
        ),
        operators=tuple(
            Operator(o, Work(where="v > 1"), draw(parallelisms()), draw(st.none() | profiles))
            for o in operators
        ),
        edges=tuple(sorted(job_edges, key=lambda e: (operators + sinks).index(e.target))),
        sinks=tuple(
            Sink(
                k,
                (("topic", f"out-{k}"),),
                draw(st.sampled_from([1.0, 0.5, 3.0])),
                draw(st.sampled_from([None, "v + 1"])),
            )
            for k in sinks
        ),
        intent=Intent(
            slo,
            draw(st.integers(1, 100)),
            (constraint,) if internal and constrained else (),
        ),
        bounds=Bounds(preserve_order=draw(st.booleans())),
        batch_s=draw(st.sampled_from([5.0, 60.0, 300.0, 7200.0])),
        dead_letter_topic=draw(st.none() | st.just("rejected")),
    )


@st.composite
def columns(draw: st.DrawFn, /, table: type[Columns], rows: int, **fixed: Any) -> Any:
    """A table of small whole numbers, some of them missing. All cells come from one drawn seed:
    drawing each would take longer than the test.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    missing = draw(st.sampled_from([0.0, 0.1, 0.5]))
    values = {
        name: np.where(random.random(rows) < missing, np.nan, random.integers(0, 1000, rows))
        for name in table.names()
    }
    return table(**{**values, **fixed})


histograms = st.none() | st.dictionaries(
    st.integers(-50, 600), st.integers(1, 100).map(float), max_size=6
)


@st.composite
def snapshots(draw: st.DrawFn, time_s: float = 100.0) -> Snapshot:
    """A valid snapshot of one or two jobs, in which any number may be missing."""
    snapshot_jobs = [draw(jobs(f"job{i}", 3)) for i in range(draw(st.integers(1, 2)))]
    machines = [f"m{i}" for i in range(draw(st.integers(0, 3)))]
    layout = Layout.build(snapshot_jobs, machines=machines)
    rows = len(layout.instance_node)
    place = st.sampled_from([*map(float, range(len(machines))), float("nan")])
    machine = draw(st.lists(place, min_size=rows, max_size=rows))
    sinks = len(layout.sink_nodes)
    return Snapshot(
        time_s=time_s,
        since_s=draw(st.none() | st.just(time_s - 10)),
        layout=layout,
        instances=draw(columns(Instances, rows, machine=machine)),
        edges=draw(columns(Edges, len(layout.edge_source))),
        sources=draw(columns(Sources, len(layout.source_nodes))),
        sinks=draw(columns(Sinks, sinks)),
        latencies=Sketches.of(draw(st.lists(histograms, min_size=sinks, max_size=sinks))),
        machines=draw(columns(Machines, len(machines))),
        jobs={job.id: job for job in snapshot_jobs},
    )


def shape(
    *edges: str, rates: Mapping[str, float] | None = None
) -> tuple[Layout, np.ndarray[Any, np.dtype[np.float64]]]:
    """A layout from edges like `a>b`, and the rates of its nodes: a figure of a paper in a line."""
    pairs = [tuple(edge.split(">")) for edge in edges]
    targets = {b for _, b in pairs}
    starts = {a for a, _ in pairs}
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    job = Job(
        tenant="t",
        name="shape",
        sources=tuple(Source(n, COLUMNS, ()) for n in names if n not in targets),
        operators=tuple(Operator(n) for n in names if n in targets and n in starts),
        edges=tuple(Edge(a, b) for a, b in pairs),
        sinks=tuple(Sink(n, ()) for n in names if n not in starts),
    )
    layout = Layout.build([job])
    row = {name: i for i, name in enumerate(layout.node_names)}
    node_rates = np.zeros(len(layout.node_names))
    for name, rate in (rates or {}).items():
        node_rates[row[name]] = rate
    return layout, node_rates
