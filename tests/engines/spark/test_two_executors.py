"""The engine with two executors: measures, rescales, places, restarts, survives a lost executor."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.diamond import Scene, diamond
from tests.engines.spark.flow import Flow, NoPacing, job_named, read_all
from tests.engines.spark.loaded_cluster import Cluster, executor_processes, machines_of
from tests.measured import Measured, allowed_s
from trilithon.contract.assembler import Assembler
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Reallocate, RemoveMachines, RestartJob, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import executors, max_tasks
from trilithon.engines.spark.session import session
from trilithon.engines.spark.supervisor import RestartBackoff
from trilithon.model.allocation import initial
from trilithon.model.snapshot import Snapshot
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

# How soon records flow again after an executor was killed, on an idle machine.
GOES_ON_S = 10.0
STOPPED_S = 10.0


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with session(
        "local-cluster[2,12,1024]", folder, fetch_jars(CONNECTOR), log_level="OFF"
    ) as spark:
        yield spark


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
        until(partial(works_on, cluster, machine))
        # The snapshot has a row for each of these instances, with its task and its machine.
        cluster.until(partial(runs_on, machine))
    cluster.finish()
    assert cluster.flow.doubled == 0
    assert cluster.engine.control.batch(cluster.job.id) == batch


def runs_on(machine: str, found: Snapshot) -> bool:
    return machines_of(found, "spread") == [machine, machine]


def works_on(cluster: Cluster, machine: str) -> bool:
    """Whether only this executor takes records of `spread` now."""
    before = taken_by_executor(cluster)
    cluster.flowing()
    after = taken_by_executor(cluster)
    grew = {name for name in after if after[name] > before.get(name, 0)}
    return len(before) == len(after) == 2 and grew == {machine.rpartition("/")[2]}


def taken_by_executor(cluster: Cluster) -> dict[str, int]:
    """How much of `spread` was taken on each executor, by the next report of each."""
    taken: dict[str, int] = {}
    deadline = time.monotonic() + 60
    while len(taken) < 2 and time.monotonic() < deadline:
        for sent in cluster.engine.control.drain_reports()["reports"]:
            mine = [one for one in sent["instances"] if one["operator"] == "spread"]
            taken[sent["executor"]] = sum(one["taken"] for one in mine)
        time.sleep(0.1)
    return taken


def test_an_avoided_task_takes_nothing_with_and_without_a_placement(cluster: Cluster) -> None:
    """Neither does it after a scale-up."""
    cluster.engine.pacer = NoPacing()
    cluster.flowing()
    cluster.until(lambda found: len(found.layout.machines) == 2)
    machine = cluster.snapshot().layout.machines[0]
    for place in (None, machine):
        for places in ((None, place), (None, place, None)):
            now = cluster.engine.jobs()[cluster.job.id].allocation
            wanted = replace(
                now.rescaled({"spread": len(places)}).next_generation(),
                avoided={"spread": (1,)},
                placement={"spread": places},
            )
            assert cluster.engine.apply(Reallocate(wanted)).status is Status.DONE
            until(partial(takes_nothing, cluster, 1))
            cluster.until(partial(works_without, 1, len(places)))
    cluster.finish()
    assert cluster.flow.doubled == 0


def takes_nothing(cluster: Cluster, task: int) -> bool:
    """Whether a task of `spread` takes no records while others do."""
    before = taken_by_task(cluster)
    cluster.flowing()
    after = taken_by_task(cluster)
    grew = {index for index in after if after[index] > before.get(index, 0)}
    return bool(grew) and task not in grew


def taken_by_task(cluster: Cluster) -> dict[int, int]:
    """How much each task of `spread` took, by what the probe has counted."""
    rows = cluster.engine.control.totals(cluster.job.id)
    return {row["index"]: row["taken"] for row in rows if row["operator"] == "spread"}


def works_without(task: int, count: int, found: Snapshot) -> bool:
    """Whether the snapshot has a row for each instance, and none for this task."""
    rows = [key[2] for key in found.layout.instance_row if key[1] == "spread"]
    return len(rows) == count and task not in rows


def test_a_restart_holds_the_readers_of_both_and_does_nothing_twice(cluster: Cluster) -> None:
    for number in range(4):
        cluster.flowing()
        outcome = cluster.engine.apply(RestartJob(f"r{number}", cluster.job.id))
        assert (outcome.status, outcome.code) == (Status.DONE, "")
    cluster.flowing()
    cluster.finish()
    assert cluster.flow.doubled == 0


def test_an_executor_that_is_killed_is_survived(
    cluster: Cluster, spark: SparkSession, measured: Measured
) -> None:
    cluster.flowing()
    cluster.until(lambda found: len(found.layout.machines) == 2)
    gone = executor_processes(spark)[0]
    os.kill(gone, signal.SIGKILL)
    killed_s, accepted, flow = time.time(), cluster.engine.jobs, cluster.flow
    cluster.until(lambda _: accepted()[cluster.job.id].health == "degraded")
    sent = flow.sent_while_down()
    cluster.until(lambda _: flow.goes_on_s(sent))
    measured.within("goes on", (flow.goes_on_s(sent) or 0.0) - killed_s, GOES_ON_S)
    cluster.until(lambda _: executors(spark) == 2)
    # Every row is known again, though one of those who counted will never report again.
    cluster.until(lambda found: not np.isnan(found.instances.taken).any())
    assert all("/" in machine for machine in cluster.snapshot().layout.machines)
    cluster.finish()
    assert flow.removable_by_id()


def test_an_executor_that_is_stopped_for_ten_seconds_loses_nothing(
    cluster: Cluster, spark: SparkSession
) -> None:
    """It is not declared dead: its tasks go on where they were, and nothing is replayed."""
    cluster.engine.pacer = NoPacing()
    cluster.flowing()
    cluster.until(lambda seen: len(seen.layout.machines) == 2)
    batch = cluster.engine.control.batch(cluster.job.id)
    stopped, sent = executor_processes(spark)[0], cluster.flow.sent
    os.kill(stopped, signal.SIGSTOP)
    try:
        until_s = time.monotonic() + STOPPED_S
        while time.monotonic() < until_s:
            cluster.snapshot()
            time.sleep(0.2)
    finally:
        os.kill(stopped, signal.SIGCONT)
    # Records came meanwhile; how many, depends on what the machine left to their sender.
    assert cluster.flow.sent > sent + 0.1 * STOPPED_S * cluster.flow.rate_per_s
    cluster.flowing()
    cluster.finish()
    assert cluster.flow.doubled == 0
    assert cluster.engine.control.batch(cluster.job.id) == batch
    assert executor_processes(spark).count(stopped) == 1


def test_a_diamond_survives_the_kill_of_an_executor(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path, measured: Measured
) -> None:
    """Readers of internal topics begin anew on another executor: they know the ids of the records
    before by reading them.
    """
    until(lambda: executors(spark) == 2)
    backoff = RestartBackoff(initial_s=0.5)
    engine = SparkEngine(
        spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20, backoff=backoff
    )
    scene = Scene(engine, topics, diamond("killed"))
    try:
        with scene.under_load(200.0) as flow:
            until(lambda: scene.polled() and flow.arrived > 400)
            os.kill(executor_processes(spark)[0], signal.SIGKILL)
            killed_s = time.time()
            until(lambda: scene.polled() and engine.jobs()[scene.job.id].health == "degraded")
            sent = flow.sent_while_down()
            until(lambda: scene.polled() and flow.goes_on_s(sent))
            measured.within("goes on", (flow.goes_on_s(sent) or 0.0) - killed_s, GOES_ON_S)
            before = flow.sent
            until(lambda: scene.polled() and flow.goes_on_s(before))
            sent = flow.stop_sending()
            until(lambda: scene.polled() and flow.arrived >= sent)
            assert flow.arrivals_s().keys() == set(range(sent))
            # Only what the last part writes again after it died may come out twice.
            names = engine.dags.accepted[scene.job.id].planned.topics
            assert sum(topics.count(name) for name in names) > 4 * sent
            assert flow.removable_by_id()
            assert max(Counter(one.id for one in flow.got).values()) <= 2
            measured.note("doubled at the sink", f"{flow.doubled} of {2 * sent}")
        until(lambda: executors(spark) == 2)
    finally:
        engine.cancel(scene.job.id)


LABELLED = """
name: labelled
trigger: {realTime: 10 minutes}
sources:
  - name: in
    options: {subscribe: labelled-in, startingOffsets: earliest}
    schema: {n: BIGINT, k: INT}
    partitions: 2
  - name: labels
    options: {subscribe: labelled-labels, startingOffsets: earliest}
    schema: {k: INT, label: STRING}
    partitions: 1
