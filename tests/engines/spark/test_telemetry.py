"""The probe's reports in the words of the model, and through the assembler to measures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.model.test_validation import GOOD
from trilithon.contract.assembler import Assembler
from trilithon.engines.spark.host_report import HostReports, RunningJob
from trilithon.engines.spark.telemetry import report_of
from trilithon.measures.assess import assess
from trilithon.model.allocation import Allocation
from trilithon.model.job import Operator, Parallelism
from trilithon.model.series import Series
from trilithon.model.sketches import bucket_of

JOB = replace(GOOD, operators=(Operator("a", parallelism=Parallelism(2)), Operator("b")))


def moments(count: float, mean_us: float) -> dict[str, float]:
    return {"count": count, "sum_us": count * mean_us, "sumsq_us2": 2 * count * mean_us**2}


def instance(operator: str, index: int, taken: int, **more: Any) -> dict[str, Any]:
    return {
        "job": "ads/good",
        "operator": operator,
        "index": index,
        "incarnation": 1,
        "active": True,
        "taken": taken,
        "cpu_ns": taken * 1e6,
        "in": {},
        "out": {},
        "service": moments(taken, 5000),
        "writes": {"count": taken, "sum_us": taken * 6000},
        **more,
    }


def out(emitted: int, **sent_to: int) -> dict[str, Any]:
    counts = {index.removeprefix("to"): count for index, count in sent_to.items()}
    return {
        "emitted": emitted,
        "parked_ns": 5e8,
        "forced": 0,
        "sent_to": counts,
        "parked_at": {max(counts): 5e8},
    }


def into(count: int) -> dict[str, Any]:
    return {"channel": moments(count, 8000), "interarrival": moments(count, 10_000)}


def sent(
    executor: str, second: int, instances: list[dict[str, Any]], error_us: float = 300
) -> dict[str, Any]:
    return {
        "version": 1,
        "executor": executor,
        "host": "h",
        "sequence": second,
        "time_us": second * 1e6,
        "machine": {"cores": 2, "load": 1.5, "cpu_machine": 0.4},
        "clock": {"offset_us": 0, "error_us": error_us},
        "instances": instances,
    }


def first(n: int) -> list[dict[str, Any]]:
    """The reader and one instance of `a`; the other one runs elsewhere."""
    return [
        instance("s", 0, 100 * n, out={"a": out(100 * n, to0=60 * n, to1=40 * n)}),
        instance(
            "a", 0, 60 * n, **{"in": {"s": into(60 * n)}, "out": {"b": out(60 * n, to0=60 * n)}}
        ),
    ]


def second(n: int) -> list[dict[str, Any]]:
    end = {
        "count": 100 * n,
        "sum_ms": 2500 * n,
        "zero": 0,
        "buckets": {"160": 95 * n, "200": 5 * n},
    }
    return [
        instance(
            "a", 1, 38 * n, **{"in": {"s": into(38 * n)}, "out": {"b": out(38 * n, to0=38 * n)}}
        ),
        instance("b", 0, 98 * n, **{"in": {"a": into(98 * n)}}, e2e=end),
        instance("x", 0, 1, job="not/known"),
    ]


def running_job(arrived: float) -> RunningJob:
    wanted = Allocation(JOB.id, 1, {"a": 2, "b": 1})
    return RunningJob(JOB, wanted, 1, {"s": arrived}, {"s": 4})


def test_an_instance_without_a_record_has_taken_none_which_is_not_missing() -> None:
    assembler = Assembler()
    assembler.expect(JOB, Allocation(JOB.id, 1, {"a": 2, "b": 1}))
    assembler.take(HostReports().report(1, 1, [running_job(0)]))
    view = assembler.snapshot(1).job(JOB.id)
    assert view.instance("a", 1)["taken"] == 0
    assert view.instance("a", 1)["machine"] is None  # no executor reported it
    assert view.edge("s", "a")["idle_transport_s"] is None  # no record was timed
    assert assembler.snapshot(1).latencies.row(0) == {}


def test_two_executors_make_one_picture() -> None:
    assembler = Assembler()
    assembler.expect(JOB, Allocation(JOB.id, 1, {"a": 2, "b": 1}))
    snapshots = []
    for n in (1, 2):
        assembler.take(report_of(sent("0", n, first(n)), {JOB.id: JOB}))
        assembler.take(report_of(sent("1", n, second(n)), {JOB.id: JOB}))
        assembler.take(HostReports().report(n, n, [running_job(100.0 * n)]))
        snapshots.append(assembler.snapshot(n))
    last = snapshots[-1]
    view = last.job(JOB.id)
    assert view.instance("a", 0)["sent"] == 120
    assert view.instance("a", 1)["taken"] == 76
    assert view.instance("a", 0)["parked_s"] == 0
    assert view.instance("a", 1)["parked_s"] == 0.5  # the reader was held back before it
    assert view.instance("b", 0)["parked_s"] == 1.0  # by both instances of a
    assert view.edge("s", "a")["emitted"] == 200
    assert view.edge("s", "a")["taken"] == 196
    assert view.edge("s", "a")["senders"] == 1
    assert view.edge("a", "b")["emitted"] == 196
    assert view.edge("a", "b")["senders"] == 2  # one on each executor
    assert view.edge("b", "k")["taken"] == 200
    assert view.lag("s") == 0
    assert last.layout.machines == ("h/0", "h/1")
    window = Series.of(snapshots).window()
    assert window is not None
    found = assess(window)
    row = window.layout.node_row
    assert found.processing_rate[row[JOB.id, "a"]] == 98
    assert found.service_s[row[JOB.id, "a"]] == pytest.approx(0.005)
    assert found.queue[row[JOB.id, "a"]] == 4
    assert found.intents.values["throughput"].tolist() == [100]
    assert found.intents.values["latency.mean"].tolist() == [25]


@pytest.mark.parametrize(("error_us", "known"), [(300, True), (3999, True), (4001, False)])
def test_a_way_shorter_than_the_clocks_may_be_apart_is_missing(
    error_us: float, known: bool
) -> None:
    """Records are 8 ms in each channel; the clocks of its two ends may be off in opposite ways."""
    assembler = Assembler()
    assembler.expect(JOB, Allocation(JOB.id, 1, {"a": 2, "b": 1}))
    snapshots = []
    for n in (1, 2):
        for executor, instances in (("0", first(n)), ("1", second(n))):
            assembler.take(report_of(sent(executor, n, instances, error_us), {JOB.id: JOB}))
        assembler.take(HostReports().report(n, n, [running_job(100.0 * n)]))
        snapshots.append(assembler.snapshot(n))
    window = Series.of(snapshots).window()
    assert window is not None
    edge = window.layout.edge_row[JOB.id, "a", "b"]
    assert window.edges.clock_error_s[edge] == pytest.approx(error_us / 1e6)
    assert np.isfinite(assess(window).channel_s[edge]) == known


def test_a_load_that_the_machine_does_not_tell_is_missing() -> None:
    report = report_of(
        {**sent("0", 1, []), "machine": {"cores": 2, "load": -1, "cpu_machine": 0.4}}, {}
    )
    assert report.machines.cores.tolist() == [2]
    assert report.machines.cores_busy.tolist() == [0.8]
    assert str(report.machines.load[0]) == "nan"


def test_a_probe_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 7"):
        report_of({**sent("0", 1, []), "version": 7}, {})


def test_the_shortest_way_is_transport_and_what_is_gathered_beyond_it_batching() -> None:
    def took(count: int, least_us: float, gathered_us: float) -> dict[str, Any]:
        return {**into(count), "least_us": least_us, "gathered_us": gathered_us}

    found = report_of(
        sent(
            "1",
            1,
            [
                instance("a", 0, 10, **{"in": {"s": took(10, 900, 30_000)}}),
                instance("a", 1, 10, **{"in": {"s": took(10, 700, 20_000)}}),
                instance("b", 0, 10, **{"in": {"a": into(10)}}),
            ],
        ),
        {JOB.id: JOB},
    )
    edge = found.edge_keys.index((JOB.id, "s", "a"))
    assert found.edges.idle_transport_s[edge] == pytest.approx(0.0007)
    assert found.edges.batching_s[edge] == pytest.approx(0.05)
    other = found.edge_keys.index((JOB.id, "a", "b"))
    assert np.isnan(found.edges.idle_transport_s[other])  # no record found an idle instance there


def test_records_that_cannot_be_read_are_counted_at_their_source() -> None:
    found = report_of(sent("1", 1, [instance("s", 0, 10, rejected=3)]), {JOB.id: JOB})
    assert found.sources.failed.tolist() == [3]
    assert found.sources.taken.tolist() == [10]


def test_latencies_of_zero_or_less_are_in_the_lowest_bucket() -> None:
    """Clock skew, or a record faster than the clock's tick: the probe counts these apart."""
    e2e = {"count": 10, "sum_ms": 70.0, "zero": 3, "buckets": {"-345": 1, "160": 6}}
    sent_report = sent("1", 1, [instance("b", 0, 10, e2e=e2e), instance("b", 1, 10, e2e=e2e)])
    report = report_of(sent_report, {JOB.id: JOB})
    assert report.latencies.row(0) == {int(bucket_of(0.0)): 8.0, 160: 12.0}
    assert sum((report.latencies.row(0) or {}).values()) == report.sinks.latencies[0] == 20
