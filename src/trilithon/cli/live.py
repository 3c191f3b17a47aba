"""Draws the figures of running jobs as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from trilithon.cli.output import table

JOB_COLUMNS = ("job", "in/s", "out/s", "lag", "p50 ms", "p95 ms", "juice", "utility", "of", "")
JOB_KEYS = (
    "input_per_s",
    "output_per_s",
    "lag",
    "p50_ms",
    "p95_ms",
    "juice",
    "utility",
    "max_utility",
)
OPERATOR_KEYS = (
    "operator",
    "parallelism",
    "input_per_s",
    "processed_per_s",
    "capacity",
    "queue",
)
OPERATOR_COLUMNS = ("operator", "p", "in/s", "done/s", "capacity", "queue", "held back", "")


def draw(jobs: list[dict[str, Any]]) -> RenderableType:
    """One table of jobs; per job one of operators, and a line for each constraint."""
    rows = [(job["job"], *(job.get(key) for key in JOB_KEYS), _verdict(job)) for job in jobs]
    parts: list[RenderableType] = [table(None, JOB_COLUMNS, rows)]
    for job in jobs:
        if job["operators"]:
            parts += [
                Text(),
                table(job["job"], OPERATOR_COLUMNS, map(_operator_row, job["operators"])),
            ]
        parts += map(constraint_line, job["constraints"])
    return Group(*parts)


def draw_brief(jobs: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One line per job: for many jobs on a small screen."""
    columns = ("job", "in/s", "p95 ms", "utility", "of", "", "slots", "more than one of")
    keys = ("input_per_s", "p95_ms", "utility", "max_utility")
    rows = [
        (job["job"], *(job.get(key) for key in keys), _verdict(job), slots(job), several(job))
        for job in jobs
    ]
    return table(None, columns, rows)


def slots(job: Mapping[str, Any]) -> int:
    """The instances of all its operators."""
    return sum(operator["parallelism"] for operator in job["operators"])


def several(job: Mapping[str, Any]) -> str:
    """The operators that have more than one instance, as `name×instances`."""
    return " ".join(
        f"{operator['operator']}×{operator['parallelism']}"
        for operator in job["operators"]
        if operator["parallelism"] > 1
    )


def constraint_line(constraint: Mapping[str, Any]) -> Text:
    """The mean latency of a path beside its limit, and whether the limit was met."""
    mean = constraint["mean_ms"]
    measured = "not measured" if mean is None else f"{mean:.1f} ms"
    line = f"  {', '.join(constraint['sequence'])}: mean {measured}, "
    return Text.assemble(line, f"at most {constraint['at_most_ms']:g} ms ", _met(constraint["met"]))


def _operator_row(operator: Mapping[str, Any]) -> tuple[Any, ...]:
    held = operator["held_back"]
    return (
        *(operator[key] for key in OPERATOR_KEYS),
        None if held is None else f"{held:.0%}",
        Text("congested", "red") if operator["congested"] else "",
    )


def _verdict(job: Mapping[str, Any]) -> Text:
    if job["health"] != "running":
        return Text(f"{job['health']}: {job['reason']}"[:60], "red")
    if job.get("met") is not False and any(c["met"] is False for c in job["constraints"]):
        return Text("constraint missed", "red")
    return _met(job.get("met"))


def _met(met: bool | None) -> Text:
    return Text("") if met is None else Text("met", "green") if met else Text("missed", "red")
