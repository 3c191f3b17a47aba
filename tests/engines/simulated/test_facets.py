"""Every kind of change on the simulated cluster: what it does, and what it costs."""

from dataclasses import replace

import numpy as np
import pytest

from tests.engines.simulated.watched import JOB, Watched, both, watched
from tests.engines.simulated.worlds import ASSUMED, TEXTBOOK, graph, operator
from trilithon.contract.engine import (
    Ability,
    AddMachines,
    How,
    Reallocate,
    RemoveMachines,
    RestartJob,
    Status,
)
from trilithon.engines.simulated.character import SPARK_RTM, QueuedRecords, storm
from trilithon.engines.simulated.engine import SimulatedEngine, SimulationMode
from trilithon.engines.simulated.faults import (
    SlowInstance,
)
from trilithon.engines.simulated.machines import MachineSpec
from trilithon.model.allocation import Allocation, initial
from trilithon.model.columns import Floats
from trilithon.model.groups import SPREAD
from trilithon.model.intent import EdgeName
from trilithon.model.job import Work


@both
def test_machines_join_and_leave(mode: SimulationMode) -> None:
    found = watched(mode, replace(TEXTBOOK, outage_s=0.0))
    assert found.engine.apply(AddMachines("a", 2)).changed
    assert found.engine.apply(AddMachines("a", 2)).status is Status.UNCHANGED
    assert found.engine.apply(Reallocate(Allocation(JOB.id, 2, {"first": 3, "second": 3}))).changed
    snapshot = found.look(5)
    assert snapshot.layout.machines == ("m0", "m1", "m2", "m3")
    assert len(set(snapshot.instances.machine)) == 4
    assert found.engine.apply(RemoveMachines("b", ("m0", "m2", "m3"))).changed
    found.look(5)
    kept = {found.series.last.layout.machines[int(m)] for m in found.series.last.instances.machine}
    assert kept == {"m1"}
    refused = found.engine.apply(RemoveMachines("c", ("m1",)))
    assert refused.status is Status.REFUSED


def engine_with_slots(slots: int | None, tasks: int | None = None) -> SimulatedEngine:
    machines = [MachineSpec(f"m{i}", 4.0, 8e9) for i in range(3)]
    return SimulatedEngine(machines, TEXTBOOK, ASSUMED, slots=slots, tasks=tasks)


def test_a_machine_brings_its_slots_and_tasks_and_takes_them_along() -> None:
    """Machines were once added without slots: a policy that added some could not use them."""
    engine = engine_with_slots(7, tasks=20)
    assert engine.submit(JOB, initial(JOB)).changed
    assert engine.apply(AddMachines("a", 2)).changed
    found = engine.capabilities()
    assert (found.slots, found.tasks) == (11, 33)
    assert found.machine_slots == {"m0": 2, "m1": 2, "m2": 3, "m3": 2, "m4": 2}
    full = Allocation(JOB.id, 2, {"first": 6, "second": 5})
    assert engine.apply(Reallocate(full)).changed
    too_many = Allocation(JOB.id, 3, {"first": 6, "second": 6})
    assert engine.apply(Reallocate(too_many)).code == "DOES_NOT_FIT"
    refused = engine.apply(RemoveMachines("b", ("m1",)))
    assert refused.code == "DOES_NOT_FIT"
    assert "4 machines would have 9 slots; 11 are in use, by t/line (11)" in refused.message
    assert engine.capabilities() == found
    assert engine.machines.names() == ["m0", "m1", "m2", "m3", "m4"]
    assert engine.apply(Reallocate(Allocation(JOB.id, 4, {"first": 3, "second": 4}))).changed
    assert engine.apply(RemoveMachines("b", ("m1", "m1"))).changed
    assert engine.capabilities().slots == 9
    assert engine.apply(RemoveMachines("c", ("m4",))).changed
    assert engine.capabilities().slots == 7
    assert engine.apply(RemoveMachines("d", ())).status is Status.REFUSED


def test_tasks_that_are_held_keep_a_machine() -> None:
    engine = engine_with_slots(None, tasks=20)
    assert engine.submit(JOB, initial(JOB)).changed  # holds 8 tasks per operator and a reader
    refused = engine.apply(RemoveMachines("a", ("m2",)))
    assert refused.code == "DOES_NOT_FIT"
    assert "2 machines would have 13 tasks; 17 are in use" in refused.message
    able = engine.capabilities()
    assert (able.machine_tasks, able.tasks_used) == ({"m0": 6, "m1": 7, "m2": 7}, 17)


