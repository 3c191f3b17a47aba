"""Owns the live view of running jobs: their figures as a table that stays in place."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from trilithon.cli.output import table

JOB_COLUMNS = ("job", "in/s", "out/s", "lag", "p50 ms", "p95 ms", "juice", "utility", "of", "")
OPERATOR_COLUMNS = ("operator", "p", "in/s", "done/s", "capacity", "queue", "held back", "")


def draw(jobs: list[dict[str, Any]]) -> RenderableType:
    """One table of jobs, one of operators per job."""
    rows = [
        (
            job["job"],
            *(job.get(key) for key in ("input_per_s", "output_per_s", "lag", "p50_ms", "p95_ms",
                                       "juice", "utility", "max_utility")),
            _verdict(job),
        )
        for job in jobs
    ]  # fmt: skip
    parts: list[RenderableType] = [table(None, JOB_COLUMNS, rows)]
    for job in jobs:
        if job["operators"]:
            parts += [
                Text(),
                table(job["job"], OPERATOR_COLUMNS, map(_operator_row, job["operators"])),
            ]
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
    return sum(one["parallelism"] for one in job["operators"])


def several(job: Mapping[str, Any]) -> str:
    """The operators that have more than one instance, as `name×instances`."""
    many = [one for one in job["operators"] if one["parallelism"] > 1]
    return " ".join(f"{one['operator']}×{one['parallelism']}" for one in many)


def _operator_row(operator: Mapping[str, Any]) -> tuple[Any, ...]:
    held = operator["held_back"]
    return (
        *(operator[key] for key in ("operator", "parallelism", "input_per_s", "processed_per_s",
                                    "capacity", "queue")),
        None if held is None else f"{held:.0%}",
        Text("congested", "red") if operator["congested"] else "",
    )  # fmt: skip


def _verdict(job: Mapping[str, Any]) -> Text:
    if job["health"] != "running":
        return Text(f"{job['health']}: {job['reason']}"[:60], "red")
    met = job.get("met")
    return Text("") if met is None else Text("met", "green") if met else Text("missed", "red")
