"""Task latency: Read-Ready for most operators, Read-Write for those that aggregate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.strategies import COLUMNS
from trilithon.measures.constraints import assess_constraints
from trilithon.measures.queueing import channel_latency
from trilithon.measures.task_latency import read_write, task_latency
from trilithon.model.columns import Instances
from trilithon.model.job import Edge, Job, Operator, Parallelism, Sink, Source, Work
from trilithon.model.layout import Layout
from trilithon.model.series import Series, Window
from trilithon.model.snapshot import Snapshot
from trilithon.recording.files import load_recording
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import load_scenario

JOB = Job(
    tenant="t",
    name="sums",
    sources=(Source("s", COLUMNS, ()),),
    operators=(
        Operator("parse"),
        Operator("sum", Work(group_by=("k",), aggregate=(("n", "count(*)"),)), Parallelism(2)),
    ),
    edges=(Edge("s", "parse"), Edge("parse", "sum"), Edge("sum", "k")),
    sinks=(Sink("k", ()),),
)


def window(write_waits: list[float], write_wait_s: list[float]) -> Window:
    snapshot = replace(
        Snapshot.empty(10, Layout.build([JOB]), {JOB.id: JOB}),
        since_s=0,
        instances=Instances.of(
            3,
            taken=[100, 50, 50],
            busy_s=[1, 1, 1],
            write_waits=write_waits,
            write_wait_s=write_wait_s,
        ),
    )
    found = Series.of([snapshot]).window()
    assert found is not None
    return found


def test_an_aggregation_has_a_record_until_the_next_write() -> None:
    found = task_latency(window([100, 50, 40], [50, 5, 2]))
    assert found[1] == pytest.approx(0.010)  # Read-Ready, though it was measured otherwise
    assert found[2] == pytest.approx((0.100 + 0.050) / 2)  # averaged over instances


def test_an_instance_that_wrote_nothing_does_not_count_and_without_any_it_is_missing() -> None:
    assert task_latency(window([100, 50, 0], [50, 5, 0]))[2] == pytest.approx(0.100)
    assert np.isnan(task_latency(window([100, 0, 0], [50, 0, 0]))[2])
    assert np.isnan(task_latency(window([100, np.nan, 1], [50, 5, 1]))[2])


SUMS = """
tenant: t
name: sums
sources:
  - {name: events, options: {subscribe: events}, schema: {k: STRING, v: BIGINT}, partitions: 1}
operators:
  - {name: parse, input: events, where: "v >= 0", profile: {service_ms: 1}}
  - name: sum
    input: {from: parse, grouping: by_key, key: [k]}
    group_by: [k]
    aggregate: {n: count(*)}
    parallelism: {initial: 1}
    profile: {service_ms: 2, selectivity: 0.25}
sinks:
  - {name: sums, input: sum, options: {topic: sums}}
intent:
  constraints: [{sequence: ["parse->sum", sum], at_most: 50 ms, over: 5 seconds}]
"""
SCENARIO = """
name: sums
machines: {count: 2, cores: 8}
engine: spark-rtm
way: WAY
length: 120 s
round: 10 s
seed: 5
jobs: [{file: sums.yaml, load: {rate: 100}}]
"""


@pytest.mark.parametrize("way", ["events", "fluid"])
def test_the_simulated_cluster_measures_it(way: str, tmp_path: Path) -> None:
    """A record in four leads to a write: on average three more come before the next one."""
    (tmp_path / "sums.yaml").write_text(SUMS, encoding="utf-8")
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("WAY", way), encoding="utf-8")
    simulate(load_scenario(path), tmp_path / "run")
    seen = load_recording(tmp_path / "run" / "recording.parquet").window(100)
    assert seen is not None
    row = seen.layout.node_row["t/sums", "sum"]
    assert read_write(seen)[row] == pytest.approx(0.002 + 3 * 0.010, rel=0.1)
    channel_s = channel_latency(seen)[seen.layout.edge_row["t/sums", "parse", "sum"]]
    expected_ms = 1000 * (float(read_write(seen)[row]) + float(channel_s))
    assert assess_constraints(seen).mean_ms[0] == pytest.approx(expected_ms)