operators:
  - {name: split, input: in, where: n >= 0, parallelism: {max: 1}}
  - name: count
    input: split
    group_by: [k]
    aggregate: {n: "count(*)"}
    parallelism: 2
  - {name: known, input: labels, where: label IS NOT NULL, parallelism: {max: 1}}
  - name: label
    inputs: [split, {from: known, grouping: broadcast}]
    join: {table: known, on: [k], how: left}
    select: [n, k, label]
    parallelism: {initial: 2, max: 2}
sinks:
  - {name: counts, input: count, key: k, options: {topic: labelled-counts}}
  - {name: out, input: label, options: {topic: labelled-out}}
"""
KEYS = 50
# The time in which records may find no row of a table after an executor was lost.
TABLE_BACK_S = 5.0


def test_counts_and_joins_are_right_after_an_executor_was_killed_under_load(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path, measured: Measured
) -> None:
    """A part that counts by key, and one that joins with a table that is broadcast."""
    until(lambda: executors(spark) == 2)
    job, backoff = parse_job(LABELLED), RestartBackoff(initial_s=0.5)
    create_topics(broker, [job])
    topics.write("labelled-labels", [json.dumps({"k": k, "label": f"l{k}"}) for k in range(KEYS)])
    engine = SparkEngine(
        spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20, backoff=backoff
    )
    engine.pacer = NoPacing()
    assembler = Assembler()
    assembler.expect(job, initial(job))

    def table_is_there() -> bool:
        for report in engine.reports():
            assembler.take(report)
        view = assembler.snapshot(time.time()).job(job.id)
        return view.edge("known", "label")["taken"] == 2 * KEYS

    def polled() -> bool:
        """Lets the engine supervise its jobs, as a host does."""
        return engine.reports() is not None

    outcome = engine.submit(job, initial(job))
    assert outcome.status is Status.DONE, outcome.message
    flow = None
    try:
        until(table_is_there)
        flow = Flow(broker, job.name, 200.0)
        until(lambda: polled() and flow.arrived > 600)
        os.kill(executor_processes(spark)[0], signal.SIGKILL)
        killed_s = time.time()
        until(lambda: polled() and engine.jobs()[job.id].health == "degraded")
        sent = flow.sent_while_down()
        until(lambda: polled() and flow.goes_on_s(sent))
        back_s = flow.goes_on_s(sent) or 0.0
        measured.within("goes on", back_s - killed_s, GOES_ON_S)
        before = flow.sent
        until(lambda: polled() and flow.goes_on_s(before))
        sent = flow.stop_sending()
        expected = Counter(n % KEYS for n in range(sent))

        def counts() -> list[tuple[int, int]]:
            rows = [row.value for row in read_all(broker, "labelled-counts")]
            return [(row["k"], row["n"]) for row in rows]

        until(lambda: polled() and flow.arrived >= sent and dict(counts()) == expected)
        assert all(count <= expected[k] for k, count in counts())
        # The table is not there again for a moment after the kill. Before and after that every
        # record finds its row, and none finds another.
        joined = {one.number for one in flow.got if one.value.get("label") == f"l{one.key}"}
        alone = [one for one in flow.got if one.number not in joined]
        assert all(one.written_s - back_s < TABLE_BACK_S for one in alone)
        assert all(one.value.get("label") in {None, f"l{one.key}"} for one in flow.got)
        assert len(joined) > 0.9 * sent
        assert flow.arrivals_s().keys() == set(range(sent))
        assert flow.removable_by_id()
        measured.note("records without their label", f"{len(alone)} of {sent}")
    finally:
        if flow is not None:
            flow.end()
        engine.cancel(job.id)
    until(lambda: executors(spark) == 2)


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

    def apart() -> bool:
        return healths() == ("degraded", "running") and waits(engine, low.id)

    def stays() -> bool:
        """Whether one waits and the other runs, in the same life for three seconds."""
        if not apart():
            return False
        running = engine.managed[high.id].running
        time.sleep(3.0)
        return apart() and running is not None and engine.managed[high.id].running is running

    try:
        for job in (low, high):
            assert engine.submit(job, initial(job)).status is Status.DONE
        limit = 12
        os.kill(executor_processes(spark)[0], signal.SIGKILL)
        until(stays)
        assert engine.conditions()[low.id].reason == "Waits for tasks: needs 10, free 2 of 12."
        undisturbed = engine.managed[high.id].running
        until(lambda: executors(spark) == 2)
        limit = 24
        until(lambda: healths() == ("running", "running"), timeout_s=allowed_s(60))
        assert engine.managed[high.id].running is undisturbed
    finally:
        for job in (low, high):
            engine.cancel(job.id)


def waits(engine: SparkEngine, job: str) -> bool:
    return engine.conditions()[job].cause is Cause.TASKS


def test_an_executor_of_a_cluster_that_is_not_ours_is_drained_and_not_replaced(
    cluster: Cluster, spark: SparkSession
) -> None:
    """The last test of these executors: one of them is gone for good."""
    until(lambda: executors(spark) == 2)
    cluster.flowing()
    cluster.until(lambda seen: len(seen.layout.machines) == 2)
    leaving, staying = cluster.snapshot().layout.machines
    outcome = cluster.engine.apply(RemoveMachines("leave", (leaving,)))
    assert (outcome.status, outcome.message) == (Status.DONE, "")
    cluster.flowing()
    cluster.until(lambda seen: seen.layout.machines == (staying,))
    time.sleep(3.0)
    assert executors(spark) == 1
    cluster.finish()
    assert cluster.flow.doubled == 0
