"""The engine with two executors: measures, rescales, places, restarts, survives a lost executor."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import Flow, NoPacing, job_named
from trilithon.contract.assembler import Assembler
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Reallocate, RestartJob, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import executors, max_tasks
from trilithon.engines.spark.session import session
from trilithon.engines.spark.supervisor import RestartBackoff
from trilithon.model.allocation import initial
from trilithon.model.snapshot import Snapshot

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with session(
        "local-cluster[2,12,1024]", folder, fetch_jars(CONNECTOR), log_level="OFF"
    ) as spark:
        yield spark


class Cluster:
    """An engine with one job under load, and what is known of it."""

    def __init__(self, engine: SparkEngine, kafka: Kafka, name: str) -> None:
        # One of four partitions stays empty.
        self.engine, self.job = engine, job_named(name, 4)
        create_topics(kafka, [self.job])
        assert engine.submit(self.job, initial(self.job)).status is Status.DONE
        self.flow = Flow(kafka, name, 200.0, 3)
        self.assembler = Assembler()
        self.generation = 0

    def snapshot(self) -> Snapshot:
        accepted = self.engine.jobs()[self.job.id]
        if accepted.allocation.generation != self.generation:
            self.generation = accepted.allocation.generation
            self.assembler.expect(accepted.job, accepted.allocation)
        for report in self.engine.reports():
            self.assembler.take(report)
        return self.assembler.snapshot(time.time())

    def flowing(self) -> None:
        before = len(self.flow.got)
        self.until(lambda _: len(self.flow.got) > before + 100)

    def until(self, condition: Callable[[Snapshot], object]) -> None:
        """Waits, polling the engine as a host does."""
        until(lambda: condition(self.snapshot()), 90)

    def finish(self) -> None:
        """Nothing was lost; duplicates are counted."""
        sent = self.flow.stop_sending()
        self.flow.await_all(90)
        assert {one.number for one in self.flow.got} == set(range(sent))


@pytest.fixture
def cluster(
    spark: SparkSession, broker: Kafka, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    backoff = RestartBackoff(initial_s=0.5)
    engine = SparkEngine(
        spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20, backoff=backoff
    )
    found = Cluster(engine, broker, f"two-{request.node.name.rpartition('_')[2]}")
    yield found
    found.flow.end()
    engine.cancel(found.job.id)


def test_instances_on_both_are_measured_and_rescaled_live_and_moved(cluster: Cluster) -> None:
    cluster.engine.pacer = NoPacing()
    cluster.flowing()
    batch = cluster.engine.control.batch(cluster.job.id)
    cluster.until(lambda found: len(found.layout.machines) == 2)
    for count in (4, 1, 3):
        now = cluster.engine.jobs()[cluster.job.id].allocation
        wanted = now.rescaled({"spread": count, "keyed": count}).next_generation()
        assert cluster.engine.apply(Reallocate(wanted)).status is Status.DONE
        cluster.flowing()
    everything = cluster.snapshot()
    cluster.until(lambda found: not np.isnan(found.instances.taken).any())
    assert everything.sources.arrived[0] > 0
    # All work of an operator on one executor, then on the other: whichever tasks are there.
    unknown = replace(initial(cluster.job), generation=99, placement={"spread": ("x/7", None)})
    refused = cluster.engine.apply(Reallocate(unknown))
    assert (refused.status, refused.code) == (Status.REFUSED, "UNKNOWN_MACHINE")
    for machine in cluster.snapshot().layout.machines:
        now = (
            cluster.engine.jobs()[cluster.job.id]
            .allocation.rescaled({"spread": 2})
            .next_generation()
        )
        placed = replace(now, placement={"spread": (machine, machine)})
        assert cluster.engine.apply(Reallocate(placed)).status is Status.DONE
        time.sleep(1.5)
        before = taken_by_executor(cluster)
        cluster.flowing()
        after = taken_by_executor(cluster)
        grew = {name for name in after if after[name] > before.get(name, 0)}
        assert grew == {machine.rpartition("/")[2]}
        # The snapshot has a row for each of these instances, with its task and its machine.
        cluster.until(partial(runs_on, machine))
    cluster.finish()
    assert cluster.flow.doubled == 0
    assert cluster.engine.control.batch(cluster.job.id) == batch


def runs_on(machine: str, found: Snapshot) -> bool:
    return machines_of(found, "spread") == [machine, machine]


def machines_of(found: Snapshot, operator: str) -> list[str | None]:
    """Where the instances of an operator run, by the snapshot."""
    rows = [row for key, row in found.layout.instance_row.items() if key[1] == operator]
    machines = found.instances.machine[rows]
    return [None if np.isnan(m) else found.layout.machines[int(m)] for m in machines]


def taken_by_executor(cluster: Cluster) -> dict[str, int]:
    """How much of `spread` was taken on each executor, by the next report of each."""
    taken: dict[str, int] = {}
    deadline = time.monotonic() + 10
    while len(taken) < 2 and time.monotonic() < deadline:
        for sent in cluster.engine.control.drain_reports()["reports"]:
            mine = [one for one in sent["instances"] if one["operator"] == "spread"]
            taken[sent["executor"]] = sum(one["taken"] for one in mine)
        time.sleep(0.1)
    return taken


def test_a_restart_holds_the_readers_of_both_and_does_nothing_twice(cluster: Cluster) -> None:
    for number in range(4):
        cluster.flowing()
        outcome = cluster.engine.apply(RestartJob(f"r{number}", cluster.job.id))
        assert (outcome.status, outcome.code) == (Status.DONE, "")
    cluster.flowing()
    cluster.finish()
    assert cluster.flow.doubled == 0


def test_an_executor_that_is_killed_is_survived(cluster: Cluster, spark: SparkSession) -> None:
    cluster.flowing()
    cluster.until(lambda found: len(found.layout.machines) == 2)
    gone = executor_processes(spark)[0]
    os.kill(gone, signal.SIGKILL)
    accepted = cluster.engine.jobs
    cluster.until(lambda _: accepted()[cluster.job.id].health == "degraded")
    cluster.flowing()
    cluster.until(lambda _: executors(spark) == 2)
    # Every row is known again, though one of those who counted will never report again.
    cluster.until(lambda found: not np.isnan(found.instances.taken).any())
    assert all("/" in machine for machine in cluster.snapshot().layout.machines)
    cluster.finish()


def executor_processes(spark: SparkSession) -> list[int]:
    """The processes of this application's executors."""
    name = spark.sparkContext.applicationId
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            runs = any(part.endswith(b"CoarseGrainedExecutorBackend") for part in line)
            if runs and name.encode() in line:
                found.append(int(entry.name))
    return found


