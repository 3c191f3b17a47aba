"""Builds the page of an operator: each of its instances beside the others, and how long records
waited beside what was predicted.
"""

from dataclasses import dataclass

import numpy as np

from trilithon.errors import NotFound
from trilithon.model.columns import Floats
from trilithon.model.snapshot import plain
from trilithon.service.dashboard.job_page import OperatorLine, colour, operator_lines
from trilithon.service.dashboard.numbers import MISSING
from trilithon.service.dashboard.reading import Reading
from trilithon.service.dashboard.waiting_plot import SEARCHED_ROWS, WaitingPlot, waiting_plot


@dataclass(frozen=True, slots=True)
class InstanceLine:
    index: int
    machine: str
    per_s: float | None
    share: float | None
    busy: float | None
    queue: float | None
    blocked_s: float | None
    failed: float | None

    @property
    def colour(self) -> str:
        return colour(self.busy, None)


@dataclass(frozen=True, slots=True)
class OperatorPage:
    line: OperatorLine
    instances: tuple[InstanceLine, ...]
    span_s: float | None
    waiting: WaitingPlot | None = None


def operator_page(reading: Reading, job: str, operator: str) -> OperatorPage:
    record, assessment = reading.record(job), reading.assessment
    lines = operator_lines(reading, assessment, record)
    line = next((line for line in lines if line.name == operator), None)
    if line is None:
        names = ", ".join(line.name for line in lines)
        raise NotFound(f"{job} has no operator {operator!r}.", f"It has: {names}.")
    waiting = waiting_plot(reading.daemon.journal.decisions(job, SEARCHED_ROWS), operator)
    if assessment is None or reading.row(job) is None or not reading.measured(job):
        return OperatorPage(line, (), None, waiting)
    window, layout = assessment.window, assessment.window.layout
    rows = [
        (index, row)
        for (owner, name, index), row in layout.instance_row.items()
        if (owner, name) == (job, operator)
    ]
    taken, span_s = window.instances.taken, window.span_s
    total = float(np.sum(taken[[row for _, row in rows]]))
    machines = [*layout.machines]

    def at(column: Floats, row: int, scale: float = 1.0) -> float | None:
        return plain(column[row] * scale)

    instances = []
    for index, row in rows:
        machine = window.instances.machine[row]
        known = reading.whole and not np.isnan(machine)
        instances.append(
            InstanceLine(
                index=index,
                machine=machines[int(machine)] if known else MISSING,
                per_s=at(taken, row, 1 / span_s),
                share=at(taken, row, len(rows) / total) if total else None,
                busy=at(window.instances.busy_s, row, 1 / span_s),
                queue=at(window.queue, row),
                blocked_s=at(window.instances.parked_s, row, 1 / span_s),
                failed=at(window.instances.failed, row),
            )
        )
    return OperatorPage(line, tuple(instances), span_s, waiting)