def test_without_a_limit_there_is_none_with_any_number_of_machines() -> None:
    engine = engine_with_slots(None)
    assert engine.apply(AddMachines("a", 1)).changed
    found = engine.capabilities()
    assert (found.slots, found.tasks) == (None, None)
    assert found.machine_slots == {}


@both
def test_instances_leave_a_machine_that_is_removed_though_they_were_placed_there(
    mode: SimulationMode,
) -> None:
    found = watched(mode, replace(TEXTBOOK, outage_s=3.0))
    placed = replace(
        Allocation(JOB.id, 2, {"first": 1, "second": 2}), placement={"second": ("m1", "m1")}
    )
    assert found.engine.apply(Reallocate(placed)).changed
    found.look(5)
    outcome = found.engine.apply(RemoveMachines("a", ("m1",)))
    assert outcome.changed
    assert outcome.took_s == 3.0
    snapshot = found.look(5)
    assert {snapshot.layout.machines[int(m)] for m in snapshot.instances.machine} == {"m0"}


def test_everything_is_possible_in_the_character_of_storm() -> None:
    assert {TEXTBOOK.how[ability] for ability in Ability} == {How.LIVE, How.WITH_OUTAGE}
    impossible = {ability for ability in Ability if SPARK_RTM.how[ability] is How.NOT_AT_ALL}
    assert impossible == {
        Ability.BATCHING,
        Ability.RESTART_INSTANCE,
        Ability.ADD_MACHINES,
        Ability.REMOVE_MACHINES,
    }


@both
def test_a_restarted_job_has_no_slow_instance(mode: SimulationMode) -> None:
    found = watched(mode, replace(TEXTBOOK, restart_s=1.0))
    found.engine.inject(SlowInstance(2.0, None, JOB.id, "second", 0, 3.0))
    found.look(20)
    node = found.series.last.layout.node_names.index("second")
    assert found.assess().service_s[node] == pytest.approx(0.015, rel=0.2)
    assert found.engine.apply(RestartJob("r", JOB.id)).took_s == 1.0
    found.look(20)
    assert found.assess().service_s[node] == pytest.approx(0.005, rel=0.2)


@both
def test_batching_changes_without_an_outage_and_ends_when_it_is_no_longer_wanted(
    mode: SimulationMode,
) -> None:
    """An edge that an allocation no longer named once went on batching."""
    found = watched(mode, replace(TEXTBOOK, outage_s=30.0, pulls=False))
    batched = replace(initial(JOB), generation=2, batching_ms={EdgeName("first", "second"): 40.0})
    assert found.engine.apply(Reallocate(batched)).took_s == 0.0
    found.look(20)
    assert found.engine.jobs()[JOB.id].health == "running"
    assert found.assess().intents.values["latency.mean"][0] > 25
    assert found.engine.apply(Reallocate(replace(initial(JOB), generation=3))).took_s == 0.0
    found.look(20)
    assert found.assess().intents.values["latency.mean"][0] < 20


@both
def test_the_load_moves_with_the_hot_key_group(mode: SimulationMode) -> None:
    """Key 1 of 1,000 has 13 % of the records at a Zipf exponent of 1, and lies in group 0."""
    keyed = operator("count", 2, service_ms=1.0, zipf=1.0)
    job = graph("keyed", [operator("a", service_ms=0.2), keyed], "in>a", "a=count", "count>out")
    found = watched(mode, job=job, rate=400.0)
    found.look(20)

    def shares() -> Floats:
        window = found.series.window(15)
        assert window is not None
        rows = [window.layout.instance_row[job.id, "count", index] for index in range(2)]
        taken = window.instances.taken[rows]
        share: Floats = taken / taken.sum()
        return share

    groups = found.engine.running[job.id].groups["count"]
    before, hot = shares(), groups[0]
    assert before[hot] > 0.5
    moved = (1 - hot, *groups[1:])
    wanted = replace(initial(job), generation=2, groups={"count": moved})
    assert found.engine.apply(Reallocate(wanted)).changed
    found.look(20)
    assert found.engine.running[job.id].groups["count"] == moved
    hottest = 1 / (1 / np.arange(1, 1001)).sum()
    assert before[hot] - shares()[hot] == pytest.approx(hottest, abs=0.03)


