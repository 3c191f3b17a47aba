"""Recordings: what is written can be read, and what cannot be read is refused with a reason."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.strategies import snapshots
from trilithon.errors import FileUnreadable, InvalidRecording
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.recording import parquet
from trilithon.recording.files import load_recording, parse_recording, recording_to_json
from trilithon.recording.snapshots import snapshot_from_json, snapshot_to_json

SMALL: dict[str, Any] = {
    "format": "trilithon-snapshot/1",
    "time_s": 70,
    "since_s": 10,
    "machines": [{"name": "m1", "cores": 8, "load": 3.5}],
    "jobs": [
        {
            "tenant": "ads",
            "name": "mine",
            "intent": {"priority": 5, "slo": [{"metric": "latency", "at_most": "50 ms"}]},
            "sources": [{"name": "in", "arrived": 6000, "taken": 6000}],
            "operators": [
                {
                    "name": "work",
                    "instances": [
                        {"index": 0, "on": "m1", "taken": 3000, "busy_s": 20},
                        {"index": 1, "taken": 3000, "busy_s": None},
                    ],
                }
            ],
            "edges": [
                {"from": "in", "to": "work", "emitted": 6000, "taken": 6000},
                {"from": "work", "to": "out", "emitted": 6000, "taken": 6000},
            ],
            "sinks": [{"name": "out", "written": 6000, "latencies_ms": [10, 20, 30]}],
        }
    ],
}


@given(snapshots())
def test_a_snapshot_survives_json(snapshot: Snapshot) -> None:
    again = snapshot_from_json(json.loads(json.dumps(snapshot_to_json(snapshot))))
    assert again.equals(snapshot)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(snapshots())
def test_a_series_survives_parquet(tmp_path: Path, snapshot: Snapshot) -> None:
    later = replace(snapshot, time_s=snapshot.time_s + 1)
    path = tmp_path / "series.parquet"
    parquet.write_series(path, [snapshot, later])
    again = parquet.read_series(path)
    assert [s.time_s for s in again.snapshots] == [snapshot.time_s, later.time_s]
    assert again.snapshots[0].equals(snapshot)
    assert again.snapshots[1].equals(later)
    # Shapes are shared, so that a window costs no search by name.
    assert again.snapshots[0].layout is again.snapshots[1].layout


def test_a_job_that_leaves_and_one_that_comes_are_recorded(tmp_path: Path) -> None:
    first = snapshot_from_json(SMALL)
    other = json.loads(json.dumps(SMALL).replace('"mine"', '"other"'))
    second = snapshot_from_json({**other, "time_s": 80})
    both = snapshot_from_json({**SMALL, "time_s": 90, "jobs": [*SMALL["jobs"], *other["jobs"]]})
    path = tmp_path / "changes.parquet"
    parquet.write_series(path, [first, second, both])
    again = parquet.read_series(path)
    assert [s.layout.jobs for s in again.snapshots] == [
        ("ads/mine",),
        ("ads/other",),
        ("ads/mine", "ads/other"),
    ]
    assert again.snapshots[2].equals(both)


def test_other_tools_can_read_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    parquet.write_series(path, [snapshot_from_json(SMALL)])
    rows = pq.read_table(path).to_pylist()
    busy = [row["busy_s"] for row in rows if row["kind"] == "instance"]
    assert busy == [20.0, None]


def test_what_is_left_out_or_null_is_missing() -> None:
    snapshot = snapshot_from_json(SMALL)
    assert np.isnan(snapshot.instances.busy_s).tolist() == [False, True]
    assert np.isnan(snapshot.instances.cpu_s).all()
    assert np.isnan(snapshot.instances.machine).tolist() == [False, True]


def test_one_snapshot_and_a_series_have_a_json_form(tmp_path: Path) -> None:
    single = parse_recording(json.dumps(SMALL))
    double = Series((*single.snapshots, replace(single.last, time_s=80)))
    assert len(parse_recording(recording_to_json(single))) == 1
    assert len(parse_recording(recording_to_json(double))) == 2
    path = tmp_path / "double.json"
    path.write_text(recording_to_json(double))
    assert len(load_recording(path)) == 2


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(SMALL))
    change(data)
    return data


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown field": (lambda d: d.update(speed=1), "speed"),
    "unknown column": (lambda d: d["machines"][0].update(heat=1), "heat"),
    "text for a number": (lambda d: d["jobs"][0]["sinks"][0].update(written="many"), "written"),
    "true for a number": (lambda d: d["jobs"][0]["sinks"][0].update(written=True), "written"),
    "no time": (lambda d: d.pop("time_s"), "time_s"),
    "another format": (lambda d: d.update(format="x"), "format"),
    "unknown machine": (
        lambda d: d["jobs"][0]["operators"][0]["instances"][0].update(on="m9"),
        "'m9'",
    ),
    "an instance twice": (
        lambda d: d["jobs"][0]["operators"][0]["instances"][1].update(index=0),
        "twice",
    ),
    "a negative index": (
        lambda d: d["jobs"][0]["operators"][0]["instances"][1].update(index=-1),
        "index",
    ),
    "a machine twice": (lambda d: d["machines"].append({"name": "m1"}), "twice"),
    "a job twice": (lambda d: d["jobs"].append(d["jobs"][0]), "twice"),
    "an edge to nowhere": (lambda d: d["jobs"][0]["edges"][0].update(to="zz"), "'zz'"),
    "a cycle": (lambda d: d["jobs"][0]["edges"].append({"from": "work", "to": "work"}), "CYCLE"),
    "a bad bucket": (lambda d: d["jobs"][0]["sinks"][0].update(latency_buckets={"x": 1}), "whole"),
    "a bad intent": (lambda d: d["jobs"][0]["intent"].update(slo=[{"metric": "zeal"}]), "intent"),
    "a bad spec": (lambda d: d["jobs"][0].update(spec={"name": "mine"}), "spec"),
    "a huge number": (lambda d: d["machines"][0].update(load=10**400), "load"),
    "a huge index": (
        lambda d: d["jobs"][0]["operators"][0]["instances"][1].update(index=2**63),
        "index",
    ),
    "a huge bucket": (
        lambda d: d["jobs"][0]["sinks"][0].update(latency_buckets={"9" * 30: 1}),
        "whole",
    ),
    "a negative count": (
        lambda d: d["jobs"][0]["sinks"][0].update(latency_buckets={"9": -1}),
        "latency_buckets",
    ),
    "an edge twice": (lambda d: d["jobs"][0]["edges"].append(d["jobs"][0]["edges"][0]), "twice"),
    "a name that is none": (lambda d: d["jobs"][0].update(name="a/b"), "BAD_NAME"),
    "a constraint of nothing": (
        lambda d: d["jobs"][0]["intent"].update(
            constraints=[{"sequence": ["zz"], "at_most": "1 s"}]
        ),
        "CONSTRAINT_BROKEN",
    ),
    "an unknown utility": (
        lambda d: d["jobs"][0]["intent"]["slo"][0].update(utility="joy"),
        "UNKNOWN_UTILITY",
    ),
    "a time before its beginning": (lambda d: d.update(since_s=70), "since_s"),
    "a source not in the job": (
        lambda d: d["jobs"][0]["sources"].append({"name": "in"}),
        "twice",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_form_that_contradicts_itself_is_refused_with_its_place(name: str) -> None:
    change, said = BROKEN[name]
    with pytest.raises(InvalidRecording) as caught:
        snapshot_from_json(changed(change))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        "null",
        '{"a": 1, "a": 2}',
        '{"format": "trilithon-series/1", "snapshots": []}',
        '{"a": NaN}',
        "[" * 100_000,
        '"x"',
    ],
)
def test_what_is_no_recording_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecording):
        parse_recording(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable):
        load_recording(tmp_path / "nothing.parquet")
    with pytest.raises(FileUnreadable):
        load_recording(tmp_path)
    whole = tmp_path / "whole.parquet"
    parquet.write_series(whole, [snapshot_from_json(SMALL)])
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(InvalidRecording, match="damaged"):
        load_recording(cut)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), other)
    with pytest.raises(InvalidRecording, match="not a recording"):
        load_recording(other)


@given(st.data())
def test_a_damaged_recording_is_told_so_whatever_was_damaged(
    damaged_file: Path, data: st.DataObject
) -> None:
    whole = damaged_file.with_name("whole.parquet")
    if not whole.exists():
        parquet.write_series(whole, [snapshot_from_json(SMALL)])
    content = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged_file.write_bytes(content)
    with contextlib.suppress(InvalidRecording, FileUnreadable):
        assert load_recording(damaged_file).snapshots


@pytest.fixture(scope="module")
def damaged_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "damaged.parquet"


def test_columns_that_are_not_those_of_a_recording_are_named(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    parquet.write_series(path, [snapshot_from_json(SMALL)])
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["busy_s"]), path)
    with pytest.raises(InvalidRecording, match="busy_s"):
        load_recording(path)
    kinds = pa.array(["thing"] * table.num_rows)
    pq.write_table(table.set_column(2, "kind", kinds), path)
    with pytest.raises(InvalidRecording, match="'thing'"):
        load_recording(path)


def test_a_recording_from_before_a_column_was_there_can_be_read(tmp_path: Path) -> None:
    path, small = tmp_path / "old.parquet", snapshot_from_json(SMALL)
    parquet.write_series(path, [small])
    pq.write_table(pq.read_table(path).drop_columns(["clock_error_s"]), path)
    edges = parquet.read_series(path).last.edges
    assert np.isnan(edges.clock_error_s).all()
    assert edges.taken.tolist() == small.edges.taken.tolist()
