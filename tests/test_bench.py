"""The benchmarks can be run: what they are made of follows the model."""

import base64
import importlib
import json
import os
import threading
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from bench import chaos, control_plane, hand_written, isolation, scale
from bench.henge import scene
from bench.measures import parts, snapshots
from bench.proofs import turns, usage
from bench.proofs.chaos_shapes import KEYS, SHAPES, Counts, Numbers
from bench.proofs.contestants import PARTITIONS, TASKS, WORKLOADS, job_of
from bench.proofs.disturbances import drawn
from bench.proofs.paced_traffic import Traffic, maker_of, sent_of
from bench.proofs.traffic import Arrival
from trilithon.engines.spark.compiler import plan_chain
from trilithon.engines.spark.whole_reports import WholeReports
from trilithon.model.series import Series
from trilithon.model.validation import validate
from trilithon.policies.henge.henge_policy import HengePolicy

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py")))
def test_every_benchmark_can_be_imported_and_says_how_it_is_run(name: str) -> None:
    found = importlib.import_module(f"bench.{name}")
    assert f"python -m bench.{name}" in (found.__doc__ or "")


def test_what_the_measures_are_timed_on_is_a_window() -> None:
    window = Series(snapshots(3, np.random.default_rng(7))).window()
    assert window is not None
    for measure in parts(window).values():
        assert measure() is not None


def test_what_henge_is_timed_on_makes_it_decide() -> None:
    assert HengePolicy().decide(scene(3), {"seed": 1}).decisions


def test_what_the_control_plane_is_timed_on_reports_every_instance(tmp_path: Path) -> None:
    """The probe's own differences, completed by the host: every row of every executor is there, and
    the rows of jobs without records have the CPU time of their threads.
    """
    class_path = control_plane.compiled(tmp_path)
    result, drained = control_plane.driver(class_path, 2, 101, 3, 100)
    assert result["driver_cores"] > 0
    idle_result, idle = control_plane.driver(class_path, 2, 101, 3, 0)
    assert idle_result["report_bytes_per_s"] < 0.5 * result["report_bytes_per_s"]
    for seconds in (drained, idle):
        whole, taken, cpu_ns = WholeReports(), [], []
        for text in seconds:
            reports, missing = whole.complete(json.loads(text))
            assert not missing
            rows = [one for report in reports["reports"] for one in report["instances"]]
            assert len(rows) == 101 * 3 * 2
            taken.append(min(one["taken"] for one in rows))
            cpu_ns.append(min(one["cpu_ns"] for one in rows))
        assert taken[0] > 0
        if seconds is drained:
            assert taken[0] < taken[1] < taken[2]
        else:
            assert taken[0] == taken[2]
            assert cpu_ns[0] < cpu_ns[1] < cpu_ns[2]
    assert control_plane.host_cores(drained, 101) > 0


def test_what_disturbs_a_run_follows_from_its_seed() -> None:
    counts = {"rescale": 5, "driver": 2, "executor": 3, "broker": 5}
    plan = drawn(7, 100_000, counts)
    assert plan == drawn(7, 100_000, counts)
    assert plan != drawn(8, 100_000, counts)
    kinds = [item.kind for item in plan]
    assert {kind: kinds.count(kind) for kind in kinds} == counts
    assert [item.after for item in plan] == sorted(item.after for item in plan)
    # Records pass before the first and after the last.
    assert plan[0].after >= 5_000
    assert plan[-1].after < 90_000


def test_what_a_run_rescales_is_elastic_and_what_it_runs_fits_its_cluster() -> None:
    assert {name: set(shape.elastic) for name, shape in SHAPES.items()} == {
        "line": {"first", "second"},
        "diamond": {"split", "left", "right", "merge"},
        "counted": {"check"},
    }
    assert all(most > 1 for shape in SHAPES.values() for most in shape.elastic.values())
    assert all(validate(shape.job) == () for shape in SHAPES.values())


