"""Observing an engine whose clock is set: figures begin anew and are marked."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.engines.spark.flow import job_named
from trilithon.contract.engine import Accepted
from trilithon.contract.figures import summary
from trilithon.contract.observer import Observer
from trilithon.engines.spark.host_report import HostReports, RunningJob
from trilithon.engines.spark.telemetry import report_of
from trilithon.measures.assess import assess
from trilithon.model.allocation import initial
from trilithon.model.report import Report

JOB = job_named("observed")
NOW_S = 1_800_000_000.0
HOUR_S = 3600.0


def executor_report(
    at_s: float, sequence: int, written: int, *, steps: int = 0, ahead: int = 0
) -> Report:
    """As an executor sends it: the driver's time does not step, the wall clock does."""
    delivered = {"count": written - ahead, "sum_ms": 20.0, "zero": 0, "buckets": {"150": written}}
    delivered |= {"ahead": ahead} if ahead else {}
    instance = {
        "job": JOB.id,
        "operator": "keyed",
        "index": 0,
        "incarnation": 1,
        "active": True,
        "taken": written,
        "service": {"sum_us": 0.0, "sumsq_us2": 0.0},
        "cpu_ns": 0,
        "in": {},
        "writes": {"count": 0, "sum_us": 0.0},
        "out": {},
        "e2e": delivered,
    }
    sent = {
        "version": 1, "executor": "1", "host": "h", "sequence": sequence, "time_us": 0,
        "wall_us": int(at_s * 1e6), "clock_steps": steps, "clock": {"error_us": 10},
        "machine": {"cores": 2, "load": 0.5, "cpu_machine": 0.1}, "instances": [instance],
    }  # fmt: skip  # the head of a report, as it travels
    return report_of(sent, {JOB.id: JOB})


def observed(
    reports: Sequence[tuple[float, int, int]], ahead: int = 0
) -> tuple[Observer, list[str], float]:
    """Looks at (time, steps, records written); returns the marks and the output rate."""
    observer = Observer(60.0)
    observer.expect({JOB.id: (JOB, initial(JOB))})
    for number, (at_s, steps, written) in enumerate(reports, start=1):
        running = RunningJob(JOB, initial(JOB), 1, {"in": 0.0}, {"in": 2})
        report = executor_report(at_s, number, written, steps=steps, ahead=ahead * number)
        observer.take([report, HostReports().report(number, at_s, [running])])
        observer.look(at_s)
    window = observer.series.window(10.0)
    assert window is not None
    accepted = {JOB.id: Accepted(JOB, initial(JOB))}
    (figures,) = summary(assess(window), accepted, observer.clock_set_s)
    return observer, figures["marks"], figures["output_per_s"]


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_set_by_an_hour_leaves_rates_right_and_is_marked(step_s: float) -> None:
    before = [(NOW_S + i, 0, 100 * i) for i in range(5)]
    after = [(NOW_S + step_s + i, 1, 100 * i) for i in range(5, 9)]
    observer, marks, rate = observed([*before, *after])
    assert rate == pytest.approx(100, rel=0.01)
    assert marks == ["The clock was set 3 s ago: figures from before it are left out."]
    assert [snapshot.time_s for snapshot in observer.series.snapshots] == [t for t, _, _ in after]


def test_a_clock_that_is_not_set_marks_nothing() -> None:
    observer, marks, rate = observed([(NOW_S + i, 3, 100 * i) for i in range(9)])
    assert (marks, observer.clock_set_s) == ([], None)
    assert rate == pytest.approx(100, rel=0.01)


def test_records_from_the_future_have_no_latency_and_are_marked() -> None:
    observer, marks, _ = observed([(NOW_S + i, 0, 100 * i) for i in range(5)], ahead=100)
    (mark,) = marks
    assert mark.startswith("No latency for 100% of the records: their timestamps are in the future")
    assert not np.isnan(observer.series.last.sinks.ahead).any()
