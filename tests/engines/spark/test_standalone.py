"""A standalone cluster on this machine: its processes, and machines that join and leave a job."""

import json
import os
import signal
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs
from typer.testing import CliRunner

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import NoPacing
from tests.engines.spark.loaded_cluster import Cluster, executor_processes, machines_of
from tests.measured import Measured
from trilithon.cli.main import app
from trilithon.contract.engine import (
    Ability,
    AddMachines,
    How,
    Reallocate,
    RemoveMachines,
    Status,
)
from trilithon.engines.spark.background_process import command_line
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import session
from trilithon.engines.spark.standalone import StandaloneCluster
from trilithon.engines.spark.warm_up import WARM_UP
from trilithon.errors import ClusterUnavailable
from trilithon.experiments.stela.live_scaling import longest_gap_s
from trilithon.experiments.stela.spark_cluster import (
    REQUEST_S,
    WORKERS,
    SparkClusters,
    SparkLiveCluster,
    cores_per_worker,
)
from trilithon.model.snapshot import Snapshot
from trilithon.policies.requests import ScalingKind

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

# Tasks of a worker: two of them hold a Diamond.
CORES = cores_per_worker()
SETTLE_S, MEASURED_S = 20.0, 5.0


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A cluster that the command starts and stops."""
    state = str(tmp_path_factory.mktemp("state"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRILITHON_STATE", state)
        try:
            sizes = ("--workers", "2", "--cores", str(CORES), "--memory", "1024")
            started = command("start", *sizes)
            listed = command("status")["standalone"]
            assert [worker["cores_used"] for worker in listed["workers"]] == [0, 0]
            assert listed["master"] == started["master"]
            yield StandaloneCluster()
        finally:
            stopped = command("stop")
            assert len(stopped["pids"]) == 3
            assert not any(any(command_line(pid)) for pid in stopped["pids"])
            assert command("stop") == {"stopped": False, "pids": []}


def command(*arguments: str) -> dict[str, Any]:
    """The answer of `trilithon cluster …`, as JSON."""
    result = CliRunner().invoke(app, ["cluster", *arguments, "-o", "json"])
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


@pytest.fixture(scope="module")
def spark(
    standalone: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    master = standalone.status().master
    assert master is not None
    folder, jars = tmp_path_factory.mktemp("spark"), fetch_jars(CONNECTOR)
    with session(master, folder, jars, executors=2, log_level="OFF") as spark:
        yield spark


def test_a_second_start_leaves_everything_alone_and_a_dead_worker_is_replaced(
    standalone: StandaloneCluster,
) -> None:
    before = standalone.start(2, CORES, 1024)
    assert before.ready
    assert standalone.start(2, CORES, 1024) == before
    assert before.master is not None
    assert standalone.owns(before.master)
    assert not standalone.owns("spark://127.0.0.1:1")
    killed = before.workers[0].pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    until(lambda: not any(command_line(killed)))
    assert standalone.status().workers[0].pid is None
    after = standalone.start(2, CORES, 1024)
    assert after.pid == before.pid
    assert after.workers[0] == before.workers[1]
    assert after.workers[1].pid not in {None, killed}


def test_a_folder_without_a_cluster_has_none_and_says_how_to_start_one(tmp_path: Path) -> None:
    cluster = StandaloneCluster(tmp_path)
    assert cluster.status().pid is None
    assert cluster.stop() == []
    with pytest.raises(ClusterUnavailable, match="No master runs"):
        cluster.add_workers(1)


@pytest.fixture
def cluster(
    spark: SparkSession,
    standalone: StandaloneCluster,
    broker: Kafka,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Cluster]:
    engine = SparkEngine(
        spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20, cluster=standalone
    )
    loaded = Cluster(engine, broker, f"alone-{request.node.name.rpartition('_')[2]}")
    yield loaded
    loaded.flow.end()
    engine.cancel(loaded.job.id)


def test_machines_join_and_leave_a_running_job_and_no_record_is_lost(
    cluster: Cluster, standalone: StandaloneCluster, spark: SparkSession
) -> None:
    engine, job = cluster.engine, cluster.job.id
    engine.pacer = NoPacing()
    cluster.flowing()
    cluster.until(lambda seen: len(seen.layout.machines) == 2)
    old = cluster.snapshot().layout.machines
    abilities = engine.capabilities()
    assert abilities.of(Ability.ADD_MACHINES) is How.LIVE
    assert abilities.of(Ability.REMOVE_MACHINES) is How.AT_BOUNDARY
    assert (abilities.slots, abilities.machine_slots) == (20, dict.fromkeys(old, 10))
    assert set(abilities.machine_tasks) == set(old)
    assert sum(abilities.machine_tasks.values()) == abilities.tasks
    assert abilities.tasks_used == engine.ledger.entries[job].tasks
    cluster.until(lambda seen: not np.isnan(seen.machines.memory_used_bytes).any())
    assert (cluster.snapshot().machines.memory_bytes > 2**29).all()

    # A machine joins: it computes what the job runs, once. It has no task of the job before the
    # next batch, and a placement on it begins one.
    computed = tasks_done(spark)
    with capture_logs() as events:
        assert engine.apply(AddMachines("add1", 1)).status is Status.DONE
    assert events == []
    (joined,) = tasks_done(spark).keys() - computed.keys()
    assert tasks_done(spark)[joined] > 0
    assert WARM_UP not in engine.ledger.entries
    assert engine.apply(AddMachines("add1", 1)).status is Status.UNCHANGED
    assert len(standalone.status().workers) == 3
    cluster.until(lambda seen: len(seen.layout.machines) == 3)
    (new,) = set(cluster.snapshot().layout.machines) - set(old)
    assert engine.capabilities().slots == 30
    wanted = engine.jobs()[job].allocation.rescaled({"spread": 2}).next_generation()
    placed = replace(wanted, placement={"spread": (old[0], new)})
    outcome = engine.apply(Reallocate(placed))
    assert (outcome.status, outcome.code) == (Status.DONE, "AT_BOUNDARY")
    cluster.until(partial(runs_on, {old[0], new}))

    # It stays there, batch after batch, though Spark places the tasks anew each time.
    for _ in range(3):
        end_batch(cluster)
        cluster.flowing()
        cluster.until(partial(runs_on, {old[0], new}))

    # It leaves, drained, and its work is done by the others.
    gone = engine.apply(RemoveMachines("in1", (new,)))
    assert (gone.status, gone.message) == (Status.DONE, "")
    assert engine.apply(RemoveMachines("in1", (new,))).status is Status.UNCHANGED
    assert len(standalone.status().workers) == 2
    assert engine.capabilities().slots == 20
    cluster.flowing()
    cluster.until(lambda seen: set(seen.layout.machines) == set(old))
    until(lambda: len(executor_processes(spark)) == 2)
    cluster.finish()
    assert cluster.flow.doubled == 0


def tasks_done(spark: SparkSession) -> dict[str, int]:
    """The tasks that each executor has computed to their end."""
    context: Any = spark.sparkContext._jsc.sc()
    listed = context.statusStore().executorList(True)
    executors = [listed.apply(i) for i in range(listed.size())]
    return {str(e.id()): int(e.completedTasks()) for e in executors if e.id() != "driver"}


def end_batch(cluster: Cluster) -> None:
    """Ends the job's batch and waits for the next one."""
    job, control = cluster.job.id, cluster.engine.control
    batch = control.batch(job)
    assert cluster.engine.boundaries.end(job)
    cluster.until(lambda _: control.batch(job) != batch)


