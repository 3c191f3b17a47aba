"""Writes a job back as the plain data of a job file, from which `build_job` builds the same job."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from trilithon.model.intent import Constraint, Intent, Threshold
from trilithon.model.job import Edge, Field, Grouping, Job, Operator, Sink, Source, Table
from trilithon.model.utility import Sense
from trilithon.spec.durations import format_duration


def dump_job(job: Job) -> dict[str, Any]:
    """The fields of the job file, in the file's order; empty and unset ones are left out."""
    return _without_empty(
        {
            "tenant": job.tenant,
            "name": job.name,
            "sources": [_source(source) for source in job.sources],
            "operators": [_operator(job, operator) for operator in job.operators],
            "sinks": [_sink(job, sink) for sink in job.sinks],
            "tables": [_table(table) for table in job.tables],
            "intent": dump_intent(job.intent),
            "bounds": _without_empty(
                {
                    "max_instances": job.bounds.max_instances,
                    "preserve_order": job.bounds.preserve_order or None,
                    "fixed": list(job.bounds.fixed),
                }
            ),
            "trigger": {"realTime": format_duration(job.batch_s)},
            "dead_letter_topic": job.dead_letter_topic,
        },
        keep={"sources", "operators", "sinks"},
    )


def dump_intent(intent: Intent) -> dict[str, Any]:
    return _without_empty(
        {
            "priority": intent.priority,
            "slo": [_threshold(threshold) for threshold in intent.thresholds],
            "constraints": [_constraint(constraint) for constraint in intent.constraints],
        }
    )


def _without_empty(data: dict[str, Any], keep: set[str] | None = None) -> dict[str, Any]:
    return {
        name: value
        for name, value in data.items()
        if name in (keep or ()) or (value is not None and value not in ([], {}, ()))
    }


def _schema(fields: tuple[Field, ...]) -> dict[str, str]:
    return {field.name: field.type for field in fields}


def _source(source: Source) -> dict[str, Any]:
    return _without_empty(
        {
            "name": source.name,
            "options": dict(source.options),
            "schema": _schema(source.schema),
            "partitions": source.partitions,
            "metadata": dict(source.metadata),
        }
    )


def _inputs(job: Job, name: str) -> list[Any]:
    return [_input(edge) for edge in job.parents[name]]


def _input(edge: Edge) -> Any:
    if edge.grouping is Grouping.SHUFFLE and not edge.key:
        return edge.source
    return _without_empty(
        {"from": edge.source, "grouping": edge.grouping.value, "key": list(edge.key)}
    )


def _operator(job: Job, operator: Operator) -> dict[str, Any]:
    work = operator.work
    profile = None
    if operator.profile is not None:
        profile = _without_empty(asdict(operator.profile))
        profile.pop("learned")
    return _without_empty(
        {
            "name": operator.name,
            "inputs": _inputs(job, operator.name),
            "watermark": work.watermark
            and {
                "eventTime": work.watermark.event_time,
                "delayThreshold": format_duration(work.watermark.delay_s),
            },
            "join": work.join
            and {"table": work.join.table, "on": list(work.join.on), "how": work.join.how},
            "where": work.where,
            "explode": dict(work.explode),
            "select": list(work.select),
            "deduplicate": list(work.deduplicate),
            "group_by": list(work.group_by),
            "window": work.window
            and _without_empty(
                {
                    "timeColumn": work.window.time_column,
                    "windowDuration": format_duration(work.window.duration_s),
                    "slideDuration": None
                    if work.window.slide_s is None
                    else format_duration(work.window.slide_s),
                }
            ),
            "aggregate": dict(work.aggregate),
            "parallelism": _without_empty(asdict(operator.parallelism)),
            "profile": profile,
        },
        keep=set() if profile is None else {"profile"},
    )


def _sink(job: Job, sink: Sink) -> dict[str, Any]:
    return _without_empty(
        {
            "name": sink.name,
            "inputs": _inputs(job, sink.name),
            "options": dict(sink.options),
            "key": sink.key,
            "weight": None if sink.weight == 1 else sink.weight,
        }
    )


def _table(table: Table) -> dict[str, Any]:
    data = _without_empty(
        {
            "name": table.name,
            "schema": _schema(table.schema),
            "path": table.path,
            "format": table.format,
        }
    )
    if table.rows is not None:
        data["rows"] = [list(row) for row in table.rows]
    return data


def _threshold(threshold: Threshold) -> dict[str, Any]:
    data: dict[str, Any] = {"metric": threshold.metric.value}
    if threshold.statistic is not None:
        data["statistic"] = threshold.statistic
    if threshold.sense is Sense.AT_MOST:
        data["at_most"] = f"{threshold.value:.12g} ms"
    else:
        data["at_least"] = threshold.value
    data["utility"] = {"function": threshold.utility.function, **dict(_params(threshold))}
    return data


def _params(threshold: Threshold) -> Iterator[tuple[str, Any]]:
    for name, value in threshold.utility.params.items():
        yield name, [list(point) for point in value] if isinstance(value, tuple) else value


def _constraint(constraint: Constraint) -> dict[str, Any]:
    return {
        "sequence": [str(part) for part in constraint.sequence],
        "at_most": f"{constraint.mean_latency_ms:.12g} ms",
        "over": format_duration(constraint.over_s),
    }
