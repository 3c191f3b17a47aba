"""Snapshots, series and the windows between them: growth, restarts and missing numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.strategies import jobs, snapshots
from trilithon.errors import InvalidRecording, NotFound
from trilithon.model.columns import TABLES, Instances, Machines, Sources, difference
from trilithon.model.job import Job
from trilithon.model.layout import Layout
from trilithon.model.report import Report
from trilithon.model.series import Series
from trilithon.model.sketches import Sketches
from trilithon.model.snapshot import Snapshot

nan = float("nan")


def at(time_s: float, layout: Layout, taken: list[float], incarnation: float = 1) -> Snapshot:
    rows = len(taken)
    instances = Instances.of(
        rows, taken=taken, sent=[t + 5 for t in taken], incarnation=[incarnation] * rows
    )
    return replace(Snapshot.empty(time_s, layout), instances=instances)


@pytest.fixture
def layout() -> Layout:
    job = _job(2)
    return Layout.build([job])


def _job(parallelism: int) -> Job:
    from tests.model.test_validation import GOOD  # noqa: PLC0415
    from trilithon.model.job import Operator, Parallelism  # noqa: PLC0415

    return replace(
        GOOD, operators=(Operator("a", parallelism=Parallelism(parallelism)), Operator("b"))
    )


def test_a_window_holds_the_growth_of_counters_and_the_last_gauges(layout: Layout) -> None:
    window = Series.of([at(10, layout, [1, 2, 3]), at(20, layout, [11, 22, 3])]).window()
    assert window is not None
    assert window.span_s == 10
    assert window.instances.taken.tolist() == [10, 20, 0]
    assert window.queue.tolist() == [5, 5, 5]


def test_a_new_incarnation_counts_from_zero(layout: Layout) -> None:
    window = Series.of([at(10, layout, [100, 100, 100]), at(20, layout, [7, 8, 9], 2)]).window()
    assert window is not None
    assert window.instances.taken.tolist() == [7, 8, 9]


def test_a_counter_that_falls_without_a_new_incarnation_is_missing(layout: Layout) -> None:
    window = Series.of([at(10, layout, [100, 1, 1]), at(20, layout, [7, 2, nan])]).window()
    assert window is not None
    assert np.isnan(window.instances.taken[[0, 2]]).all()
    assert window.instances.taken[1] == 1


def test_instances_that_came_in_between_began_at_zero(layout: Layout) -> None:
    wider = Layout.build([_job(4)])
    window = Series.of([at(10, layout, [10, 20, 30]), at(20, wider, [15, 25, 5, 6, 30])]).window()
    assert window is not None
    assert window.instances.taken.tolist() == [5, 5, 5, 6, 0]


def test_a_job_that_left_is_not_in_the_window(layout: Layout) -> None:
    other = replace(_job(1), name="other")
    both = Layout.build([_job(2), other])
    window = Series.of([at(10, both, [1] * 5), at(20, layout, [2, 3, 4])]).window()
    assert window is not None
    assert window.layout.jobs == ("ads/good",)
    assert window.instances.taken.tolist() == [1, 2, 3]


def test_a_machine_that_left_does_not_break_the_window_over_its_leaving() -> None:
    """A window over the loss of an executor could not be made: its instances were on no machine."""
    job = _job(2)
    both, single = Layout.build([job], machines=["m1", "m2"]), Layout.build([job], machines=["m1"])
    rows = len(both.instance_node)

    def seen(time_s: float, layout: Layout, machine: float) -> Snapshot:
        counted = Instances.of(rows, taken=[time_s] * rows, machine=[machine] * rows)
        return replace(Snapshot.empty(time_s, layout, {job.id: job}), instances=counted)

    window = Series.of([seen(10, both, 1.0), seen(20, single, 0.0)]).window()
    assert window is not None
    assert (window.instances.taken == 10).all()
    assert (window.instances.machine == 0).all()


def test_a_single_snapshot_has_a_window_only_if_it_says_since_when(layout: Layout) -> None:
    alone = at(20, layout, [1, 2, nan])
    assert Series.of([alone]).window() is None
    assert Series.of([]).window() is None
    window = Series.of([replace(alone, since_s=10)]).window()
    assert window is not None
    assert window.span_s == 10
    assert window.instances.taken[:2].tolist() == [1, 2]
    assert np.isnan(window.instances.taken[2])


def test_a_window_is_as_long_as_asked_if_the_series_is(layout: Layout) -> None:
    series = Series.of([at(t, layout, [t, t, t]) for t in (0, 10, 20, 30)])
    window = series.window(10)
    assert window is not None
    assert (window.start_s, window.end_s) == (20, 30)
    longest = series.window(1000)
    assert longest is not None
    assert longest.start_s == 0
    assert [w.span_s for w in series.windows()] == [10, 10, 10]


def test_a_series_forgets_what_is_older_than_its_limit(layout: Layout) -> None:
    series = Series.of([at(t, layout, [t, t, t]) for t in range(0, 100, 10)], limit_s=25)
    assert [s.time_s for s in series.snapshots] == [60, 70, 80, 90]


def test_snapshots_must_follow_each_other_in_time(layout: Layout) -> None:
    with pytest.raises(InvalidRecording, match="must increase"):
        Series((at(10, layout, [1, 1, 1]), at(10, layout, [1, 1, 1])))


def test_rows_that_do_not_fit_the_layout_are_refused(layout: Layout) -> None:
    with pytest.raises(InvalidRecording, match="sources has 2 rows, but the layout has 1"):
        replace(Snapshot.empty(0, layout), sources=Sources.missing(2))


def test_a_view_gives_plain_numbers_and_none_for_what_is_missing(layout: Layout) -> None:
    snapshot = replace(
        at(10, layout, [1, nan, 3]), sources=Sources.of(1, arrived=[100], taken=[90])
    )
    view = snapshot.job("ads/good")
    assert view.parallelism == {"a": 2, "b": 1}
    assert view.instance("a", 0)["taken"] == 1
    assert view.instance("a", 1)["taken"] is None
    assert view.lag("s") == 10
    assert view.edge("s", "a")["emitted"] is None
    with pytest.raises(NotFound):
        view.instance("a", 7)
    with pytest.raises(NotFound):
        snapshot.job("nobody/else")


@given(snapshots())
def test_what_is_missing_before_or_after_is_missing_in_between(snapshot: Snapshot) -> None:
    later = replace(snapshot, time_s=snapshot.time_s + 10)
    window = Series.of([snapshot, later]).window()
    assert window is not None
    for table in ("instances", "edges", "sources", "sinks"):
        measured, grown = getattr(snapshot, table), getattr(window, table)
        for column in measured.describe():
            missing = np.isnan(measured.column(column.name))
            assert (np.isnan(grown.column(column.name)) == missing).all()
            if column.counter:
                assert (grown.column(column.name)[~missing] == 0).all()


@given(jobs())
def test_a_layout_has_parents_before_children(job: Job) -> None:
    layout = Layout.build([job])
    assert (layout.edge_source < layout.edge_target).all()
    seen: set[int] = set(layout.source_nodes.tolist())
    for group in layout.edges_by_depth:
        for edge in group:
            assert layout.edge_source[edge] in seen
        done = {int(t) for t in layout.edge_target[group]}
        seen |= done
    assert sum(len(group) for group in layout.edges_by_depth) == len(layout.edge_source)


def test_every_column_says_what_it_is() -> None:
    for table in TABLES:
        for column in table.describe():
            assert column.unit
            assert column.meaning


def test_columns_refuse_what_cannot_be_a_measurement() -> None:
    with pytest.raises(ValueError, match="infinite"):
        Machines.of(1, load=[float("inf")])
    with pytest.raises(ValueError, match="shape"):
        Machines.of(2, load=[1.0])
    columns = Machines.of(1, load=[1.0])
    with pytest.raises(ValueError, match="read-only"):
        columns.load[0] = 2


def test_gauges_are_taken_from_the_end() -> None:
    grown = difference(Machines.of(1, load=[1.0]), Machines.of(1, load=[3.0]))
    assert grown.load.tolist() == [3.0]


def test_a_report_has_a_key_for_each_row() -> None:
    Report("executor-1", 1, 10.0, instance_keys=(("t/j", "a", 0),), instances=Instances.missing(1))
    with pytest.raises(ValueError, match="0 keys but 1 rows of instances"):
        Report("executor-1", 1, 10.0, instances=Instances.missing(1))
    with pytest.raises(ValueError, match="latencies"):
        Report("executor-1", 1, 10.0, latencies=Sketches.missing(2))
