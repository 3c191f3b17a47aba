"""Draws the figures of running jobs as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from trilithon.cli.output import MISSING, Listing, number, table
from trilithon.spec.durations import format_duration

JOB_COLUMNS = {
    "in/s": "input_per_s",
    "out/s": "output_per_s",
    "lag": "lag",
    "p50 ms": "p50_ms",
    "p95 ms": "p95_ms",
    "juice": "juice",
    "utility": "utility",
    "of": "max_utility",
}
# What a narrow terminal can do without, the least needed first.
OPTIONAL = ("of", "p50 ms", "out/s", "utility", "juice", "lag")
# Short enough for a line of any terminal.
JUICE = "juice: processed / arrived input; above 1 while a backlog is worked off"
OPERATOR_KEYS = (
    "operator",
    "parallelism",
    "input_per_s",
    "processed_per_s",
    "capacity",
    "queue",
)
OPERATOR_COLUMNS = ("operator", "p", "in/s", "done/s", "capacity", "queue", "held back", "")
BRIEF_COLUMNS = {
    "in/s": "input_per_s",
    "p95 ms": "p95_ms",
    "utility": "utility",
    "of": "max_utility",
}


def draw(jobs: Sequence[Mapping[str, Any]]) -> RenderableType:
    """One table of jobs; per job one of operators, and a line for each constraint."""
    rows = [
        (job["job"], _state(job), intent_text(job), *(job.get(key) for key in JOB_COLUMNS.values()))
        for job in jobs
    ]
    columns = ("job", "state", "intent", *JOB_COLUMNS)
    parts: list[RenderableType] = [Listing(columns, rows, map(problem_notes, jobs), OPTIONAL)]
    if any(job.get("juice") is not None for job in jobs):
        parts.append(Text(JUICE, "dim"))
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
    columns = ("job", *BRIEF_COLUMNS, "", "slots", "more than one of")
    rows = [
        (
            job["job"],
            *(job.get(key) for key in BRIEF_COLUMNS.values()),
            intent_text(job) if job["health"] == "running" else _state(job),
            slots(job),
            several(job),
        )
        for job in jobs
    ]
    return Listing(columns, rows, map(problem_notes, jobs), ("of", "utility"))


def line(job: Mapping[str, Any]) -> str:
    """A job in one line, for a log or a pipe."""
    figures = {"in": "input_per_s", "out": "output_per_s", "lag": "lag", "p95": "p95_ms"}
    units = {"in": "/s", "out": "/s", "p95": " ms"}
    parts = [
        f"{name} {MISSING if job.get(key) is None else number(job[key]) + units.get(name, '')}"
        for name, key in figures.items()
    ]
    state = (
        str(intent_text(job)) if job["health"] == "running" else f"{job['health']}: {job['reason']}"
    )
    return "  ".join((job["job"], *parts, *([state] if state else [])))


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
    path = f"  {', '.join(constraint['sequence'])}: mean {measured}, "
    limit = f"at most {constraint['at_most_ms']:g} ms over {format_duration(constraint['over_s'])} "
    return Text.assemble(path, limit, _met(constraint["met"]))


def problem_notes(job: Mapping[str, Any]) -> tuple[Text, ...]:
    """The problem of a job, for a line of its own."""
    return (Text(job["reason"], "red"),) if job["reason"] else ()


def state_text(state: str) -> Text:
    """A job's state; red where somebody has to look."""
    return Text(state, "red" if state in {"degraded", "failed", "not started"} else "")


def _operator_row(operator: Mapping[str, Any]) -> tuple[Any, ...]:
    held = operator["held_back"]
    return (
        *(operator[key] for key in OPERATOR_KEYS),
        None if held is None else f"{held:.0%}",
        Text("congested", "red") if operator["congested"] else "",
    )


def _state(job: Mapping[str, Any]) -> Text:
    return state_text(job["health"])


def intent_text(job: Mapping[str, Any]) -> Text:
    """Whether the job meets its whole intent. A job that has all its utility meets its thresholds:
    then it is a constraint that it misses.
    """
    missed = any(constraint["met"] is False for constraint in job["constraints"])
    if missed and (job.get("utility") is None or job["utility"] >= job["max_utility"]):
        return Text("constraint missed", "red")
    return _met(job.get("met"))


def _met(met: bool | None) -> Text:
    return Text("") if met is None else Text("met", "green") if met else Text("missed", "red")