def test_a_record_that_came_twice_under_one_id_is_a_double_and_under_two_ids_is_left() -> None:
    tally = Numbers(ways=2)
    for n in (0, 1, 2):
        tally.take({"n": n}, f"in-0-{n}>left")
    assert tally.newest == -1  # nothing has come on the other side
    for n in (0, 2):
        tally.take({"n": -1 - n}, f"in-0-{n}>right")
    assert tally.newest == 2
    tally.take({"n": 2}, "in-0-2>left")
    assert chaos.wrong(tally.balance(3)) == ["lost: 1"]
    tally.take({"n": -2}, "in-0-1>right")
    right = {"sent": 3, "expected": 6, "arrived_distinct": 6, "doubles": 1, "lost": 0}
    assert tally.balance(3) == {**right, "doubles_left_by_id": 0}
    tally.take({"n": -2}, "in-0-7>right")
    assert chaos.wrong(tally.balance(3)) == ["doubles_left_by_id: 1"]


def test_a_count_is_right_if_the_last_row_of_each_key_is_and_none_was_too_high() -> None:
    def tally_of(*rows: tuple[int, int, int, int]) -> Counts:
        """Of the record that caused a row, the count and the sum; the third is its id."""
        tally = Counts()
        for n, count, total, id_ in rows:
            row = {"k": n % KEYS, "count": count, "total": total, "newest": n}
            tally.take(row, f"in-0-{id_}")
        return tally

    # One record of each key, and a second of the first key.
    rows = [(n, 1, n, n) for n in range(KEYS)] + [(KEYS, 2, KEYS, KEYS)]
    replayed = tally_of(*rows, rows[0], rows[KEYS])
    assert replayed.balance(KEYS + 1)["doubles"] == 2
    assert replayed.newest == KEYS
    assert chaos.wrong(replayed.balance(KEYS + 1)) == []
    stale = tally_of(*rows, rows[0])
    assert chaos.wrong(stale.balance(KEYS + 1)) == ["keys_with_wrong_count: 1"]
    high = tally_of(*rows, (KEYS, 3, 2 * KEYS, KEYS), rows[KEYS])
    assert chaos.wrong(high.balance(KEYS + 1)) == ["keys_counted_too_high: 1"]
    short = tally_of(*rows[:-1])
    assert chaos.wrong(short.balance(KEYS + 1)) == ["lost: 1", "keys_with_wrong_count: 1"]


def test_isolation_is_told_from_the_records_of_the_calm_tenants_side_by_side() -> None:
    arrivals = [Arrival(n, float(n), 0.001 * n, (), 0.0) for n in range(1, 101)]
    span = isolation.Span.of(arrivals, 400, 10.0)
    assert (span.per_s, span.noisy_per_s) == (10.0, 40.0)
    assert (span.p50_ms, span.p95_ms) == (51.0, 96.0)
    empty = isolation.Span.of([], 0, 10.0)
    assert empty.p50_ms is None
    run = {"before": asdict(span), "during": asdict(empty), "memory_mb": 900}
    lines = isolation.table({"one application": [run], "one per tenant": [run]})
    assert lines["others' p50 ms, before"].split() == ["51.0", "51.0"]
    assert lines["others' p50 ms, during"].split() == ["n/a", "n/a"]
    assert lines["memory MB"].split() == ["900", "900"]


def test_turns_are_taken_forwards_and_backwards() -> None:
    assert [turns.in_turn("abc", number) for number in range(3)] == [
        ("a", "b", "c"),
        ("c", "b", "a"),
        ("a", "b", "c"),
    ]


def test_rounds_are_compared_in_pairs_with_an_interval() -> None:
    ours: list[turns.Measured] = [{"p50_ms": value} for value in (12.0, 22.0, None, 35.0)]
    theirs: list[turns.Measured] = [{"p50_ms": value} for value in (10.0, 20.0, 30.0, 30.0)]
    difference = turns.difference(ours, theirs, "p50_ms")
    assert difference is not None
    assert difference.mean == pytest.approx(3.0)
    # Student's t of three values: 4.303 times their deviation, 1.732, over the root of 3.
    assert difference.high == pytest.approx(3.0 + 4.303, abs=0.001)
    assert difference.low == pytest.approx(3.0 - 4.303, abs=0.001)
    one = turns.ratio(ours[:1], theirs[:1], "p50_ms")
    assert one == turns.Interval(1.2)
    assert one.text(".0%") == "120%"
    assert turns.difference(ours[2:3], theirs[2:3], "p50_ms") is None
    with pytest.raises(ValueError, match="shorter"):
        turns.difference(ours, theirs[:2], "p50_ms")