def runs_on(machines: set[str], seen: Snapshot) -> bool:
    return set(machines_of(seen, "spread")) == machines


def test_a_removal_that_cannot_be_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    engine = cluster.engine
    cluster.flowing()
    cluster.until(lambda seen: len(seen.layout.machines) == 2)
    machines = cluster.snapshot().layout.machines
    for leaving, code in (
        (("nowhere/9",), "UNKNOWN_MACHINE"),
        (machines, "DOES_NOT_FIT"),
    ):
        outcome = engine.apply(RemoveMachines(f"no-{code}", leaving))
        assert (outcome.status, outcome.code) == (Status.REFUSED, code)
    # Too few tasks would be left for the jobs.
    engine.ledger.entries["other/job"] = replace(engine.ledger.entries[cluster.job.id], tasks=CORES)
    outcome = engine.apply(RemoveMachines("no-room", machines[:1]))
    assert (outcome.status, outcome.code) == (Status.REFUSED, "DOES_NOT_FIT")
    engine.ledger.release("other/job")
    assert not any(executor.excluded for executor in engine.machines.executors.list().values())
    cluster.flowing()
    cluster.finish()


def test_a_machine_that_is_added_by_command_raises_throughput_and_is_given_back(
    spark: SparkSession,
    standalone: StandaloneCluster,
    broker: Kafka,
    tmp_path: Path,
    measured: Measured,
) -> None:
    """A job of several parts, each a query with batches of its own."""
    clusters = SparkClusters(spark, broker, standalone, tmp_path)
    with clusters.start("diamond", "stela") as live:
        live.wait(SETTLE_S)
        before_per_s = statistics.median(rate(live) for _ in range(3))
        asked_s = live.now_s()
        live.scale_out()
        assert len(standalone.status().workers) == 3
        assert live.given["middle"] >= 1
        # One machine's share, wherever Spark has moved instances meanwhile.
        assert sum(live.given.values()) == live.job.instances / WORKERS
        # The new instances are on the new machine, and on it alone.
        placement = live.engine.jobs()[live.job.id].allocation.placement["middle"]
        (new,) = set(placement[2:])
        assert new not in placement[:2]
        until(lambda: rate(live) > 1.2 * before_per_s, 180)
        more_s = live.now_s()
        # Records are sent and flow while the machine leaves, too.
        arrived = live.arrived()
        live.scale_in()
        assert arrived < live.arrived()
        assert len(standalone.status().workers) == 2
        left_s = live.now_s()
        sent = live.stop_sending()
        arrivals = live.arrivals()
        assert Counter(each.id for each in arrivals) == Counter(sent)
        out_s = longest_gap_s(arrivals, asked_s, more_s)
        in_s = longest_gap_s(arrivals, more_s, left_s)
        measured.within("longest gap while a machine is added", out_s, 10)
        measured.within("longest gap while a machine leaves", in_s, 10)