@both
def test_a_group_that_is_spread_is_dealt_over_all_instances(mode: SimulationMode) -> None:
    keyed = operator("count", 4, service_ms=1.0, hot_key=0.6)
    job = graph("keyed", [operator("a", service_ms=0.2), keyed], "in>a", "a=count", "count>out")
    found = watched(mode, job=job, rate=400.0)
    found.look(2)
    groups = found.engine.running[job.id].groups["count"]
    wanted = replace(initial(job), generation=2, groups={"count": (SPREAD, *groups[1:])})
    assert found.engine.apply(Reallocate(wanted)).changed
    found.look(25)
    window = found.series.window(20)
    assert window is not None
    taken = [
        window.instances.taken[window.layout.instance_row[job.id, "count", index]]
        for index in range(4)
    ]
    assert np.array(taken) / sum(taken) == pytest.approx(0.25, abs=0.04)


@both
def test_batching_delays_records_at_the_sender(mode: SimulationMode) -> None:
    job = graph(
        "batched",
        [operator("a", 1, service_ms=0.2), operator("b", 1, service_ms=0.2)],
        "in>a",
        "a>b",
        "b>out",
    )
    found = watched(mode, TEXTBOOK, job, rate=200.0)
    found.look(20)
    before = found.assess().intents.values["latency.mean"][0]
    wanted = replace(initial(job), generation=2, batching_ms={EdgeName("a", "b"): 40.0})
    assert found.engine.apply(Reallocate(wanted)).changed
    found.look(30)
    after = found.assess().intents.values["latency.mean"][0]
    # With eight more in each batch: (40 + 8 · 20) / 9.
    assert after - before == pytest.approx(22.2, rel=0.15)


@both
def test_placement_and_weights_are_obeyed(mode: SimulationMode) -> None:
    found = watched(mode)
    wanted = replace(
        Allocation(JOB.id, 2, {"first": 2, "second": 2}),
        weights={"second": (3.0, 1.0)},
        placement={"first": ("m1", "m1")},
    )
    assert found.engine.apply(Reallocate(wanted)).changed
    found.look(30)
    window = found.series.window(20)
    assert window is not None
    row = window.layout.instance_row
    sent = window.instances.sent
    share = sent[row[JOB.id, "second", 0]] / sent[row[JOB.id, "second", 1]]
    assert share == pytest.approx(3.0, rel=0.05)
    assert {window.instances.machine[row[JOB.id, "first", i]] for i in range(2)} == {
        float(window.layout.machine_row["m1"])
    }
    strange = replace(wanted, generation=3, placement={"first": ("nowhere", None)})
    assert found.engine.apply(Reallocate(strange)).code == "NOT_FOUND"


@both
def test_a_restart_with_another_file_goes_on_with_the_log(mode: SimulationMode) -> None:
    found = watched(mode, rate=400.0)
    found.look(20)
    lag = found.series.last.job(JOB.id).lag("in")
    assert lag is not None
    wider = replace(JOB, operators=(JOB.operators[0], operator("second", 4, service_ms=1.0)))
    action = RestartJob("again", JOB.id, wider)
    assert found.engine.apply(action).changed
    assert found.engine.apply(action).status is Status.UNCHANGED
    assert found.engine.jobs()[JOB.id].job == wider
    found.look(1)
    first = found.series.last
    assert first.instances.incarnation[0] == 2
    assert first.job(JOB.id).lag("in") == pytest.approx(lag + 400, rel=0.1)
    found.look(40)
    assert found.series.last.job(JOB.id).lag("in") == pytest.approx(0, abs=40)


@both
def test_key_groups_move_as_little_as_possible_and_as_they_are_told(mode: SimulationMode) -> None:
    job = graph(
        "keyed",
        [operator("a", 1, service_ms=0.2), operator("b", 2, service_ms=1.0)],
        "in>a",
        "a=b",
        "b>out",
    )
    found = watched(mode, job=job, rate=200.0)
    found.look(2)
    before = found.engine.running[job.id].groups["b"]
    assert found.engine.apply(Reallocate(initial(job).rescaled({"b": 3}).next_generation())).changed
    found.look(2)
    after = found.engine.running[job.id].groups["b"]
    moved = [a for a, b in zip(after, before, strict=True) if a != b]
    assert set(moved) == {2}
    all_to_one = replace(
        initial(job), generation=3, parallelism={"a": 1, "b": 3}, groups={"b": (1,) * 1024}
    )
    assert found.engine.apply(Reallocate(all_to_one)).changed
    found.look(20)
    window = found.series.window(10)
    assert window is not None
    rows = [window.layout.instance_row[job.id, "b", i] for i in range(3)]
    assert window.instances.sent[rows].tolist()[::2] == [0, 0]
    assert window.instances.sent[rows[1]] == pytest.approx(2000, rel=0.1)


