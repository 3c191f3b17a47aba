"""Reports: what a probe sends survives the wire, and what is no report is refused."""

import json
from typing import Any

import pytest
from hypothesis import given

from tests.strategies import snapshots
from trilithon.errors import InvalidRecording
from trilithon.model.report import Report
from trilithon.model.snapshot import Snapshot
from trilithon.recording.reports import FORMAT, TABLES, report_from_json, report_to_json


@given(snapshots())
def test_a_report_survives_the_wire(snapshot: Snapshot) -> None:
    layout = snapshot.layout
    report = Report(
        sender="executor-1",
        sequence=7,
        time_s=snapshot.time_s,
        clock_error_s=0.002,
        instance_keys=tuple(layout.instance_row),
        instances=snapshot.instances,
        edge_keys=tuple(layout.edge_row),
        edges=snapshot.edges,
        source_keys=tuple(layout.source_row),
        sources=snapshot.sources,
        sink_keys=tuple(layout.sink_row),
        sinks=snapshot.sinks,
        latencies=snapshot.latencies,
        machine_keys=layout.machines,
        machines=snapshot.machines,
    )
    again = report_from_json(json.loads(json.dumps(report_to_json(report))))
    assert (again.sender, again.sequence, again.clock_error_s) == ("executor-1", 7, 0.002)
    assert again.instance_keys == report.instance_keys
    assert again.latencies.equals(report.latencies)
    for name in TABLES:
        assert getattr(again, name).equals(getattr(report, name))


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"format": FORMAT},
        {"format": FORMAT, "sender": "x", "sequence": 1, "time_s": "soon"},
        {
            "format": FORMAT,
            "sender": "x",
            "sequence": 1,
            "time_s": 1,
            "edges": {"keys": [["j", "a", "b"]], "speed": [1]},
        },
        {
            "format": FORMAT,
            "sender": "x",
            "sequence": 1,
            "time_s": 1,
            "edges": {"keys": [], "taken": [1]},
        },
    ],
)
def test_what_is_no_report_is_refused(data: Any) -> None:
    with pytest.raises(InvalidRecording):
        report_from_json(data)