def test_half_the_executors_gone_leave_the_job_of_higher_priority_and_the_other_waits(
    spark: SparkSession, broker: Kafka, tmp_path: Path
) -> None:
    """Both jobs were restarted again and again until they were given up."""
    until(lambda: executors(spark) == 2)
    # The cluster replaces a lost executor in seconds: the limit keeps its tasks away for longer.
    limit = 24
    engine = SparkEngine(
        spark,
        broker,
        tmp_path,
        tasks=lambda: min(limit, max_tasks(spark)),
        slots=20,
        backoff=RestartBackoff(initial_s=0.5),
    )
    low, high = job_named("half-low"), job_named("half-high")
    high = replace(high, intent=replace(high.intent, priority=9.0))
    create_topics(broker, [low, high])

    def healths() -> tuple[str, str]:
        engine.reports()
        conditions = engine.conditions()
        return conditions[low.id].health.value, conditions[high.id].health.value

    try:
        for job in (low, high):
            assert engine.submit(job, initial(job)).status is Status.DONE
        limit = 12
        os.kill(executor_processes(spark)[0], signal.SIGKILL)
        until(lambda: healths() == ("degraded", "running") and waits(engine, low.id), 60)
        assert engine.conditions()[low.id].reason == "Waits for tasks: needs 10, free 2 of 12."
        undisturbed = engine.managed[high.id].running
        time.sleep(3.0)
        assert healths() == ("degraded", "running")
        until(lambda: executors(spark) == 2, 120)
        limit = 24
        until(lambda: healths() == ("running", "running"), 60)
        assert engine.managed[high.id].running is undisturbed
    finally:
        for job in (low, high):
            engine.cancel(job.id)


def waits(engine: SparkEngine, job: str) -> bool:
    return engine.conditions()[job].cause is Cause.TASKS
