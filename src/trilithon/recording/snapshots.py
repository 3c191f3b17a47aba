"""Owns the two ways between a snapshot and its JSON form."""

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
HINT = "docs/concepts/snapshots.md describes the form."


def snapshot_from_json(data: Any) -> Snapshot:
    """The snapshot that some JSON describes. Raises `InvalidRecording` with the place."""
    try:
        form = RecordedSnapshot.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = path_of(list(first["loc"])) or "the snapshot"
        said = (
            first["msg"]
            .removeprefix("Value error, ")
            .replace(" or instance of RecordedSnapshot", "")
        )
        raise InvalidRecording(f"{place}: {said}.", HINT) from error
    jobs = [_job(job) for job in form.jobs]
    machines = _unique([machine.name for machine in form.machines], "machines")
    instances = {
        job.id: {
            operator.name: _unique([one.index for one in operator.instances], operator.name)
            for operator in measured.operators
        }
        for job, measured in zip(jobs, form.jobs, strict=True)
    }
    layout = Layout.build(jobs, instances, machines)
    return _filled(form, layout, jobs)


def _filled(form: RecordedSnapshot, layout: Layout, jobs: Sequence[Job]) -> Snapshot:
    instances: dict[tuple[str, str, int], Any] = {}
    edges: dict[tuple[str, str, str], Any] = {}
    sources: dict[tuple[str, str], Any] = {}
    sinks: dict[tuple[str, str], RecordedSink] = {}
    for job, part in zip(jobs, form.jobs, strict=True):
        for operator in part.operators:
            instances |= {(job.id, operator.name, one.index): one for one in operator.instances}
        edges |= {(job.id, edge.from_, edge.to): edge for edge in part.edges}
        sources |= {(job.id, source.name): source for source in part.sources}
        sinks |= {(job.id, sink.name): sink for sink in part.sinks}
    machine = np.full(len(layout.instance_row), np.nan)
    for row, key in enumerate(layout.instance_row):
        on = instances[key].on if key in instances else None
        if on is not None and on not in layout.machine_row:
            raise InvalidRecording(
                f"An instance of {key[1]!r} is on the machine {on!r}, which is not listed.",
                "List it under `machines`.",
            )
        if on is not None:
            machine[row] = layout.machine_row[on]
    return Snapshot(
        time_s=form.time_s,
        since_s=form.since_s,
        layout=layout,
        instances=_columns(Instances, instances, layout.instance_row, {"machine": machine}),
        edges=_columns(Edges, edges, layout.edge_row),
        sources=_columns(Sources, sources, layout.source_row),
        sinks=_columns(Sinks, sinks, layout.sink_row),
        latencies=Sketches.of(_histogram(sinks.get(key)) for key in layout.sink_row),
        machines=_columns(Machines, {m.name: m for m in form.machines}, layout.machine_row),
        jobs={job.id: job for job in jobs},
    )


def _columns(
    table: type[T],
    given: Mapping[Any, MeasuredRow],
    rows: Mapping[Any, int],
    known: Mapping[str, Any] | None = None,
) -> T:
    if unknown := [key for key in given if key not in rows]:
        key = unknown[0] if isinstance(unknown[0], str) else " ".join(map(str, unknown[0]))
        raise InvalidRecording(
            f"{key}: measured under {table.__name__.lower()}, but no part of its job.",
            "Measure what the job's edges, or its spec, name.",
        )
    filled = {
        name: [given[key].number(name) if key in given else np.nan for key in rows]
        for name in table.names()
    }
    return table(**{**filled, **(known or {})})


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
    """A job as data: its file where that is known, its shape and its intent where it is not."""
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


def _job(form: RecordedJob) -> Job:
    if form.spec is None:
        return _measured_job(form)
    try:
        job = build_job(form.spec)
    except InvalidJob as error:
        raise InvalidRecording(
            f"The spec of {form.name!r}: {error.problems[0]}", "Mend it."
        ) from error
    if (job.tenant, job.name) != (form.tenant, form.name):
        raise InvalidRecording(f"{form.tenant}/{form.name} carries the spec of {job.id}.", "")
    return job


def _measured_job(form: RecordedJob) -> Job:
    """A job of which only the shape and the intent are known, not what its operators do."""
    names = [node.name for node in form.sources]
    names += [node.name for node in form.operators]
    names += [node.name for node in form.sinks]
    _unique(names, form.name)
    _unique([f"{edge.from_}->{edge.to}" for edge in form.edges], form.name)
    for edge in form.edges:
        for end in (edge.from_, edge.to):
            if end not in names:
                raise InvalidRecording(
                    f"An edge of {form.name!r} names {end!r}, which is no part of the job.",
                    f"The parts are: {', '.join(names)}.",
                )
    job = Job(
        tenant=form.tenant,
        name=form.name,
        sources=tuple(Source(source.name, (), ()) for source in form.sources),
        operators=tuple(
            Operator(operator.name, parallelism=_parallelism(len(operator.instances)))
            for operator in form.operators
        ),
        edges=tuple(Edge(e.from_, e.to, Grouping(e.grouping)) for e in form.edges),
        sinks=tuple(Sink(sink.name, (), sink.weight) for sink in form.sinks),
        intent=intent_of(form.intent or IntentSpec()),
    )
    if problems := validate_shape(job):
        raise InvalidRecording(f"The job {form.name!r}: {problems[0]}", HINT)
    return job


def _parallelism(instances: int) -> Parallelism:
    return Parallelism(max(1, instances), 1, max(Parallelism().max, instances))


def _unique(names: list[Any], where: str) -> list[Any]:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidRecording(f"{where}: {twice[0]!r} is there twice.", "Name each once.")
    return names


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON form. What is missing is left out."""
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
    found = []
    for row in range(first, first + int(layout.parallelism[node])):
        one: dict[str, Any] = {"index": int(layout.instance_index[row])}
        numbers = _numbers(snapshot.instances, row)
        if (machine := numbers.pop("machine", None)) is not None:
            one["on"] = layout.machines[int(machine)]
        found.append({**one, **numbers})
    return found


def _sink(snapshot: Snapshot, job: str, name: str, weights: Mapping[str, float]) -> dict[str, Any]:
    row = snapshot.layout.sink_row[job, name]
    data: dict[str, Any] = {"name": name, **_numbers(snapshot.sinks, row)}
    if weights.get(name, 1.0) != 1.0:
        data["weight"] = weights[name]
    if (histogram := snapshot.latencies.row(row)) is not None:
        data["latency_buckets"] = {str(bucket): count for bucket, count in histogram.items()}
    return data


def _numbers(table: Columns, row: int) -> dict[str, float]:
    found = {name: present(table.column(name)[row]) for name in table.names()}
    return {name: value for name, value in found.items() if value is not None}
