"""Every measure of every job in one window: 100, 1,000 and 10,000 jobs
of 10 operators × 4 instances.

    python -m bench.measures

Prints the time per size, its growth against the tenfold smaller size, and where the time goes.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from trilithon.measures import capacity, etp, juice, queueing, rates, skew, slo, trend
from trilithon.measures.assess import assess
from trilithon.measures.constraints import ConstraintTable
from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.intent import Constraint, Intent, Metric, Threshold, sequence_of
from trilithon.model.job import Edge, Field, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.sketches import Sketches, summed
from trilithon.model.snapshot import Snapshot
from trilithon.model.utility import Utility

OPERATORS, INSTANCES, SAMPLES = 10, 4, 12
UTILITIES = ("knee", "linear", "step", "lognormal")


def job(i: int) -> Job:
    """A diamond within a chain: ten operators, one source, one sink."""
    names = [f"o{k}" for k in range(OPERATORS)]
    edges = [
        Edge("s", "o0"),
        Edge("o0", "o1"),
        Edge("o0", "o2"),
        Edge("o1", "o3"),
        Edge("o2", "o3"),
    ]
    edges += [Edge(a, b) for a, b in pairwise(names[3:])]
    thresholds = (
        Threshold(Metric.LATENCY, 200, "p95", Utility(UTILITIES[i % len(UTILITIES)])),
        Threshold(Metric.JUICE, 0.95),
    )
    constraint = Constraint(sequence_of(names[3:6]), 100.0, over_s=10.0)
    return Job(
        tenant="bench",
        name=f"j{i}",
        sources=(Source("s", (Field("v", "INT"),), ()),),
        operators=tuple(Operator(n, parallelism=Parallelism(INSTANCES)) for n in names),
        edges=(*edges, Edge(names[-1], "k")),
        sinks=(Sink("k", ()),),
        intent=Intent(thresholds, priority=1 + i % 9, constraints=(constraint,)),
    )


def snapshots(jobs: int, random: np.random.Generator) -> tuple[Snapshot, Snapshot]:
    described = [job(i) for i in range(jobs)]
    machines = max(1, jobs // 10)
    layout = Layout.build(described, machines=[f"m{i}" for i in range(machines)])
    rows, edges = len(layout.instance_node), len(layout.edge_source)
    sinks = len(layout.sink_nodes)

    def grown(scale: float, size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return scale * random.uniform(0.5, 1.5, size)

    taken = grown(6000, rows)
    first = replace(
        Snapshot.empty(0, layout, {d.id: d for d in described}),
        instances=Instances(**{name: np.zeros(rows) for name in Instances.names()}),
        edges=Edges(**{name: np.zeros(edges) for name in Edges.names()}),
        sources=Sources(**{name: np.zeros(jobs) for name in Sources.names()}),
        sinks=Sinks(**{name: np.zeros(sinks) for name in Sinks.names()}),
        latencies=Sketches.of({} for _ in range(sinks)),
        machines=Machines.of(machines, cores=[8.0] * machines, load=grown(8, machines)),
    )
    bucket = np.round(random.normal(230, 30, (sinks, 80))).astype(np.int64)
    second = replace(
        first,
        time_s=60,
        instances=Instances.of(
            rows,
            incarnation=np.zeros(rows),
            machine=random.integers(0, machines, rows).astype(float),
            weight=np.ones(rows),
            sent=taken + grown(10, rows),
            taken=taken,
            emitted=taken,
            failed=np.zeros(rows),
            busy_s=taken * 0.005,
            busy_sq_s2=taken * 5e-5,
            cpu_s=taken * 0.004,
            gaps=taken,
            gap_s=np.full(rows, 60.0),
            gap_sq_s2=7200.0 / taken,
            write_waits=taken,
            write_wait_s=taken * 0.005,
        ),
        edges=Edges(
            incarnation=np.zeros(edges),
            senders=np.full(edges, 4.0),
            idle_transport_s=np.full(edges, 1e-3),
            emitted=grown(24_000, edges),
            taken=grown(24_000, edges),
            parked_s=grown(20, edges),
            transfers=grown(1000, edges),
            channel_s=grown(20, edges),
            batching_s=grown(5, edges),
            clock_error_s=np.zeros(edges),
        ),
        sources=Sources.of(
            jobs, incarnation=np.zeros(jobs), arrived=grown(24_000, jobs), taken=grown(24_000, jobs)
        ),
        sinks=Sinks.of(
            sinks,
            incarnation=np.zeros(sinks),
            written=grown(24_000, sinks),
            latencies=grown(24_000, sinks),
            latency_s=grown(2400, sinks),
        ),
        latencies=summed(
            np.repeat(np.arange(sinks), 80),
            bucket.ravel(),
            grown(300, sinks * 80),
            np.ones(sinks, bool),
        ),
    )
    return first, second


def parts(window: Window) -> dict[str, Callable[[], object]]:
    """The measures one by one, for the second table. What is kept per window gets a new one."""
    layout = window.layout
    asked, done = rates.input_rate(window), rates.processing_rate(window)
    congested = capacity.congested_by_rates(asked, done)
    load = queueing.operator_load(window)
    now = etp.Rates(asked, done, window.edges.emitted / window.span_s, layout.parallelism)
    extra = np.ones(len(layout.node_names), dtype=np.int64)
    queues = np.tile(window.queue, (SAMPLES, 1))
    return {
        "rates, back-pressure": lambda: (rates.input_rate(window), rates.processing_rate(window)),
        "juice": lambda: juice.juice(replace(window)),
        "capacity, congestion": lambda: capacity.congested_by_capacity(capacity.capacity(window)),
        "ETP": lambda: etp.etp(layout, done, congested),
        "projected ETP": lambda: etp.projected_etp(layout, now, extra),
        "waiting, fit, model": lambda: queueing.WaitingModel.fit(load).waiting(layout.parallelism),
        "inverse of waiting": lambda: queueing.WaitingModel.fit(load).parallelism_for(0.01),
        "skew": lambda: skew.imbalance(layout, window.queue),
        "slope of queues": lambda: trend.slope(np.arange(SAMPLES, dtype=float), queues),
        "utility, satisfaction": lambda: slo.assess_intents(replace(window)),
        "constraints": lambda: ConstraintTable.of(window).assess(
            load.service_s, queueing.channel_latency(window)
        ),
    }


def best_of(function: Callable[[], object], times: int = 5) -> float:
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        spent.append(time.perf_counter() - started)
    return min(spent)


def everything(first: Snapshot, second: Snapshot) -> None:
    """What a round does: the window, then all measures, then the slope of every queue."""
    window = Series.of([first, second]).window()
    assert window is not None
    assess(replace(window))
    trend.slope(np.arange(SAMPLES, dtype=float), np.tile(window.queue, (SAMPLES, 1)))


def main() -> None:
    random = np.random.default_rng(7)
    print(f"all measures, jobs of {OPERATORS} operators × {INSTANCES} instances, best of 5\n")
    print(f"{'jobs':>7} {'instances':>10} {'ms':>9} {'µs per job':>11} {'growth per tenfold':>19}")
    before = None
    for jobs in (100, 1000, 10_000):
        first, second = snapshots(jobs, random)
        everything(first, second)  # the layout's own tables are made once, not per round
        spent = best_of(partial(everything, first, second))
        growth = f"{spent / before:.1f}×" if before else ""
        rows = jobs * OPERATORS * INSTANCES
        print(
            f"{jobs:>7,} {rows:>10,} {spent * 1e3:>9.1f} {spent / jobs * 1e6:>11.1f} {growth:>19}"
        )
        before = spent
    first, second = snapshots(1000, random)
    window = Series.of([first, second]).window()
    assert window is not None
    print("\none by one, 1,000 jobs\n")
    for name, function in parts(window).items():
        print(f"  {name:<24} {best_of(function) * 1e3:>8.2f} ms")


if __name__ == "__main__":
    main()
