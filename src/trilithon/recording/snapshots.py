"""Converts snapshots and jobs to and from JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from trilithon.errors import InvalidJob, InvalidRecording
from trilithon.model.columns import Columns, Edges, Instances, Machines, Sinks, Sources
from trilithon.model.job import Edge, Grouping, Job, NodeKind, Operator, Parallelism, Sink, Source
from trilithon.model.layout import NODE_KINDS, Layout
from trilithon.model.sketches import Sketches, bucket_of
from trilithon.model.snapshot import Snapshot, present
from trilithon.model.validation import validate_shape
from trilithon.recording.documents import (
    SNAPSHOT_FORMAT,
    MeasuredRow,
    RecordedJob,
    RecordedSink,
    RecordedSnapshot,
)
from trilithon.spec.dump import dump_intent, dump_job
from trilithon.spec.fields import IntentSpec
from trilithon.spec.job_builder import build_job, intent_of, path_of

T = TypeVar("T", bound=Columns)
HINT = "docs/concepts/snapshots.md describes the format."


def snapshot_from_json(data: Any) -> Snapshot:
    """Build a snapshot from its JSON. Raises `InvalidRecording` with the path of the problem."""
    try:
        recorded = RecordedSnapshot.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = path_of(list(first["loc"])) or "the snapshot"
        message = first["msg"].removeprefix("Value error, ")
        message = message.replace(" or instance of RecordedSnapshot", "")
        raise InvalidRecording(f"{path}: {message}.", HINT) from error
    jobs = [_job(job) for job in recorded.jobs]
    machines = _unique([machine.name for machine in recorded.machines], "machines")
    instances = {
        job.id: {
            operator.name: _unique([i.index for i in operator.instances], operator.name)
            for operator in recorded_job.operators
        }
        for job, recorded_job in zip(jobs, recorded.jobs, strict=True)
    }
    layout = Layout.build(jobs, instances, machines)
    return _filled(recorded, layout, jobs)


def _filled(recorded: RecordedSnapshot, layout: Layout, jobs: Sequence[Job]) -> Snapshot:
    """The snapshot with the recorded numbers in the rows of the layout."""
    instances: dict[tuple[str, str, int], Any] = {}
    edges: dict[tuple[str, str, str], Any] = {}
    sources: dict[tuple[str, str], Any] = {}
    sinks: dict[tuple[str, str], RecordedSink] = {}
    for job, recorded_job in zip(jobs, recorded.jobs, strict=True):
        for operator in recorded_job.operators:
            instances |= {(job.id, operator.name, i.index): i for i in operator.instances}
        edges |= {(job.id, edge.from_, edge.to): edge for edge in recorded_job.edges}
        sources |= {(job.id, source.name): source for source in recorded_job.sources}
        sinks |= {(job.id, sink.name): sink for sink in recorded_job.sinks}
    machine = np.full(len(layout.instance_row), np.nan)
    for row, key in enumerate(layout.instance_row):
        name = instances[key].on if key in instances else None
        if name is not None and name not in layout.machine_row:
            raise InvalidRecording(
                f"An instance of {key[1]!r} runs on the machine {name!r}, which is not listed.",
                "List it under `machines`.",
            )
        if name is not None:
            machine[row] = layout.machine_row[name]
    return Snapshot(
        time_s=recorded.time_s,
        since_s=recorded.since_s,
        layout=layout,
        instances=_columns(Instances, instances, layout.instance_row, {"machine": machine}),
        edges=_columns(Edges, edges, layout.edge_row),
        sources=_columns(Sources, sources, layout.source_row),
        sinks=_columns(Sinks, sinks, layout.sink_row),
        latencies=Sketches.of(_histogram(sinks.get(key)) for key in layout.sink_row),
        machines=_columns(Machines, {m.name: m for m in recorded.machines}, layout.machine_row),
        jobs={job.id: job for job in jobs},
    )


def _columns(
    table: type[T],
    measured: Mapping[Any, MeasuredRow],
    rows: Mapping[Any, int],
    known: Mapping[str, Any] | None = None,
) -> T:
    """A table with a row for each key of the layout; NaN for rows without measurements."""
    if unknown := [key for key in measured if key not in rows]:
        key = unknown[0] if isinstance(unknown[0], str) else " ".join(map(str, unknown[0]))
        raise InvalidRecording(
            f"{key} has measurements under {table.__name__.lower()}, but its job has no such part.",
            "Record only what the edges of the job, or its spec, name.",
        )
    columns = {
        name: [measured[key].number(name) if key in measured else np.nan for key in rows]
        for name in table.names()
    }
    return table(**{**columns, **(known or {})})


def _histogram(sink: RecordedSink | None) -> dict[int, float] | None:
    if sink is None:
        return None
    if sink.latency_buckets is not None:
        if not all(re.fullmatch(r"-?[0-9]{1,4}", bucket) for bucket in sink.latency_buckets):
            raise InvalidRecording(f"The buckets of {sink.name!r} must be whole numbers.", HINT)
        return {int(bucket): count for bucket, count in sink.latency_buckets.items()}
    if sink.latencies_ms is None:
        return None
    buckets, counts = np.unique(bucket_of(sink.latencies_ms), return_counts=True)
    return {int(k): float(n) for k, n in zip(buckets, counts, strict=True)}


def job_to_json(job: Job) -> dict[str, Any]:
    """A job as data: its job file if it is known, otherwise its graph and its intent."""
    if all(source.schema for source in job.sources):
        return {"tenant": job.tenant, "name": job.name, "spec": dump_job(job)}
    data: dict[str, Any] = {
        "tenant": job.tenant,
        "name": job.name,
        "sources": [{"name": source.name} for source in job.sources],
        "operators": [
            {
                "name": operator.name,
                "instances": [{"index": i} for i in range(operator.parallelism.initial)],
            }
            for operator in job.operators
        ],
        "edges": [
            {"from": e.source, "to": e.target, "grouping": e.grouping.value} for e in job.edges
        ],
        "sinks": [{"name": sink.name, "weight": sink.weight} for sink in job.sinks],
    }
    if job.intent.thresholds or job.intent.constraints or job.intent.priority != 1:
        data["intent"] = dump_intent(job.intent)
    return data


def job_from_json(data: Mapping[str, Any]) -> Job:
    empty: dict[str, Any] = {"sources": [], "operators": [], "edges": [], "sinks": []}
    return _job(RecordedJob.model_validate({**empty, **data}))


def _job(recorded: RecordedJob) -> Job:
    if recorded.spec is None:
        return _job_without_spec(recorded)
    try:
        job = build_job(recorded.spec)
    except InvalidJob as error:
        raise InvalidRecording(
            f"The spec of {recorded.name!r} is invalid: {error.problems[0]}", "Fix the spec."
        ) from error
    if (job.tenant, job.name) != (recorded.tenant, recorded.name):
        raise InvalidRecording(
            f"The spec of {recorded.tenant}/{recorded.name} is that of another job, {job.id}.",
            "Use the same tenant and name in both.",
        )
    return job


def _job_without_spec(recorded: RecordedJob) -> Job:
    """A job of which only the graph and the intent are known, not what its operators compute."""
    names = [node.name for node in recorded.sources]
    names += [node.name for node in recorded.operators]
    names += [node.name for node in recorded.sinks]
    _unique(names, recorded.name)
    _unique([f"{edge.from_}->{edge.to}" for edge in recorded.edges], recorded.name)
    for edge in recorded.edges:
        for end in (edge.from_, edge.to):
            if end not in names:
                raise InvalidRecording(
                    f"An edge of {recorded.name!r} names {end!r}, which the job does not have.",
                    f"The nodes are: {', '.join(names)}.",
                )
    job = Job(
        tenant=recorded.tenant,
        name=recorded.name,
        sources=tuple(Source(source.name, (), ()) for source in recorded.sources),
        operators=tuple(
            Operator(operator.name, parallelism=_parallelism(len(operator.instances)))
            for operator in recorded.operators
        ),
        edges=tuple(Edge(e.from_, e.to, Grouping(e.grouping)) for e in recorded.edges),
        sinks=tuple(Sink(sink.name, (), sink.weight) for sink in recorded.sinks),
        intent=intent_of(recorded.intent or IntentSpec()),
    )
    if problems := validate_shape(job):
        raise InvalidRecording(f"The job {recorded.name!r} is invalid: {problems[0]}", HINT)
    return job


def _parallelism(instances: int) -> Parallelism:
    return Parallelism(max(1, instances), 1, max(Parallelism().max, instances))


def _unique(names: list[Any], where: str) -> list[Any]:
    if duplicates := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidRecording(f"{where}: {duplicates[0]!r} occurs twice.", "List each once.")
    return names


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON of a snapshot. Missing numbers are left out."""
    layout = snapshot.layout
    data: dict[str, Any] = {"format": SNAPSHOT_FORMAT, "time_s": snapshot.time_s}
    if snapshot.since_s is not None:
        data["since_s"] = snapshot.since_s
    data["machines"] = [
        {"name": name, **_numbers(snapshot.machines, row)}
        for name, row in layout.machine_row.items()
    ]
    data["jobs"] = [_job_to_json(snapshot, job) for job in layout.jobs]
    return data


