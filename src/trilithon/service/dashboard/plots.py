"""Makes lines of plots, and lost utility, from the recent past of all jobs."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from trilithon.control.compact import JobsPoint
from trilithon.model.snapshot import present
from trilithon.service.monitor.history import HOUR_S

# As many points as a plot has columns of pixels.
MOST_POINTS: Final = 900


def lost_utility_hours(points: Sequence[JobsPoint], every_s: float) -> dict[str, float]:
    """By job, the utility that it lost, in utility-hours: the difference to its maximum, added up
    over the time in which it was measured. The journal has a point every `every_s`.
    """
    lost: dict[str, float] = {}
    for point, span_s in _spans(points, 2 * every_s):
        if "max_utility" not in point.columns:
            continue
        missing = point.columns["max_utility"] - point.columns["utility"]
        for job, value in zip(point.jobs, missing, strict=True):
            if not np.isnan(value):
                lost[job] = lost.get(job, 0.0) + float(value) * span_s / HOUR_S
    return lost


def _spans(points: Sequence[JobsPoint], most_s: float) -> Iterator[tuple[JobsPoint, float]]:
    """Each point with the time since the one before, which is bounded: what was not measured is
    not made up.
    """
    for before, point in pairwise(points):
        yield point, min(point.time_s - before.time_s, most_s)


def cluster_plot(points: Sequence[JobsPoint], sees: Callable[[str], bool]) -> dict[str, Any]:
    """Total utility and its maximum over time, of the jobs that the caller sees."""
    times, utility, maximum = [], [], []
    for point in thinned(points):
        if "max_utility" not in point.columns:
            continue
        mine = np.array([sees(job) for job in point.jobs], dtype=bool)
        known = mine & ~np.isnan(point.columns["utility"])
        times.append(point.time_s)
        utility.append(present(point.columns["utility"][known].sum()) if known.any() else None)
        maximum.append(present(float(np.nansum(point.columns["max_utility"][known]))))
    return {"times": times, "lines": {"utility": utility, "maximum": maximum}}


JOB_LINES: Final = ("p50_ms", "p95_ms", "p99_ms", "juice", "throughput", "lag", "utility")


def job_plot(points: Sequence[JobsPoint], job: str) -> dict[str, Any]:
    """The lines of a job over time; None where a number is missing."""
    times: list[float] = []
    lines: dict[str, list[float | None]] = {name: [] for name in JOB_LINES}
    for point in thinned([point for point in points if job in point.jobs]):
        row = point.jobs.index(job)
        times.append(point.time_s)
        for name, line in lines.items():
            column = point.columns.get(name)
            line.append(None if column is None else present(column[row]))
    return {"times": times, "lines": lines}


def thinned(points: Sequence[JobsPoint]) -> Sequence[JobsPoint]:
    """Every n-th point, the last one included."""
    every = max(1, -(-len(points) // MOST_POINTS))
    return points[(len(points) - 1) % every :: every] if points else points