def test_means_stand_side_by_side_and_what_is_not_known_is_said() -> None:
    rounds: dict[str, list[turns.Measured]] = {
        "plain": [{"a": 1.0}, {"a": 2.0}],
        "ours": [{"a": None}, {"a": None}],
    }
    lines = turns.side_by_side(rounds, {"a": ".1f", "b": ".0f"})
    assert lines[""].split() == ["plain", "ours"]
    assert lines["a"].split() == ["1.5", "n/a"]
    assert lines["b"].split() == ["n/a", "n/a"]


@pytest.mark.parametrize(
    ("above_ms", "shares", "verdicts"),
    [
        ((0.5, 0.6, 0.4), (0.98, 0.99, 0.985), ("met", "met")),
        ((2.5, 2.6, 2.4), (0.90, 0.91, 0.89), ("missed", "missed")),
        # The mean keeps the goal, the interval contains it.
        ((0.1, 0.2, 2.4), (0.90, 1.10, 0.98), ("not resolved", "not resolved")),
        # One round says nothing, however good it looks.
        ((-35.0,), (1.9,), ("not resolved", "not resolved")),
    ],
)
def test_a_goal_is_met_or_missed_by_the_whole_interval(
    above_ms: tuple[float, ...], shares: tuple[float, ...], verdicts: tuple[str, str]
) -> None:
    plain = {"p50_ms": 10.0, "rate_per_s": 100_000.0, "cpu_us_per_record": 50.0}
    ours = [
        {"p50_ms": 10.0 + ms, "rate_per_s": 100_000.0 * share, "cpu_us_per_record": 80.0}
        for ms, share in zip(above_ms, shares, strict=True)
    ]
    lines = hand_written.verdicts({"plain": [plain] * len(ours), "trilithon": ours})
    p50, rate, cpu = lines.values()
    assert (p50.rpartition(": ")[2], rate.rpartition(": ")[2]) == verdicts
    assert cpu.startswith("+30.0")
    assert hand_written.verdicts({"trilithon": ours}) == {}


def test_the_rate_of_a_drain_is_that_from_its_first_row_to_its_last() -> None:
    """What shuffles had gathered came out in a burst, and the burst was taken for the rate."""
    waiting = [(0.1 * i, 0) for i in range(100)]
    burst = [(10.0, 100), (11.0, 110), (12.0, 120), (13.0, 800), (14.0, 1000)]
    assert hand_written.rate_of([*waiting, *burst], 1000) == pytest.approx(900 / 4)
    assert hand_written.rate_of([*waiting, *burst[:-1], (14.0, 999)], 1000) is None
    assert hand_written.rate_of([*waiting, *burst[1:]], 1000) is None


@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_is_compared_with_a_query_by_hand_is_a_job_that_spark_can_run(workload: str) -> None:
    chain = plan_chain(job_of(workload, ("read", "written")))
    assert chain.sources[0].topics == ("read",)
    assert chain.sinks[0].topic == "written"
    assert chain.tasks_per_stage[0] == PARTITIONS
    assert set(chain.tasks_per_stage[1:]) == {TASKS}
    assert all(operator.parallelism.initial == TASKS for operator in chain.operators)


def test_rows_tell_when_their_record_was_sent() -> None:
    value, rows = maker_of("text")(7, 12.25, 0.0)
    assert (json.loads(value)["n"], rows) == (7, 1)
    assert sent_of(value) == sent_of(base64.b64encode(value)) == 12.25
    make = maker_of("ads")
    made = [make(number, 12.25, 1000.5) for number in range(300)]
    assert {sent_of(value) for value, _ in made} == {12.25}
    for value, rows in made:
        event = json.loads(value)
        assert event["event_time"] == 1_000_500
        assert rows == (event["event_type"] == "view")
    assert {rows for _, rows in made} == {0, 1}


