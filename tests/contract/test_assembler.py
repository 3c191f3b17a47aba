"""The assembler: sums over senders, silence, and instances that come back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.test_validation import GOOD
from tests.strategies import snapshots
from trilithon.contract.assembler import Assembler
from trilithon.model.allocation import Allocation, initial
from trilithon.model.columns import Edges, Instances, Machines, Sinks
from trilithon.model.job import Operator, Parallelism
from trilithon.model.report import Report
from trilithon.model.series import Series
from trilithon.model.sketches import Sketches
from trilithon.model.snapshot import Snapshot

JOB = replace(GOOD, operators=(Operator("a", parallelism=Parallelism(2)), Operator("b")))
EDGE = ("ads/good", "a", "b")


def report(
    sender: str, sequence: int, time_s: float, taken: dict[int, float], **more: Any
) -> Report:
    """What a sender knows of instances of `a`."""
    keys = tuple(("ads/good", "a", index) for index in taken)
    columns = Instances.of(
        len(keys),
        taken=list(taken.values()),
        busy_s=[0.1] * len(keys),
        incarnation=[1.0] * len(keys),
    )
    return Report(
        sender,
        sequence,
        time_s,
        instance_keys=keys,
        instances=columns,
        machine_keys=(f"m-{sender}",),
        machines=Machines.of(1, cores=[8]),
        **more,
    )


def new_assembler(parallelism: int = 2) -> Assembler:
    assembler = Assembler()
    assembler.expect(JOB, Allocation(JOB.id, 1, {"a": parallelism, "b": 1}))
    return assembler


def test_a_snapshot_holds_what_the_senders_know() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5}))
    assembler.take(report("y", 1, 10, {1: 7}))
    snapshot = assembler.snapshot(10)
    assert snapshot.instances.taken[:2].tolist() == [5, 7]
    assert np.isnan(snapshot.instances.taken[2])  # nobody spoke of b
    assert snapshot.layout.machines == ("m-x", "m-y")
    assert snapshot.instances.machine[:2].tolist() == [0, 1]
    assert snapshot.jobs == {JOB.id: JOB}


def test_counters_of_one_row_from_several_senders_add_up() -> None:
    """An instance that moved counts on from 0 elsewhere; senders on both machines feed one edge."""
    assembler = new_assembler()
    edges = {"edge_keys": (EDGE,), "edges": Edges.of(1, emitted=[100], senders=[1])}
    assembler.take(report("x", 1, 10, {0: 5}, **edges))
    assembler.take(report("y", 1, 11, {0: 7}, edge_keys=(EDGE,), edges=Edges.of(1, emitted=[40])))
    snapshot = assembler.snapshot(11)
    assert snapshot.instances.taken[0] == 12
    row = snapshot.layout.edge_row[EDGE]
    assert snapshot.edges.emitted[row] == 140
    assert snapshot.edges.senders[row] == 1
    assert np.isnan(snapshot.edges.parked_s[row])


def test_histograms_add_up() -> None:
    assembler = new_assembler()
    sink = ("ads/good", "k")
    for sender, histogram in (("x", {10: 2.0}), ("y", {10: 1.0, 20: 4.0})):
        assembler.take(
            report(
                sender,
                1,
                10,
                {},
                sink_keys=(sink,),
                sinks=Sinks.of(1, written=[3]),
                latencies=Sketches.of([histogram]),
            )
        )
    snapshot = assembler.snapshot(10)
    assert snapshot.latencies.row(0) == {10: 3.0, 20: 4.0}
    assert snapshot.sinks.written.tolist() == [6]


def test_what_a_silent_sender_counted_for_is_missing() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5}))
    assembler.take(report("y", 1, 20, {0: 7, 1: 8}))
    snapshot = assembler.snapshot(20)
    assert np.isnan(snapshot.instances.taken[0])
    assert snapshot.instances.taken[1] == 8


def test_a_sender_that_was_lost_stays_in_the_sums() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5}))
    assembler.take(report("y", 1, 20, {0: 7, 1: 8}))
    assembler.lose("x")
    assert assembler.snapshot(20).instances.taken[:2].tolist() == [12, 8]


def test_a_silent_sender_that_still_runs_something_is_not_forgotten() -> None:
    """Metrics that stopped for a minute read 0 once, since the host
    counts zeros for all that there is.
    """
    assembler = new_assembler()
    host = Report(
        "host",
        1,
        80,
        instance_keys=tuple(("ads/good", "a", i) for i in (0, 1)),
        instances=Instances.of(2, taken=[0, 0], busy_s=[0, 0], incarnation=[1, 1]),
    )
    assembler.take(report("x", 1, 10, {0: 5}))
    assembler.take(report("y", 1, 10, {1: 8}))
    assembler.take(host)
    assembler.lose_silent(80, 30)
    assert np.isnan(assembler.snapshot(80).instances.taken).all()
    assert assembler.snapshot(80).layout.machines == ("m-x", "m-y")
    assembler.take(report("x", 2, 80, {0: 9}))
    assert assembler.snapshot(80).instances.taken[0] == 9


def test_a_silent_sender_whose_instances_run_elsewhere_is_lost_and_stays_in_the_sums() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5}))
    assembler.take(report("y", 1, 80, {0: 7, 1: 8}))
    assembler.lose_silent(80, 30)
    assert assembler.snapshot(80).instances.taken[:2].tolist() == [12, 8]
    assert assembler.snapshot(80).layout.machines == ("m-y",)


def test_a_sender_that_ended_before_the_clock_was_set_back_is_lost() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 3680, {0: 5}))
    assembler.take(report("y", 1, 80, {0: 7, 1: 8}))
    assembler.lose_silent(80, 30)
    assert assembler.snapshot(80).layout.machines == ("m-y",)


def test_a_silent_sender_of_an_earlier_life_does_not_hide_the_next() -> None:
    assembler = new_assembler()
    old = report("x", 1, 10, {0: 5})
    assembler.take(old)
    newer = report("host", 1, 80, {0: 0, 1: 0})
    columns = Instances.of(2, taken=[0, 0], busy_s=[0, 0], incarnation=[2, 2])
    assembler.take(replace(newer, instances=columns, machine_keys=(), machines=Machines.missing(0)))
    assembler.lose_silent(80, 30)
    assert assembler.snapshot(80).instances.taken[:2].tolist() == [0, 0]


def test_an_old_report_changes_nothing_and_a_gap_is_counted() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 2, 10, {0: 5}))
    assembler.take(report("x", 1, 9, {0: 99}))
    assembler.take(report("x", 5, 13, {0: 6}))
    assert assembler.snapshot(13).instances.taken[0] == 6
    assert assembler.lost_reports == 2


def test_an_instance_that_comes_back_begins_at_zero_in_a_new_incarnation() -> None:
    """Its tasks never went: the probe counts on, and without this
    all of its past would be growth.
    """
    assembler = new_assembler(2)
    assembler.take(report("x", 1, 10, {0: 10, 1: 1000}))
    first = assembler.snapshot(10)
    assembler.expect(JOB, Allocation(JOB.id, 2, {"a": 1, "b": 1}))
    assembler.take(report("x", 2, 11, {0: 20, 1: 1000}))
    second = assembler.snapshot(11)
    assembler.expect(JOB, Allocation(JOB.id, 3, {"a": 2, "b": 1}))
    assembler.take(report("x", 3, 12, {0: 30, 1: 1005}))
    third = assembler.snapshot(12)
    assert third.instances.taken[:2].tolist() == [30, 5]
    for series in (Series((second, third)), Series((first, second, third))):
        window = series.window()
        assert window is not None
        assert window.instances.taken[1] == 5


def test_jobs_come_and_go() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5}))
    assembler.forget(JOB.id)
    assert assembler.snapshot(10).layout.jobs == ()
    assembler.expect(JOB, initial(JOB))
    assert assembler.snapshot(10).layout.jobs == (JOB.id,)


def test_layouts_are_shared_while_nothing_changes() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5}))
    first = assembler.snapshot(10)
    assembler.take(report("x", 2, 11, {0: 6}))
    assert assembler.snapshot(11).layout is first.layout
    assert assembler.snapshot(11).jobs is first.jobs


@given(snapshots(), st.integers(1, 3))
def test_a_snapshot_cut_into_reports_is_put_together_again(snapshot: Snapshot, parts: int) -> None:
    """Every row to one of the senders, in any order."""
    layout = snapshot.layout
    assembler = Assembler()
    for job in snapshot.jobs.values():
        assembler.expect(job, initial(job))

    def rows(keys: list[Any], part: int) -> tuple[tuple[Any, ...], Any]:
        mine = [i for i in range(len(keys)) if i % parts == part]
        return tuple(keys[i] for i in mine), np.array(mine, dtype=np.int64)

    for part in range(parts):
        tables: dict[str, Any] = {}
        for name, keys in (
            ("instance", layout.instance_row),
            ("edge", layout.edge_row),
            ("source", layout.source_row),
            ("sink", layout.sink_row),
        ):
            mine, index = rows(list(keys), part)
            tables[f"{name}_keys"] = mine
            tables[f"{name}s"] = getattr(snapshot, f"{name}s").take(index)
            if name == "sink":
                tables["latencies"] = snapshot.latencies.take(index)
        assembler.take(Report(f"part-{part}", 1, snapshot.time_s, **tables))
    again = assembler.snapshot(snapshot.time_s)
    for name in ("edges", "sources", "sinks"):
        assert getattr(again, name).equals(getattr(snapshot, name))
    assert again.instances.taken == pytest.approx(snapshot.instances.taken, nan_ok=True)
    assert again.latencies.equals(snapshot.latencies)


def in_life(plain: Report, life: float) -> Report:
    """The same report of another life of the job."""
    count = len(plain.instances)
    lives = replace(plain.instances, incarnation=[life] * count)  # type: ignore[arg-type]
    return replace(plain, instances=lives)


def test_what_was_counted_in_an_earlier_life_does_not_count() -> None:
    """A job is started anew; one executor tells so a moment before the other does."""
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 100}))
    assembler.take(report("y", 1, 10, {0: 50}))
    assert assembler.snapshot(10).instances.taken[0] == 150
    assembler.take(in_life(report("x", 2, 11, {0: 3}), 2))
    assert assembler.snapshot(11).instances.taken[0] == 3
    assembler.take(in_life(report("y", 2, 11, {0: 2}), 2))
    assert assembler.snapshot(11).instances.taken[0] == 5


def test_a_lost_sender_is_told_by_another_and_its_machine_is_gone() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5}))
    assembler.take(report("y", 1, 10, {1: 7}))
    assembler.take(report("x", 2, 30, {0: 9}, lost=("y",)))
    snapshot = assembler.snapshot(30)
    assert snapshot.instances.taken[:2].tolist() == [9, 7]  # what it counted stays
    assert snapshot.layout.machines == ("m-x",)
    assembler.take(in_life(report("x", 3, 31, {0: 1, 1: 2}), 2))
    assert assembler.snapshot(31).instances.taken[:2].tolist() == [1, 2]


def test_an_instance_that_came_back_counts_on_when_its_job_begins_anew() -> None:
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {0: 5, 1: 7}))
    assembler.expect(JOB, Allocation(JOB.id, 2, {"a": 1, "b": 1}))
    assembler.expect(JOB, Allocation(JOB.id, 3, {"a": 2, "b": 1}))
    assembler.take(report("x", 2, 11, {0: 6, 1: 9}))
    assert assembler.snapshot(11).instances.taken[1] == 2
    assembler.take(in_life(report("x", 3, 12, {0: 1, 1: 4}), 2))
    assert assembler.snapshot(12).instances.taken[1] == 4


def test_instances_that_are_not_the_first_ones_are_rows_as_they_are_told() -> None:
    """An operator with a wish for machines uses the tasks that lie there, which may be any."""
    assembler = new_assembler()
    assembler.take(report("x", 1, 10, {1: 5, 3: 7}))
    assert [key[2] for key in assembler.snapshot(10).layout.instance_row if key[1] == "a"] == [0, 1]
    assembler.take(Report("host", 1, 10, placed={("ads/good", "a"): (1, 3)}))
    snapshot = assembler.snapshot(10)
    rows = [row for key, row in snapshot.layout.instance_row.items() if key[1] == "a"]
    assert [key[2] for key in snapshot.layout.instance_row if key[1] == "a"] == [1, 3]
    assert snapshot.instances.taken[rows].tolist() == [5, 7]
    assembler.take(Report("host", 2, 11, placed={}))
    assert [key[2] for key in assembler.snapshot(11).layout.instance_row if key[1] == "a"] == [0, 1]


def test_an_instance_is_on_the_machine_that_says_that_it_runs_there() -> None:
    """After a move both executors tell what they counted of it."""
    assembler = new_assembler()
    stays, moved = report("x", 1, 10, {0: 5, 1: 3}), report("y", 1, 10, {1: 4})
    runs = replace(stays.instances, machine=[0.0, np.nan])  # type: ignore[arg-type]
    instances = replace(moved.instances, machine=[0.0])  # type: ignore[arg-type]
    assembler.take(replace(moved, instances=instances))
    assembler.take(replace(stays, time_s=10.5, instances=runs))
    snapshot = assembler.snapshot(11)
    assert [snapshot.layout.machines[int(m)] for m in snapshot.instances.machine[:2]] == [
        "m-x",
        "m-y",
    ]
    assert snapshot.instances.taken[1] == 7


SINK = ("ads/good", "k")


def lifetimes() -> st.SearchStrategy[list[tuple[float, dict[int, float], int]]]:
    """Senders that end one after the other: their incarnation, what they took, and a latency."""
    taken = st.dictionaries(st.integers(0, 3), st.integers(0, 9).map(float), max_size=4)
    return st.lists(st.tuples(st.sampled_from([1.0, 2.0]), taken, st.integers(1, 3)), max_size=30)


def ended_sender(number: int, life: float, taken: dict[int, float], bucket: int) -> Report:
    name = f"app/{number}"
    sent = report(name, 1, 10.0 + number, taken)
    return replace(
        sent,
        instances=replace(sent.instances, incarnation=np.full(len(taken), life)),
        edge_keys=(EDGE,),
        edges=Edges.of(1, emitted=[number], incarnation=[life], clock_error_s=[0.1 * number]),
        sink_keys=(SINK,),
        sinks=Sinks.of(1, written=[bucket], incarnation=[life]),
        latencies=Sketches.of([{bucket: 1.0}]),
    )


@given(lifetimes())
def test_counts_of_senders_that_ended_are_the_same_when_they_are_added_up(
    lifetimes: list[tuple[float, dict[int, float], int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        apart, added = new_assembler(4), new_assembler(4)
        for assembler, limit in ((apart, 1000), (added, 2)):
            patch.setattr("trilithon.contract.assembler._ENDED_APART", limit)
            for number, (life, taken, bucket) in enumerate(lifetimes):
                assembler.take(ended_sender(number, life, taken, bucket))
                assembler.take(Report("app/host", number, 10.0 + number, lost=(f"app/{number}",)))
                # Its last report comes late, and once more.
                assembler.take(ended_sender(number, life, taken, bucket))
            assembler.take(report("app/last", 1, 100, {0: 1.0}))
    snapshots = [assembler.snapshot(100) for assembler in (apart, added)]
    for table in ("instances", "edges", "sources", "sinks"):
        assert getattr(snapshots[0], table).equals(getattr(snapshots[1], table)), table
    assert snapshots[0].latencies.equals(snapshots[1].latencies)
    assert snapshots[0].layout.machines == snapshots[1].layout.machines


def test_what_is_kept_does_not_grow_with_lost_senders() -> None:
    assembler = new_assembler()
    sizes = []
    for number in range(500):
        assembler.take(ended_sender(number, 1.0, {0: 1.0}, 1))
        assembler.take(Report("app/host", number, 10.0 + number, lost=(f"app/{number}",)))
        sizes.append(len(assembler._senders) + len(assembler._rows))
    assert max(sizes) <= 50
    assert assembler.snapshot(600).instances.taken[0] == 500
    assembler.forget(JOB.id)
    assembler.expect(JOB, Allocation(JOB.id, 1, {"a": 2, "b": 1}))
    assert np.isnan(assembler.snapshot(600).instances.taken).all()


def test_senders_of_an_engine_that_ended_in_silence_are_added_up_later() -> None:
    assembler = new_assembler()
    for number in range(20):
        assembler.take(report(f"old/{number}", 1, 10, {0: 1.0}))
    assembler.take(report("new/1", 1, 1000, {0: 1.0}))
    for now_s in (1000.0, 1001.0):
        assembler.lose_silent(now_s, 60)
    assert assembler.snapshot(1001).instances.taken[0] == 21
    assert len(assembler._senders) == 2
