"""Converts reports to and from JSON: what a probe sends, as columns, over the host's socket."""

import math
from typing import Any

from trilithon.errors import InvalidRecording
from trilithon.model.columns import Columns, Edges, Instances, Machines, Sinks, Sources
from trilithon.model.report import Report
from trilithon.model.sketches import Sketches

FORMAT = "trilithon-report/1"
TABLES: dict[str, type[Columns]] = {
    "instances": Instances,
    "edges": Edges,
    "sources": Sources,
    "sinks": Sinks,
    "machines": Machines,
}


def report_to_json(report: Report) -> dict[str, Any]:
    """The keys and columns of each table. A missing number is null; a column without any number
    is left out.
    """
    data: dict[str, Any] = {
        "format": FORMAT,
        "sender": report.sender,
        "sequence": report.sequence,
        "time_s": report.time_s,
        "clock_error_s": report.clock_error_s,
    }
    for name in TABLES:
        table: Columns = getattr(report, name)
        if len(table):
            keys = getattr(report, _keys(name))
            data[name] = {"keys": [k if isinstance(k, str) else list(k) for k in keys]}
            data[name] |= {column: _nulls(table.column(column)) for column in table.names()}
            data[name] = {k: v for k, v in data[name].items() if any(x is not None for x in v)}
    if report.lost:
        data["lost"] = list(report.lost)
    if report.placed is not None:
        data["placed"] = [[*key, list(indices)] for key, indices in report.placed.items()]
    if len(report.latencies):
        rows = (report.latencies.row(i) for i in range(len(report.latencies)))
        data["latencies"] = [None if r is None else {str(k): n for k, n in r.items()} for r in rows]
    return data


def report_from_json(data: Any) -> Report:
    """Build a report from its JSON. Raises `InvalidRecording` if the data is not a report."""
    try:
        if data.get("format") != FORMAT:
            raise InvalidRecording(
                f"The format of a report is {FORMAT!r}, not {data.get('format')!r}."
            )
        fields: dict[str, Any] = {}
        for name, table in TABLES.items():
            columns = dict(data.get(name, {}))
            keys = [k if isinstance(k, str) else tuple(k) for k in columns.pop("keys", [])]
            fields[_keys(name)] = tuple(keys)
            fields[name] = table.of(
                len(keys),
                **{k: [math.nan if x is None else x for x in v] for k, v in columns.items()},
            )
        rows = data.get("latencies", [None] * len(fields["sink_keys"]))
        latencies = Sketches.of(
            None if row is None else {int(k): float(n) for k, n in row.items()} for row in rows
        )
        return Report(
            sender=str(data["sender"]),
            sequence=int(data["sequence"]),
            time_s=float(data["time_s"]),
            clock_error_s=data.get("clock_error_s"),
            latencies=latencies,
            lost=tuple(map(str, data.get("lost", ()))),
            placed=None
            if (placed := data.get("placed")) is None
            else {(job, node): tuple(map(int, indices)) for job, node, indices in placed},
            **fields,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidRecording(f"This is not a report: {error}.", "") from error


def _keys(table: str) -> str:
    return f"{table.removesuffix('s')}_keys"


def _nulls(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]