def test_traffic_tells_what_was_lost_and_what_came_twice() -> None:
    latencies_s = [0.001 * n for n in range(1, 101)]
    traffic = Traffic(300, 100, latencies_s, 10.0, 1.0)
    assert (traffic.lost, traffic.doubled) == (0, 0)
    assert traffic.quantiles_ms == {
        "p50_ms": 51.0,
        "p90_ms": 91.0,
        "p95_ms": 96.0,
        "p99_ms": 100.0,
        "max_ms": 100.0,
    }
    assert Traffic(100, 100, latencies_s[:98], 10.0, 1.0).lost == 2
    assert Traffic(98, 98, latencies_s, 10.0, 1.0).doubled == 2
    assert set(Traffic(1, 1, [], 1.0, 0.0).quantiles_ms.values()) == {None}


def test_usage_is_read_from_what_the_kernel_says(tmp_path: Path) -> None:
    process = tmp_path / "17"
    (process / "fd").mkdir(parents=True)
    behind = ["S", *["0"] * 10, "150", "50", *["0"] * 4, "42", "0"]
    (process / "stat").write_text(f"17 (a ) name) {' '.join(behind)}")
    (process / "statm").write_text("900 512 0 0 0 0 0")
    for number, target in enumerate(("socket:[1]", "/dev/null", "socket:[2]")):
        (process / "fd" / str(number)).symlink_to(target)
    found = usage.Usage.of([17, 18], tmp_path)
    cpu_s = 200 / os.sysconf("SC_CLK_TCK")
    memory_mb = 512 * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert found == usage.Usage(cpu_s, memory_mb, 42, 2)
    assert usage.processes_cpu_s([17, 18], tmp_path) == cpu_s


def test_threads_of_this_process_are_known_with_their_cpu() -> None:
    before, ended = usage.own_threads(), threading.Event()
    busy = threading.Thread(target=ended.wait)
    busy.start()
    (added,) = usage.own_threads() - before
    assert added == busy.native_id
    assert usage.threads_cpu_s([added]) < usage.threads_cpu_s(before)
    ended.set()
    busy.join()
    assert usage.threads_cpu_s([added]) == 0.0


def test_shuffles_of_a_job_need_connections_with_the_square_of_its_tasks() -> None:
    assert (scale.tasks_of(4), scale.connections_of(4)) == (10, 24)
    assert (scale.tasks_of(64), scale.connections_of(64)) == (130, 4224)


def test_only_records_that_were_sent_meanwhile_are_lost_or_doubled() -> None:
    # Numbers 0 to 2 were sent before; of the four that were sent since, one is missing.
    before = [Arrival(n, 20.0, 15.0, (), 5.0) for n in range(3)]
    since = [Arrival(n, 20.0, 1.0, (), 20.0) for n in (0, 1, 1, 3)]
    assert scale.lost_and_doubled([*before, *since], 10.0, 4) == (1, 1)


def test_figures_of_jobs_and_of_tasks_are_tables_of_their_own() -> None:
    results: dict[str, scale.Figures] = {
        "1 jobs": {"p50_ms": 5.0, "memory_mb": 700.4},
        "12 jobs": {"p50_ms": 60.0, "memory_mb": 1900.0},
        "Pmax 4": {"p50_ms": 4.0, **scale.stall_figures([300.0, 500.0, 400.0])},
        "Pmax 8": {"p50_ms": 5.0, **scale.stall_figures([])},
    }
    jobs, tasks = scale.table(results, "jobs"), scale.table(results, "Pmax")
    assert jobs["memory_mb"].split() == ["700", "1,900"]
    assert "stall_ms_median" not in jobs
    assert tasks["stall_ms_median"].split() == ["400", "n/a"]
    assert tasks["stall_ms_max"].split() == ["500", "n/a"]
