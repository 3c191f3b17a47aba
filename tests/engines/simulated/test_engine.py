"""A simulated cluster from the outside: what its snapshots show, and what faults do to it."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from tests.engines.simulated.watched import CPU, JOB, Watched, both, watched
from tests.engines.simulated.worlds import ASSUMED, TEXTBOOK, graph, line, operator, world_of
from trilithon.contract.assembler import Assembler, _in_batches
from trilithon.contract.engine import (
    Ability,
    How,
    Reallocate,
    RestartInstance,
)
from trilithon.engines.abilities import REAL_TIME
from trilithon.engines.simulated import world_tables
from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.faults import (
    ForeignLoad,
    MachineCrash,
    MetricsStop,
    SlowInstance,
    SlowMachine,
)
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.errors import NotFound
from trilithon.model.allocation import Allocation, initial
from trilithon.model.job import TimeWindow, Work
from trilithon.model.report import Report
from trilithon.workloads.shapes import Constant, StepChange


@both
def test_a_job_that_keeps_up_has_its_rate_and_no_backlog(mode: SimulationMode) -> None:
    found = watched(mode)
    snapshot = found.look(30)
    assessed = found.assess(20)
    job = snapshot.job(JOB.id)
    assert assessed.intents.values["throughput"][0] == pytest.approx(100, rel=0.15)
    assert assessed.intents.values["juice"][0] == pytest.approx(1.0, abs=0.1)
    lag = job.lag("in")
    assert lag is not None
    assert lag < 20
    row = snapshot.layout.node_names.index("second")
    assert assessed.capacity[row] == pytest.approx(0.5, abs=0.15)
    assert not assessed.back_pressure_origin.any()


@both
def test_an_overload_is_seen_at_its_origin_and_a_rescale_cures_it(mode: SimulationMode) -> None:
    found = watched(mode, rate=400.0)
    found.look(40)
    assessed = found.assess()
    names = found.series.last.layout.node_names
    assert [n for n, at in zip(names, assessed.back_pressure_origin, strict=True) if at] == [
        "second"
    ]
    assert assessed.intents.values["throughput"][0] == pytest.approx(200, rel=0.1)
    lag = found.series.last.job(JOB.id).lag("in")
    assert lag is not None
    assert lag > 4000
    wider = Allocation(JOB.id, 2, {"first": 1, "second": 4})
    assert found.engine.apply(Reallocate(wider)).changed
    found.look(60)
    assert found.series.last.job(JOB.id).lag("in") == pytest.approx(0, abs=30)
    assert found.assess().intents.values["throughput"][0] == pytest.approx(400, rel=0.1)
    assert found.series.last.job(JOB.id).parallelism == {"first": 1, "second": 4}


@both
def test_without_credits_the_backlog_lies_in_the_queue(mode: SimulationMode) -> None:
    job = line(operator("first", 2, service_ms=0.5), operator("second", 1, service_ms=5.0))
    found = watched(mode, TEXTBOOK, job, rate=300.0)
    snapshot = found.look(30)
    row = snapshot.job(job.id).instance("second", 0)
    assert row["sent"] is not None
    assert row["taken"] is not None
    assert row["sent"] - row["taken"] == pytest.approx(3000, rel=0.15)
    assert snapshot.job(job.id).lag("in") == pytest.approx(0, abs=10)


@both
def test_more_threads_than_cores_share_them(mode: SimulationMode) -> None:
    alone = watched(mode, replace(TEXTBOOK, pulls=False), CPU, rate=240.0, machines=1, cores=2.0)
    crowded = watched(mode, replace(TEXTBOOK, pulls=False), CPU, rate=240.0, machines=1, cores=1.0)
    alone.look(60)
    crowded.look(60)
    name = ("latency.mean",)
    fast, slow = (w.assess(40).intents.values[name[0]][0] for w in (alone, crowded))
    assert slow > 1.5 * fast
    snapshot = crowded.series.last
    assert snapshot.machines.load[0] == pytest.approx(2 * 0.96, rel=0.5)
    assert snapshot.machines.memory_used_bytes[0] >= 0


@both
def test_a_slow_instance_shows_equal_rates_and_unequal_queues(mode: SimulationMode) -> None:
    job = line(operator("first", 1, service_ms=0.2), operator("second", 4, service_ms=5.0))
    found = watched(mode, replace(TEXTBOOK, pulls=False), job, rate=400.0)
    found.engine.inject(SlowInstance(5.0, None, job.id, "second", 2, 2.5))
    found.look(40)
    window = found.series.window(20)
    assert window is not None
    rows = [window.layout.instance_row[job.id, "second", i] for i in range(4)]
    sent = window.instances.sent[rows]
    assert sent == pytest.approx(sent.mean(), rel=0.1)
    queue = window.queue[rows]
    assert queue[2] > 20 * max(queue[0], queue[1], queue[3])
    assert found.engine.apply(RestartInstance("r", job.id, "second", 2)).changed
    found.look(60)
    assert found.series.window(5).queue[rows[2]] < queue[2]  # type: ignore[union-attr]


@both
def test_a_crash_is_replayed_and_nothing_is_lost(mode: SimulationMode) -> None:
    job = replace(JOB, batch_s=20.0)
    found = watched(mode, SPARK_RTM, job, rate=50.0)
    found.look(10)
    found.engine.inject(MachineCrash(30.0, None, "m1"))
    before = found.look(19)
    assert before.instances.incarnation[0] == 1
    found.look(1)
    assert found.engine.jobs()[job.id].health == "degraded"
    after = found.look(30)
    assert found.engine.jobs()[job.id].health == "running"
    assert set(after.instances.incarnation) == {2}
    assert set(after.instances.machine) == {float(after.layout.machine_row["m0"])}
    # Read again since the last boundary, so more is written than comes in.
    window = found.series.window(25)
    assert window is not None
    assert window.sinks.written[0] > 25 * 50 + 100
    assert after.job(job.id).lag("in") == pytest.approx(0, abs=10)


@both
def test_machines_that_are_not_heard_leave_their_rows_missing(mode: SimulationMode) -> None:
    found = watched(mode)
    found.engine.inject(MetricsStop(10.0, 10.0))
    assert not np.isnan(found.look(8).instances.taken).any()
    assert np.isnan(found.look(8).instances.taken).all()
    assert not np.isnan(found.look(8).instances.taken).any()


@both
def test_a_slow_machine_and_foreign_load_stretch_computing(mode: SimulationMode) -> None:
    for fault in (SlowMachine(20.0, None, "m0", 0.4), ForeignLoad(20.0, None, "m0", 6.0)):
        found = watched(mode, replace(TEXTBOOK, pulls=False), CPU, rate=200.0, machines=1)
        found.engine.inject(fault)
        found.look(20)
        calm = found.assess().service_s
        found.look(40)
        stretched = found.assess().service_s
        node = found.series.last.layout.node_names.index("only")
        assert stretched[node] > 1.5 * calm[node]


def test_faults_that_overlap_add_up_and_end_one_by_one() -> None:
    engine = watched(SimulationMode.FLUID, replace(TEXTBOOK, constant_load=0.5), machines=2).engine
    for fault in (
        ForeignLoad(10.0, 20.0, "m0", 6.0),
        ForeignLoad(20.0, 20.0, "m0", 3.0),
        SlowMachine(10.0, 20.0, "m1", 0.5),
        SlowMachine(20.0, 20.0, "m1", 0.4),
        MetricsStop(10.0, 20.0),
        MetricsStop(20.0, 20.0, ("m1",)),
        MachineCrash(25.0, 10.0, "m1"),
        MachineCrash(28.0, 9.0, "m1"),
    ):
        engine.inject(fault)

    def after(seconds: float) -> tuple[list[float], list[float], list[bool], list[bool]]:
        engine.advance(seconds)
        table, machines = engine.world.machines, engine.machines
        return table["other"].tolist(), table["speed"].tolist(), machines.reporting, machines.up

    assert after(5) == ([0.5, 0.0], [1.0, 1.0], [True, True], [True, True])
    assert after(10) == ([6.5, 0.0], [1.0, 0.5], [False, False], [True, True])
    assert after(6) == ([9.5, 0.0], [1.0, 0.2], [False, False], [True, True])
    assert after(5) == ([9.5, 0.0], [1.0, 0.0], [False, False], [True, False])
    assert after(6) == ([3.5, 0.0], [1.0, 0.0], [True, False], [True, False])
    assert after(6) == ([3.5, 0.0], [1.0, 0.4], [True, False], [True, True])
    assert after(3) == ([0.5, 0.0], [1.0, 1.0], [True, True], [True, True])
    # It went and came back once, whatever the number of reasons.
    assert engine.machines.lives == [1, 2]


def test_an_instance_whose_job_is_gone_has_nothing_to_get_well_from() -> None:
    found = watched(SimulationMode.FLUID)
    found.engine.inject(SlowInstance(5.0, 20.0, JOB.id, "second", 0, 2.0))
    found.look(10)
    assert found.engine.cancel(JOB.id).changed
    found.engine.advance(30.0)
    found.engine.inject(SlowInstance(50.0, None, JOB.id, "second", 0, 2.0))
    with pytest.raises(NotFound, match="second"):
        found.engine.advance(20.0)


@both
def test_a_step_of_load_goes_through(mode: SimulationMode) -> None:
    found = watched(mode, rate=1.0)
    found.engine.feed(JOB.id, "in", StepChange(50.0, 150.0, 30.0))
    found.look(30)
    assert found.assess(20).input_rate[0] == pytest.approx(50, rel=0.2)
    found.look(30)
    assert found.assess(20).input_rate[0] == pytest.approx(150, rel=0.2)


@both
def test_spark_reports_no_more_than_spark(mode: SimulationMode) -> None:
    """What the probe inside Spark cannot tell is missing here, too."""
    found = watched(mode)
    snapshot = found.look(5)
    assert np.isnan(snapshot.machines.memory_used_bytes).all()
    assert np.isnan(snapshot.instances.weight).all()
    assert dict(SPARK_RTM.how) == {**REAL_TIME, Ability.BATCHING: How.NOT_AT_ALL}
    for name in ("sent", "taken", "emitted", "busy_s", "cpu_s", "gaps", "gap_s"):
        assert not np.isnan(snapshot.instances.column(name)).any()


@both
def test_a_job_that_was_ended_for_a_while_reads_what_came_meanwhile(mode: SimulationMode) -> None:
    found = watched(mode, rate=100.0)
    found.look(10)
    assert found.engine.cancel(JOB.id, keep=True).changed
    found.engine.advance(20.0)
    assert found.engine.submit(JOB, initial(JOB)).changed
    found.engine.advance(0.0)
    [first] = [r for r in found.engine.reports() if r.sender == "host"]
    assert first.sources.arrived[0] == pytest.approx(2000, rel=0.1)
    assert first.sources.incarnation[0] == 2


@both
def test_a_source_that_is_written_straight_to_a_sink_passes_everything_on(
    mode: SimulationMode,
) -> None:
    """A sink was once taken for an operator that reads the log by itself."""
    job = graph("straight", [operator("a", 2)], "in>a", "a>out", "other>copy")
    found = watched(mode, TEXTBOOK, job, rate=50.0)
    snapshot = found.look(10)
    row = snapshot.layout.sink_row[job.id, "copy"]
    assert snapshot.sinks.written[row] == pytest.approx(500, rel=0.15)
    assert snapshot.job(job.id).lag("other") == pytest.approx(0, abs=2)


PRINT = """
import hashlib
from tests.engines.simulated.test_engine import *
from trilithon.recording.reports import report_to_json
import json
digest = hashlib.sha256()
for mode in SimulationMode:
    found = watched(mode, rate=300.0)
    found.engine.inject(MachineCrash(10.0, 5.0, "m1"))
    for _ in range(20):
        found.engine.advance(1.0)
        for report in found.engine.reports():
            digest.update(json.dumps(report_to_json(report)).encode())