def test_a_machine_that_is_named_is_drained_and_given_back_without_losing_a_record(
    spark: SparkSession, standalone: StandaloneCluster, broker: Kafka, tmp_path: Path
) -> None:
    """One of those that the job began on, whatever throughput needs."""
    clusters = SparkClusters(spark, broker, standalone, tmp_path)
    with clusters.start("diamond", "stela") as live:
        live.wait(SETTLE_S)
        leaving = min(live.engine.capabilities().machine_slots)
        live.scale_out()
        there = set(live.engine.capabilities().machine_slots)
        arrived, daemon = live.arrived(), live.system.daemon
        request = daemon.cluster_commands.scale(ScalingKind.IN, machine_names=(leaving,))
        daemon.wake()
        until(lambda: daemon.journal.requests(1)[0].done is not None, REQUEST_S)
        (row,) = daemon.journal.requests(1)
        assert (row.request, row.done) == (request, True), row.message
        assert set(live.engine.capabilities().machine_slots) == there - {leaving}
        assert len(standalone.status().workers) == 2
        # Records are sent and flow while the machine leaves, and afterwards.
        assert arrived < live.arrived()
        arrived = live.arrived()
        until(lambda: live.arrived() > arrived, 60)
        sent = live.stop_sending()
        assert Counter(each.id for each in live.arrivals()) == Counter(sent)


def rate(live: SparkLiveCluster) -> float:
    before, began_s = live.arrived(), live.now_s()
    live.wait(MEASURED_S)
    return (live.arrived() - before) / (live.now_s() - began_s)