@both
@pytest.mark.parametrize("waiting", list(QueuedRecords))
def test_what_waits_when_storm_changes_a_job_is_kept_dealt_anew_or_lost(
    mode: SimulationMode, waiting: QueuedRecords
) -> None:
    """Of 400 records/s one instance of `second` does 200: 4,000 wait after twenty seconds."""
    character = storm(transit_s=0.0, outage_s=0.0, restart_s=0.0, waiting=waiting)
    found = watched(mode, character, rate=400.0)
    found.look(20)
    wanted = initial(JOB).rescaled({"second": 4}).next_generation()
    assert found.engine.apply(Reallocate(wanted)).changed
    snapshot = found.look(1)
    window = found.series.window(1)
    assert window is not None
    rows = [snapshot.layout.instance_row[JOB.id, "second", index] for index in range(4)]
    queues = window.queue[rows]
    if waiting is QueuedRecords.KEPT:
        assert queues[0] > 3000
        assert queues[1:].max() < 100
    elif waiting is QueuedRecords.DEALT:
        assert queues == pytest.approx([queues.mean()] * 4, rel=0.1)
        assert 2500 < queues.sum() < 4500
    else:
        assert queues.sum() < 100
    found.look(19)
    wrote = snapshot_of(found, "out")
    lost = 20 * 400 + 20 * 400 - wrote
    if waiting is QueuedRecords.LOST:
        assert lost == pytest.approx(4000, rel=0.2)
        # What was lost was not processed: juice tells.
        assert found.assess(40).intents.values["juice"][0] == pytest.approx(0.75, abs=0.05)
    elif waiting is QueuedRecords.DEALT:
        assert lost < 400


def snapshot_of(found: Watched, sink: str) -> float:
    last = found.series.last
    return float(last.sinks.written[last.layout.sink_row[JOB.id, sink]])


@both
def test_a_job_with_state_stands_longer_and_may_be_changed_only_where_state_moves(
    mode: SimulationMode,
) -> None:
    counts = replace(JOB.operators[1], work=Work(aggregate=(("n", "count(*)"),)))
    job = replace(JOB, operators=(JOB.operators[0], counts))
    character = storm(transit_s=0.0, outage_s=10.0, restart_s=30.0, state_s=5.0)
    for one, stands_s in ((JOB, 10.0), (job, 15.0)):
        found = watched(mode, character, one)
        outcome = found.engine.apply(
            Reallocate(initial(one).rescaled({"second": 2}).next_generation())
        )
        assert outcome.took_s == stands_s
        assert not found.engine.capabilities().fixed
    assert watched(mode, SPARK_RTM, job).engine.capabilities().fixed == {job.id: ("second",)}


@both
def test_an_outage_of_storm_stands_still_and_catches_up(mode: SimulationMode) -> None:
    character = replace(TEXTBOOK, outage_s=10.0)
    found = watched(mode, character, rate=100.0)
    found.look(20)
    assert found.engine.apply(
        Reallocate(initial(JOB).rescaled({"second": 3}).next_generation())
    ).changed
    found.look(9)
    assert found.assess(6).intents.values["throughput"][0] == 0
    found.look(20)
    window = found.series.window(19)
    assert window is not None
    assert window.sinks.written[0] > 19 * 100 + 500


def test_an_allocation_holds_a_tenth_of_a_second_after_it_was_asked_for() -> None:
    found = watched(SimulationMode.EVENTS, rate=1000.0)
    found.look(5)
    assert found.engine.apply(Reallocate(Allocation(JOB.id, 2, {"first": 1, "second": 4}))).changed

    def sent() -> float:
        reports = found.engine.reports()
        return sum(
            float(np.nan_to_num(report.instances.sent[row]))
            for report in reports
            for row, key in enumerate(report.instance_keys)
            if key[1:] == ("second", 3)
        )

    found.engine.advance(SPARK_RTM.act_s - 0.02)
    assert sent() == 0
    found.engine.advance(0.1)
    assert sent() > 0
