"""Answers how many instances a promise on a path would need, from a recording."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console

from trilithon.cli.output import table
from trilithon.errors import InvalidIntent, InvalidRecording
from trilithon.model.capability import Capabilities
from trilithon.model.job import Job
from trilithon.model.paths import JobPath, path_between
from trilithon.model.series import Series
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.latency_policy import adapts_batching
from trilithon.policies.latency.promises import promise_table
from trilithon.policies.latency.sequence import GlobalSummary
from trilithon.policies.scene import JobStatus
from trilithon.spec.durations import parse_milliseconds

# The promises that the table has besides the one that was asked for.
USUAL_MS: Final = (10.0, 20.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True)
class Promise:
    """`parse..score 20 ms`: a path, not yet looked up in a job, and a limit."""

    path: str
    limit_ms: float

    @classmethod
    def of(cls, text: str) -> "Promise":
        path, _, duration = text.strip().partition(" ")
        try:
            limit_ms = parse_milliseconds(duration)
        except ValueError as error:
            raise InvalidIntent(
                f"{text!r} is not a constraint.", 'Write FROM..TO and a time: "parse..score 20 ms".'
            ) from error
        if limit_ms <= 0:
            raise InvalidIntent(f"{text!r} promises no time.", "Promise more than 0 ms.")
        return cls(path, limit_ms)


def promises(
    series: Series,
    statuses: Mapping[str, JobStatus],
    promise: Promise,
    capabilities: Capabilities,
) -> tuple[list[dict[str, Any]], list[InvalidRecording]]:
    """A table of promises for each job that has the path, as data; and why a job has none. Raises
    the first of these if no job has a table.
    """
    tables, refusals = [], []
    for name, path in _paths(series.last.jobs, promise.path).items():
        try:
            tables.append(_table(series, statuses[name], path, promise, capabilities))
        except InvalidRecording as error:
            refusals.append(error)
    if not tables:
        raise refusals[0]
    return tables, refusals


def _table(
    series: Series,
    status: JobStatus,
    path: JobPath,
    promise: Promise,
    capabilities: Capabilities,
) -> dict[str, Any]:
    name = status.job
    window = _steady(series, name).window()
    if window is None:
        raise InvalidRecording(
            f"The recording shows {name} only once since its instances changed.",
            "Record for longer, or add `since_s` to a single snapshot.",
        )
    summary = GlobalSummary.of(window)
    parameters = LatencyParameters()
    measured = promise_table(
        summary,
        status,
        path,
        (*USUAL_MS, promise.limit_ms),
        parameters,
        adaptive=adapts_batching(capabilities, parameters),
    )
    if measured is None:
        raise InvalidRecording(
            f"A part of {promise.path} in {name} is not measured.",
            _measured_part(series.last.jobs[name], path),
        )
    return {"job": name, "window_s": window.span_s, **measured.to_json()}


def _measured_part(job: Job, path: JobPath) -> str:
    """What to ask for instead. How long a record takes to a sink is not measured."""
    sinks, ends = {sink.name for sink in job.sinks}, [str(part) for part in path]
    operators = [part for part in path if part in job.parents and part not in sinks]
    if ends[-1] in sinks or ends[-1].rpartition("->")[2] in sinks:
        return f"Nothing is measured up to a sink: ask for {ends[0]}..{operators[-1]}."
    return "Check that records flow and that clocks agree."


def _paths(jobs: Mapping[str, Job], text: str) -> dict[str, JobPath]:
    """The path in each job that has it. If none has, the refusal of the first."""
    paths: dict[str, JobPath] = {}
    refusals: list[InvalidIntent] = []
    for name, job in sorted(jobs.items()):
        try:
            paths[name] = path_between(job, text)
        except InvalidIntent as error:
            refusals.append(error)
    if paths:
        return paths
    if refusals:
        raise refusals[0]
    raise InvalidRecording("The recording has no jobs with their files.", "Record with `serve`.")


def _steady(series: Series, job: str) -> Series:
    """The snapshots at the end of a series in which the job has the same instances."""
    counts = series.last.job(job).parallelism
    snapshots = series.snapshots
    first = len(snapshots)
    while first > 0 and job in snapshots[first - 1].layout.jobs:
        if snapshots[first - 1].job(job).parallelism != counts:
            break
        first -= 1
    return Series(snapshots[first:])


def draw_promises(data: list[dict[str, Any]], console: Console) -> None:
    for each in data:
        operators = [operator["operator"] for operator in each["operators"]]
        now = ", ".join(f"{o['operator']} {o['instances']}" for o in each["operators"])
        console.print(
            f"{each['job']}: {', '.join(each['sequence'])}, "
            f"mean {each['mean_ms']:.1f} ms over {each['window_s']:g} s with {now}",
            soft_wrap=True,
        )
        columns = (
            "promise ms",
            *operators,
            "in all",
            "busiest %",
            "may wait ms",
            "would wait ms",
            "mean ms",
            "",
        )
        rows = [
            (
                row["promise_ms"],
                *((row["instances"] or {}).get(name) for name in operators),
                row["total"],
                None if (share := row["busiest_utilisation"]) is None else round(100 * share),
                row["waiting_limit_ms"],
                row["predicted_waiting_ms"],
                row["predicted_mean_ms"],
                row["outcome"],
            )
            for row in each["promises"]
        ]
        console.print(table(None, columns, rows))
        console.print(
            f"Without any waiting it takes {each['without_waiting_ms']:.1f} ms: no number of "
            "instances keeps a shorter promise.",
            soft_wrap=True,
        )
