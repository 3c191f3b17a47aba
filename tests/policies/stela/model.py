"""Scenes for the policy `stela` whose rates are given by hand, and small simulated clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.strategies import COLUMNS
from trilithon.engines.simulated.engine import SimulatedEngine
from trilithon.model.allocation import Allocation
from trilithon.model.capability import Ability, Capabilities, How
from trilithon.model.columns import Edges, Instances, Machines, Sinks, Sources
from trilithon.model.intent import Intent
from trilithon.model.job import Bounds, Edge, Job, Operator, Parallelism, Sink, Source
from trilithon.model.layout import Layout
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Cluster, JobStatus, Scene, Span
from trilithon.scenarios.run import engine_for
from trilithon.scenarios.scenario import Scenario, load_scenario

SPAN_S = 100.0


def made_job(
    name: str,
    *edges: str,
    counts: Mapping[str, int] | None = None,
    most: int = 8,
    priority: float = 1.0,
    max_instances: int | None = None,
    fixed: tuple[str, ...] = (),
    weights: Mapping[str, float] | None = None,
) -> Job:
    """A job from edges like `a>b`; every operator has one instance unless `counts` says more, and
    every sink the weight 1 unless `weights` says another.
    """
    pairs = [tuple(edge.split(">")) for edge in edges]
    starts, targets = {a for a, _ in pairs}, {b for _, b in pairs}
    names = list(dict.fromkeys(node for pair in pairs for node in pair))
    given = counts or {}
    return Job(
        tenant="t",
        name=name,
        sources=tuple(Source(n, COLUMNS, ()) for n in names if n not in targets),
        operators=tuple(
            Operator(n, parallelism=Parallelism(given.get(n, 1), 1, max(most, given.get(n, 1))))
            for n in names
            if n in targets and n in starts
        ),
        edges=tuple(Edge(a, b) for a, b in pairs),
        sinks=tuple(
            Sink(n, (), weight=(weights or {}).get(n, 1.0)) for n in names if n not in starts
        ),
        intent=Intent((), priority),
        bounds=Bounds(fixed=fixed, max_instances=max_instances),
    )


def made_scene(
    jobs: Mapping[Job, Mapping[str, float]],
    machines: int = 4,
    new: int = 1,
    *,
    requests: tuple[ScalingRequest, ...] = (),
    indices: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    back_pressure: Mapping[str, float] | None = None,
    runs_on: Sequence[int] | None = None,
    at_s: float = SPAN_S,
    names: tuple[str, ...] = (),
    cores: float | None = None,
    **cluster: Any,
) -> Scene:
    """A scene in which instances are spread over the first machines and `new` are empty.

    The numbers of a job are what its sources offer and what one instance of an operator could take;
    queues are without a bound, so that a congested operator loses the rest. `indices` are the
    numbers of instances, where they have gaps; `back_pressure` is the share of time for which
    senders are held back over edges like `a>b`; `runs_on` are the numbers of the machines that have
    instances, where those are not the first; `at_s` is when the measured time ends. With `cores`
    each machine has so many, and all work is CPU.
    """
    names = names or tuple(f"m{i}" for i in range(machines + new))
    layout = Layout.build(list(jobs), indices, machines=names)
    nodes = len(layout.node_names)
    could = np.full(nodes, np.inf)
    for job, rates in jobs.items():
        for name, rate in rates.items():
            row = layout.node_row[job.id, name]
            could[row] = rate * max(1, layout.parallelism[row])
    names_of = layout.node_names
    parked = np.array(
        [
            (back_pressure or {}).get(f"{names_of[a]}>{names_of[b]}", 0.0)
            for a, b in zip(layout.edge_source, layout.edge_target, strict=True)
        ]
    )
    free = could
    could = could * (1 - np.bincount(layout.edge_source, parked, nodes))
    wanted = np.zeros(nodes)
    wanted[layout.source_nodes] = could[layout.source_nodes]
    taken = np.zeros(nodes)
    sent = np.zeros(len(layout.edge_source))
    for edges in layout.edges_by_depth:
        taken = np.minimum(wanted, could)
        sent[edges] = taken[layout.edge_source[edges]]
        wanted += np.bincount(layout.edge_target[edges], sent[edges], nodes)
    taken = np.minimum(wanted, could)
    per_instance = taken / np.maximum(1, layout.parallelism)
    busy = np.where(np.isinf(free), 0.001, taken / np.where(np.isinf(free), 1, free))
    snapshot = replace(
        Snapshot.empty(at_s, layout, {job.id: job for job in jobs}),
        since_s=at_s - SPAN_S,
        sources=Sources.of(
            len(layout.source_nodes),
            arrived=taken[layout.source_nodes] * SPAN_S,
            taken=taken[layout.source_nodes] * SPAN_S,
        ),
        instances=Instances.of(
            len(layout.instance_node),
            taken=per_instance[layout.instance_node] * SPAN_S,
            busy_s=busy[layout.instance_node] * SPAN_S,
            cpu_s=busy[layout.instance_node] * SPAN_S * (cores is not None),
            machine=np.resize(runs_on or range(machines), len(layout.instance_node)),
        ),
        edges=Edges.of(
            len(sent),
            emitted=sent * SPAN_S,
            taken=np.minimum(sent, taken[layout.edge_target]) * SPAN_S,
            senders=np.ones(len(sent)),
            parked_s=parked * SPAN_S,
        ),
        sinks=Sinks.of(len(layout.sink_nodes), written=taken[layout.sink_nodes] * SPAN_S),
        machines=Machines.of(len(names), cores=[np.nan if cores is None else cores] * len(names)),
    )
    statuses = {
        job.id: JobStatus(
            job.id,
            job.tenant,
            Allocation(job.id, 1, {o.name: o.parallelism.initial for o in job.operators}),
            accepted_s=0.0,
            fixed=frozenset(job.bounds.fixed),
            spans={o.name: Span(1, o.parallelism.max) for o in job.operators},
        )
        for job in jobs
    }
    abilities = Capabilities(dict.fromkeys(Ability, How.LIVE))
    return Scene(
        1,
        Series.of([snapshot]),
        statuses,
        Cluster(cluster.pop("capabilities", abilities), **cluster),
        requests=requests,
    )


def out(machines: int = 1, job: str | None = None) -> ScalingRequest:
    return ScalingRequest("scale-out-1", ScalingKind.OUT, machines, job, 0.0)


def back(machines: int = 1) -> ScalingRequest:
    return ScalingRequest("scale-in-1", ScalingKind.IN, machines, None, 0.0)


def named(*machines: str) -> ScalingRequest:
    return replace(back(len(machines)), machine_names=machines)


def small_scenario(folder: Path, *files: str, machines: int = 4, engine: str = "storm") -> Scenario:
    """Shipped jobs with five times their usual load, on machines with a core each."""
    path = folder / "small.yaml"
    jobs = ", ".join(f"{{file: {file}, load: {{times: 5}}}}" for file in files)
    path.write_text(
        f"name: small\npaper: stela\nengine: {engine}\nlength: 20 minutes\nstep: 5 s\n"
        f"machines: {{count: {machines}, kind: type2}}\njobs: [{jobs}]\n",
        encoding="utf-8",
    )
    return load_scenario(path)


def small_engine(folder: Path, *files: str, machines: int = 4) -> SimulatedEngine:
    return engine_for(small_scenario(folder, *files, machines=machines))