def _job_to_json(snapshot: Snapshot, name: str) -> dict[str, Any]:
    layout = snapshot.layout
    job = snapshot.jobs.get(name)
    tenant, _, short = name.partition("/")
    data: dict[str, Any] = {"tenant": tenant, "name": short}
    if job is not None:
        known = job_to_json(job)
        data |= {key: known[key] for key in ("spec", "intent") if key in known}
    weights = {sink.name: sink.weight for sink in job.sinks} if job else {}
    nodes = layout.job_nodes(name)
    names = {node: layout.node_names[node] for node in nodes}

    def of(kind: NodeKind) -> Iterable[int]:
        return (node for node in nodes if NODE_KINDS[layout.node_kind[node]] is kind)

    data["sources"] = [
        {"name": names[n], **_numbers(snapshot.sources, layout.source_row[name, names[n]])}
        for n in of(NodeKind.SOURCE)
    ]
    data["operators"] = [
        {"name": names[n], "instances": _instances(snapshot, n)} for n in of(NodeKind.OPERATOR)
    ]
    data["edges"] = [
        {
            "from": names[int(layout.edge_source[row])],
            "to": names[int(layout.edge_target[row])],
            "grouping": layout.edge_grouping[row].value,
            **_numbers(snapshot.edges, int(row)),
        }
        for row in np.flatnonzero(layout.node_job[layout.edge_source] == layout.jobs.index(name))
    ]
    data["sinks"] = [_sink(snapshot, name, names[n], weights) for n in of(NodeKind.SINK)]
    return data


def _instances(snapshot: Snapshot, node: int) -> list[dict[str, Any]]:
    layout = snapshot.layout
    first = int(layout.first_instance[node])
    instances = []
    for row in range(first, first + int(layout.parallelism[node])):
        instance: dict[str, Any] = {"index": int(layout.instance_index[row])}
        numbers = _numbers(snapshot.instances, row)
        if (machine := numbers.pop("machine", None)) is not None:
            instance["on"] = layout.machines[int(machine)]
        instances.append({**instance, **numbers})
    return instances


def _sink(snapshot: Snapshot, job: str, name: str, weights: Mapping[str, float]) -> dict[str, Any]:
    row = snapshot.layout.sink_row[job, name]
    data: dict[str, Any] = {"name": name, **_numbers(snapshot.sinks, row)}
    if weights.get(name, 1.0) != 1.0:
        data["weight"] = weights[name]
    if (histogram := snapshot.latencies.row(row)) is not None:
        data["latency_buckets"] = {str(bucket): count for bucket, count in histogram.items()}
    return data


def _numbers(table: Columns, row: int) -> dict[str, float]:
    values = {name: present(table.column(name)[row]) for name in table.names()}
    return {name: value for name, value in values.items() if value is not None}
