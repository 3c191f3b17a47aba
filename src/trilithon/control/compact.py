"""Stores the compact series: a few numbers per job and operator, small enough to keep for a day.

Numbers have four bytes and are stored by column. The names of the rows are written once, and again
only when jobs are added, deleted or change their operators.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from trilithon.control.encoding import text
from trilithon.control.journal import Journal
from trilithon.measures.assess import Assessment
from trilithon.model.snapshot import present

JOB_COLUMNS: Final = (
    "p95_ms",
    "juice",
    "throughput",
    "utility",
    "lag",
    "p50_ms",
    "p99_ms",
    "max_utility",
    "met",
)
# What versions before 0.3 wrote: their names do not list the columns.
_FIRST_COLUMNS: Final = JOB_COLUMNS[:5]
OPERATOR_COLUMNS: Final = ("parallelism", "capacity", "input_rate")
Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Point:
    """A job at one time. What was not measured is None."""

    time_s: float
    job: str
    numbers: dict[str, float | None]
    operators: dict[str, dict[str, float | None]]


@dataclass(frozen=True, eq=False)
class JobsPoint:
    """All jobs at one time: by column, a number per job; NaN where it was not measured."""

    time_s: float
    jobs: tuple[str, ...]
    columns: Mapping[str, Singles]


def jobs_columns(assessment: Assessment) -> dict[str, Singles]:
    """The numbers of all jobs, by column."""
    layout, intents, values = (
        assessment.window.layout,
        assessment.intents,
        assessment.intents.values,
    )
    lag = np.zeros(len(layout.jobs))
    np.add.at(lag, layout.node_job[layout.source_nodes], assessment.window.lag)
    columns = (
        values["latency.p95"],
        values["juice"],
        values["throughput"],
        intents.utility,
        lag,
        values["latency.p50"],
        values["latency.p99"],
        intents.max_utility,
        assessment.met,
    )
    numbers = (np.asarray(column, dtype="<f4") for column in columns)
    return dict(zip(JOB_COLUMNS, numbers, strict=True))


class CompactSeries:
    """Writes points into a journal, and reads them back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._layout: tuple[str, int] | None = None

    def write(self, assessment: Assessment, time_s: float) -> None:
        layout = assessment.window.layout
        operators = layout.operator_nodes
        names = text(
            {
                "columns": JOB_COLUMNS,
                "jobs": layout.jobs,
                "operators": [
                    [int(layout.node_job[node]), layout.node_names[node]] for node in operators
                ],
            }
        )
        each = [
            layout.parallelism[operators],
            assessment.capacity[operators],
            assessment.input_rate[operators],
        ]
        columns = [
            np.asarray(column, dtype="<f4").tobytes()
            for column in (*jobs_columns(assessment).values(), *each)
        ]
        body = zlib.compress(b"".join(columns), 1)
        known = self._layout is not None and self._layout[0] == names
        rows: int | str = self._layout[1] if known and self._layout is not None else names
        self._layout = (names, self._journal.add_series(time_s, body, rows))

    def read(self, job: str, since_s: float = 0.0) -> Iterator[Point]:
        """The points of a job, by time."""
        for time_s, names, body in self._journal.series(since_s):
            if job in names["jobs"]:
                yield _point(time_s, job, names, body)

    def read_jobs(self, since_s: float = 0.0) -> Iterator[JobsPoint]:
        """The numbers of all jobs, by time."""
        for time_s, names, body in self._journal.series(since_s):
            columns, by_job, _ = _tables(names, body)
            yield JobsPoint(time_s, tuple(names["jobs"]), dict(zip(columns, by_job, strict=True)))


def _tables(names: Mapping[str, Any], body: bytes) -> tuple[tuple[str, ...], Singles, Singles]:
    """The columns of jobs, and the numbers of jobs and of operators, a row for each column."""
    numbers = np.frombuffer(zlib.decompress(body), dtype="<f4")
    columns = tuple(names.get("columns", _FIRST_COLUMNS))
    cut = len(names["jobs"]) * len(columns)
    return (
        columns,
        numbers[:cut].reshape(len(columns), len(names["jobs"])),
        numbers[cut:].reshape(len(OPERATOR_COLUMNS), len(names["operators"])),
    )


def _point(time_s: float, job: str, names: Mapping[str, Any], body: bytes) -> Point:
    columns, by_job, each = _tables(names, body)
    row = names["jobs"].index(job)
    return Point(
        time_s,
        job,
        {name: present(value) for name, value in zip(columns, by_job[:, row], strict=True)},
        {
            name: {c: present(v) for c, v in zip(OPERATOR_COLUMNS, each[:, i], strict=True)}
            for i, (owner, name) in enumerate(names["operators"])
            if owner == row
        },
    )
