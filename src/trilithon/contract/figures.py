"""Makes the live figures of jobs from measures, as plain data. A missing figure is None."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from trilithon.contract.engine import Accepted
from trilithon.measures.assess import Assessment
from trilithon.model.columns import Ints
from trilithon.model.job import NodeKind
from trilithon.model.layout import NODE_KINDS
from trilithon.model.snapshot import plain

# How long figures are marked after the clock was set.
MARKED_S: Final = 60.0


def summary(
    assessment: Assessment | None,
    accepted: Mapping[str, Accepted],
    clock_set_s: float | None = None,
) -> list[dict[str, Any]]:
    """The figures of each job, with those of its constraints and operators. `marks` says what makes
    them uncertain; the clock may have been set at `clock_set_s`.
    """
    return [_job(assessment, name, job, clock_set_s) for name, job in accepted.items()]


def constraint_figures(assessment: Assessment, job: int) -> list[dict[str, Any]]:
    """The figures of a job's constraints, by its row: mean, limit with its time, and whether it
    was met.
    """
    measured = assessment.constraints
    figures = []
    for row in measured.of_job(job):
        constraint, met = measured.constraints[row], plain(measured.met[row])
        figures.append(
            {
                "sequence": [str(part) for part in constraint.sequence],
                "mean_ms": plain(measured.mean_ms[row]),
                "at_most_ms": constraint.mean_latency_ms,
                "over_s": constraint.over_s,
                "met": None if met is None else bool(met),
            }
        )
    return figures


def _job(
    assessment: Assessment | None, name: str, accepted: Accepted, clock_set_s: float | None
) -> dict[str, Any]:
    job: dict[str, Any] = {"job": name, "health": accepted.health, "reason": accepted.reason}
    if assessment is None or name not in assessment.window.layout.job_row:
        return {**job, "marks": [], "constraints": [], "operators": []}
    layout, intents = assessment.window.layout, assessment.intents
    row = layout.job_row[name]
    values = {key: plain(value[row]) for key, value in intents.values.items()}
    nodes = layout.job_nodes(name)
    sources = _rows_of(layout.source_nodes, nodes)
    met = plain(assessment.met[row])
    return {
        **job,
        "input_per_s": plain(
            np.sum(assessment.window.sources.arrived[sources]) / assessment.window.span_s
        ),
        "output_per_s": values["throughput"],
        "lag": plain(np.sum(assessment.window.lag[sources])),
        "p50_ms": values["latency.p50"],
        "p95_ms": values["latency.p95"],
        "juice": values["juice"],
        "utility": plain(intents.utility[row]),
        "max_utility": plain(intents.max_utility[row]),
        "met": None if met is None else bool(met),
        "marks": _marks(assessment, nodes, clock_set_s),
        "constraints": constraint_figures(assessment, row),
        "operators": [
            _operator(assessment, node)
            for node in nodes
            if NODE_KINDS[layout.node_kind[node]] is NodeKind.OPERATOR
        ],
    }


def _rows_of(column: Ints, nodes: Sequence[int]) -> Ints:
    """The rows of a job in a column of nodes: nodes of a job stand together."""
    return np.flatnonzero((column >= nodes[0]) & (column <= nodes[-1]))


def _marks(assessment: Assessment, nodes: Sequence[int], clock_set_s: float | None) -> list[str]:
    """What makes the figures of a job uncertain."""
    window, marks = assessment.window, []
    sinks = _rows_of(window.layout.sink_nodes, nodes)
    ahead, written = (
        float(np.nansum(column[sinks])) for column in (window.sinks.ahead, window.sinks.written)
    )
    if ahead:
        marks.append(
            f"No latency for {ahead / written:.0%} of the records: their timestamps are in the "
            "future. Check the producers' clocks."
        )
    if clock_set_s is not None and window.end_s - clock_set_s < MARKED_S:
        marks.append(
            f"The clock was set {window.end_s - clock_set_s:.0f} s ago: figures from before it are "
            "left out."
        )
    return marks


def _operator(assessment: Assessment, node: int) -> dict[str, Any]:
    layout = assessment.window.layout
    into = np.flatnonzero(layout.edge_target == node)
    return {
        "operator": layout.node_names[node],
        "parallelism": int(layout.parallelism[node]),
        "input_per_s": plain(assessment.input_rate[node]),
        "processed_per_s": plain(assessment.processing_rate[node]),
        "capacity": plain(assessment.capacity[node]),
        "queue": plain(assessment.queue[node]),
        "held_back": plain(np.max(assessment.back_pressure[into])) if len(into) else None,
        "congested": bool(assessment.congested_by_rates[node]),
    }