print(digest.hexdigest())
"""


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    code = "from trilithon.engines.simulated import compiled; print(compiled.cache_folder())"
    done = subprocess.run(  # noqa: S603 - this interpreter, on the line above
        [sys.executable, "-c", code],
        env={**os.environ, "TRILITHON_CACHE": str(blocked)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "None\n"


def test_importing_the_engine_makes_no_folder(tmp_path: Path) -> None:
    """The folder of compiled code was once made at import, also for commands that need none."""
    code = (
        "from tests.engines.simulated.worlds import line, operator, world_of\n"
        "from trilithon import folders\n"
        "from trilithon.engines.simulated.engine import SimulatedEngine\n"
        "from trilithon.engines.simulated.fluid_run import FluidRun\n"
        "print(folders.cache().exists())\n"
        "FluidRun(world_of(line(operator('only')))[0])\n"
        "print((folders.cache() / 'compiled').exists())\n"
    )
    done = subprocess.run(  # noqa: S603 - this interpreter, on the lines above
        [sys.executable, "-c", code],
        env={**os.environ, "TRILITHON_CACHE": str(tmp_path / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["False", "True"]


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    def run(seed: str) -> str:
        return subprocess.run(  # noqa: S603 - this interpreter, on the text above
            [sys.executable, "-c", PRINT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    assert run("1") == run("2") != ""


def test_credits_are_what_was_taken_in_a_while_and_never_fewer_than_the_least() -> None:
    world, rows = world_of(line(operator("work", 3)))
    actors = world.actors
    first = rows.actor(world, "work", 0)
    actors["taken_before"] = 0.0
    actors["taken"][first : first + 3] = [400.0, 10.0, 0.0]
    world_tables.renew_limits(world, 64, 0.5, 0.25)
    assert actors["limit"][first : first + 3].tolist() == [800, 64, 64]
    world_tables.renew_limits(world, 64, 0.5, 0.25)  # nothing was taken since
    assert actors["limit"][first : first + 3].tolist() == [64, 64, 64]


@both
def test_broadcast_gives_every_instance_every_record(mode: SimulationMode) -> None:
    job = graph(
        "told",
        [operator("a", 1, service_ms=0.1), operator("b", 3, service_ms=0.1)],
        "in>a",
        "a*b",
        "b>out",
    )
    found = watched(mode, TEXTBOOK, job, rate=50.0)
    snapshot = found.look(30)
    view = snapshot.job(job.id)
    came = view.instance("a", 0)["taken"]
    assert came == pytest.approx(1500, rel=0.1)
    for index in range(3):
        assert view.instance("b", index)["taken"] == pytest.approx(came, abs=2)
    assert float(snapshot.sinks.written[0]) == pytest.approx(3 * (came or 0.0), abs=6)


@both
def test_memory_is_what_windows_and_state_hold(mode: SimulationMode) -> None:
    window = TimeWindow("at", 30.0)
    used = {}
    for name, work, rate in (
        ("nothing", Work(), 100.0),
        ("window", Work(window=window), 100.0),
        ("twice", Work(window=window), 200.0),
        ("state", Work(aggregate=(("n", "count(*)"),)), 100.0),
    ):
        job = line(replace(operator("keep", 1, service_ms=0.1), work=work))
        assumed = replace(ASSUMED, state_bytes_per_key=500.0)
        engine = SimulatedEngine(
            [MachineSpec("m0", 4.0, 8e9)], TEXTBOOK, assumed, mode=mode, seed=5
        )
        assert engine.submit(job, initial(job)).changed
        engine.feed(job.id, "in", Constant(rate))
        snapshot = Watched(engine).look(120)
        used[name] = float(snapshot.machines.memory_used_bytes[0])
    record = ASSUMED.record_bytes
    assert used["nothing"] < 10 * record
    assert used["window"] == pytest.approx(100 * 30 * record, rel=0.1)
    assert used["twice"] == pytest.approx(2 * used["window"], rel=0.1)
    assert used["state"] == pytest.approx(500 * ASSUMED.keys, rel=0.05)


@both
def test_a_machine_that_crashed_comes_back_and_can_be_used(mode: SimulationMode) -> None:
    found = watched(mode, replace(TEXTBOOK, restart_s=2.0))
    found.engine.inject(MachineCrash(10.0, 20.0, "m1"))
    assert "m1" not in found.look(20).layout.machines
    assert "m1" in found.look(15).layout.machines
    wanted = replace(
        Allocation(JOB.id, 2, {"first": 1, "second": 2}), placement={"second": ("m1", "m1")}
    )
    assert found.engine.apply(Reallocate(wanted)).changed
    before = found.look(2)
    after = found.look(20)
    assert float(after.sinks.written[0] - before.sinks.written[0]) == pytest.approx(2000, rel=0.15)


@both
def test_what_always_computes_takes_its_part_of_the_first_machine(mode: SimulationMode) -> None:
    """A thread of 8 ms CPU per record on one core does 125 records/s,
    beside another one half of that.
    """
    job = line(operator("work", 1, service_ms=8.0, cpu_share=1.0))
    rates = []
    for load in (0.0, 1.0):
        character = replace(TEXTBOOK, pulls=False, constant_load=load)
        found = watched(mode, character, job, rate=300.0, machines=1, cores=1.0)
        before, after = found.look(10), found.look(30)
        rates.append(float(after.sinks.written[0] - before.sinks.written[0]) / 30)
    assert rates == [pytest.approx(125, rel=0.1), pytest.approx(62.5, rel=0.15)]


def test_steps_together_are_the_same_steps_one_by_one() -> None:
    """Steps are computed together up to the next timer: rescales and faults come in between, and
    instances that are not in use any more empty their queues.
    """

    def engine() -> SimulatedEngine:
        made = SimulatedEngine(
            [MachineSpec("a", 2.0, 1e9), MachineSpec("b", 2.0, 1e9)], TEXTBOOK, ASSUMED, seed=5
        )
        job = line(operator("first", 4, cpu_share=1.0), operator("second", 6, cpu_share=1.0))
        made.submit(job, initial(job))
        made.feed(job.id, "in", StepChange(900.0, 2400.0, 20.0))
        fewer = initial(job).rescaled({"first": 2, "second": 3}).next_generation()

        def rescale() -> None:
            made.apply(Reallocate(fewer))

        made.at(33.3, rescale)
        made.inject(SlowMachine(25.5, 20.0, "a", 0.5))
        return made

    together, one_by_one = engine(), engine()
    together.advance(60.0)
    for _ in range(60):
        one_by_one.advance(1.0)
    for table in ("jobs", "nodes", "edges", "actors", "machines", "histogram"):
        both_tables = [getattr(one.world, table) for one in (together, one_by_one)]
        for name in both_tables[0].dtype.names or ():
            if name != "used":  # how much of a call's last steps could be left out
                np.testing.assert_array_equal(*(rows[name] for rows in both_tables))
        if table == "histogram":
            np.testing.assert_array_equal(*both_tables)
    assert together.world.actors["held"].max() > 0
    nodes = together.world.nodes
    assert (nodes["used"] <= nodes["tasks"]).all()
    assert (nodes["used"] < nodes["tasks"]).any()


def alone(report: Report) -> Report:
    """The report as a sender of its own would make it."""
    return Report(**{f.name: getattr(report, f.name) for f in fields(Report) if f.name != "batch"})


def test_reports_of_all_machines_merge_as_if_each_came_alone() -> None:
    """Also while one is missing, and with a job that changed beside one that did not: what the
    reporter knows of the latter it takes over.
    """
    machines = [MachineSpec(f"m{i}", 2.0, 1e9) for i in (0, 2, 10)]
    engine = SimulatedEngine(machines, TEXTBOOK, ASSUMED, seed=5)
    jobs = [line(operator("a", 3), operator("b", 2), name=name) for name in ("one", "two")]
    for job in jobs:
        engine.submit(job, initial(job))
        engine.feed(job.id, "in", Constant(500.0))
    together, one_by_one = Assembler(), Assembler()
    engine.inject(MetricsStop(20.0, 10.0, ("m2",)))
    merged = []
    for fewer in ({}, {"a": 2}, {}, {"a": 4}, {}):
        if fewer:
            wanted = engine.jobs()[jobs[0].id].allocation.rescaled(fewer).next_generation()
            engine.apply(Reallocate(wanted))
        engine.advance(8.0)
        reports = engine.reports()
        by_name = sorted(reports, key=lambda report: report.sender)
        merged.append(len(_in_batches(by_name)))
        snapshots = []
        for assembler, kind in ((together, list), (one_by_one, lambda all_: map(alone, all_))):
            for accepted in engine.jobs().values():
                assembler.expect(accepted.job, accepted.allocation)
            for report in kind(reports):
                assembler.take(report)
            snapshots.append(assembler.snapshot(engine.now_s))
        for table in ("instances", "edges", "sources", "sinks", "machines", "latencies"):
            assert getattr(snapshots[0], table).equals(getattr(snapshots[1], table))
        assert not np.isnan(snapshots[0].instances.machine).all()
    # After the host's, those of the machines are one table, unless one is missing.
    assert merged == [2, 2, 3, 2, 2]
