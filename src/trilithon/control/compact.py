"""Stores the compact series: a few numbers per job and operator, small enough to keep for a day.

Numbers have four bytes and are stored by column. The names of the rows are written once, and again
only when jobs are added, deleted or change their operators.
"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trilithon.control.encoding import text
from trilithon.control.journal import Journal
from trilithon.measures.assess import Assessment
from trilithon.model.snapshot import present

JOB_COLUMNS: Final = ("p95_ms", "juice", "throughput", "utility", "lag")
OPERATOR_COLUMNS: Final = ("parallelism", "capacity", "input_rate")


@dataclass(frozen=True, slots=True)
class Point:
    """A job at one time. What was not measured is None."""

    time_s: float
    job: str
    numbers: dict[str, float | None]
    operators: dict[str, dict[str, float | None]]


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
                "jobs": layout.jobs,
                "operators": [
                    [int(layout.node_job[node]), layout.node_names[node]] for node in operators
                ],
            }
        )
        lag = np.zeros(len(layout.jobs))
        np.add.at(lag, layout.node_job[layout.source_nodes], assessment.window.lag)
        values = assessment.intents.values
        jobs = [
            values["latency.p95"],
            values["juice"],
            values["throughput"],
            assessment.intents.utility,
            lag,
        ]
        each = [
            layout.parallelism[operators],
            assessment.capacity[operators],
            assessment.input_rate[operators],
        ]
        columns = [np.asarray(column, dtype="<f4").tobytes() for column in (*jobs, *each)]
        body = zlib.compress(b"".join(columns), 1)
        known = self._layout is not None and self._layout[0] == names
        rows: int | str = self._layout[1] if known and self._layout is not None else names
        self._layout = (names, self._journal.add_series(time_s, body, rows))

    def read(self, job: str, since_s: float = 0.0) -> Iterator[Point]:
        """The points of a job, by time."""
        for time_s, names, body in self._journal.series(since_s):
            if job in names["jobs"]:
                yield _point(time_s, job, names, zlib.decompress(body))


def _point(time_s: float, job: str, names: Mapping[str, Any], body: bytes) -> Point:
    numbers = np.frombuffer(body, dtype="<f4")
    jobs, operators = len(names["jobs"]), names["operators"]
    cut = jobs * len(JOB_COLUMNS)
    row = names["jobs"].index(job)
    by_job = numbers[:cut].reshape(len(JOB_COLUMNS), jobs)[:, row]
    each = numbers[cut:].reshape(len(OPERATOR_COLUMNS), len(operators))
    return Point(
        time_s,
        job,
        {name: present(value) for name, value in zip(JOB_COLUMNS, by_job, strict=True)},
        {
            name: {c: present(v) for c, v in zip(OPERATOR_COLUMNS, each[:, i], strict=True)}
            for i, (owner, name) in enumerate(operators)
            if owner == row
        },
    )
