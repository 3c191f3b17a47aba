"""Faults while records pass: a broker that is killed again and again, records that cannot be
processed, a disk that is full.
"""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.diamond import Scene, diamond
from tests.engines.spark.flow import SENT_WHILE_DOWN, Flow, NoPacing, job_named
from tests.measured import Measured
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Health, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.checkpoint import last_committed
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.supervisor import RestartBackoff
from trilithon.model.allocation import initial

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

RECORDS = 20_000
BOUNCES = 5
RATE_PER_S = 500.0
DIAMOND_RECORDS, DIAMOND_BOUNCES, DIAMOND_RATE_PER_S = 3_000, 2, 200.0

DIVIDES_BY_ZERO, ASKS_FOR_TOO_MUCH = -1, -2_000_000_000
FRAGILE = "n >= 0 AND 100 div (k + 1) >= 0 AND length(repeat('x', -k)) >= 0"


def passed(engine: SparkEngine, flow: Flow, records: int) -> bool:
    """Whether so many records have arrived. Lets the engine supervise its jobs, as a host does."""
    engine.reports()
    return flow.arrived >= records


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Another broker than that of the run: it is killed."""
    with EmbeddedBroker.start(tmp_path_factory.mktemp("own") / "broker") as own_broker:
        yield own_broker


def bounce(
    broker: EmbeddedBroker, engine: SparkEngine, flow: Flow, records: int, times: int
) -> None:
    """Kills the broker again and again while so many records pass; none may be lost, and those that
    come twice have the same id.
    """
    for part in range(1, times + 1):
        # Each one hits a job in whose sink records arrive, while more are sent.
        until(partial(passed, engine, flow, part * records // (times + 1)))
        os.kill(broker.pid, signal.SIGKILL)
        sent = flow.sent
        until(broker.revive)
        assert flow.sent >= sent + SENT_WHILE_DOWN
        flow.pause()
        until(partial(passed, engine, flow, sent))
        flow.resume()
    until(lambda: passed(engine, flow, 0) and flow.sent >= records)
    until(partial(passed, engine, flow, flow.stop_sending()))
    assert flow.arrivals_s().keys() == set(range(flow.sent))
    assert flow.removable_by_id()


def test_a_broker_that_is_killed_five_times_while_records_pass_loses_none(
    spark: SparkSession, own_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    kafka, job = Kafka(own_broker.address), job_named("bounced")
    create_topics(kafka, [job])
    engine = SparkEngine(spark, kafka, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
    assert engine.submit(job, initial(job)).status is Status.DONE
    flow = Flow(kafka, job.name, RATE_PER_S)
    try:
        bounce(own_broker, engine, flow, RECORDS, BOUNCES)
        # The last records may be here before the engine has asked the revived broker again.
        until(lambda: engine.conditions()[job.id].health is Health.RUNNING)
    finally:
        flow.end()
        engine.cancel(job.id)
        engine.close()


def test_a_broker_that_is_killed_under_a_diamond_loses_none(
    spark: SparkSession, own_broker: EmbeddedBroker, tmp_path: Path, measured: Measured
) -> None:
    """Its internal topics are on that broker, too."""
    kafka = Kafka(own_broker.address)
    engine = SparkEngine(spark, kafka, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
    scene = Scene(engine, Topics(spark, kafka), diamond("bounced-graph"))
    try:
        with scene.under_load(DIAMOND_RATE_PER_S) as flow:
            bounce(own_broker, engine, flow, DIAMOND_RECORDS, DIAMOND_BOUNCES)
            measured.note("doubled at the sink", f"{flow.doubled} of {2 * flow.sent}")
        until(lambda: engine.conditions()[scene.job.id].health is Health.RUNNING)
    finally:
        engine.cancel(scene.job.id)
        engine.close()


class PoisonedFlow(Flow):
    """Every fortieth record cannot be processed, for four reasons in turn."""

    @staticmethod
    def poison(number: int) -> str | None:
        kinds = (
            f"no JSON {number}",
            json.dumps({"n": f"no number {number}"}),
            json.dumps({"n": number, "k": DIVIDES_BY_ZERO}),
            json.dumps({"n": number, "k": ASKS_FOR_TOO_MUCH}),
        )
        turn, place = divmod(number, 40)
        return kinds[turn % 4] if place == 23 else None

    def value(self, number: int) -> str:
        return self.poison(number) or super().value(number)


def test_poison_in_a_steady_flow_becomes_dead_letters_and_all_else_comes_out_once(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    job = replace(job_named("poisoned"), dead_letter_topic="poisoned-dead")
    first, second = job.operators
    work = replace(first.work, where=FRAGILE)
    job = replace(job, operators=(replace(first, work=work), second))
    create_topics(broker, [job])
    engine = SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
    engine.pacer = NoPacing()
    assert engine.submit(job, initial(job)).status is Status.DONE
    flow = PoisonedFlow(broker, job.name, 100.0)

    def life() -> tuple[int, str]:
        running = engine.managed[job.id].running
        assert running is not None
        return running.incarnation, engine.control.batch(job.id)

    try:
        until(partial(passed, engine, flow, 100))
        before = life()
        until(partial(passed, engine, flow, 1200))
        numbers = range(flow.stop_sending())
        poison = {n: value for n in numbers if (value := flow.poison(n)) is not None}
        until(partial(passed, engine, flow, len(numbers) - len(poison)))
        until(lambda: topics.count("poisoned-dead") >= len(poison))
        assert flow.arrivals_s().keys() == set(numbers) - poison.keys()
        assert flow.doubled == 0
        assert life() == before  # nobody was disturbed
        assert (engine.jobs()[job.id].health, engine.jobs()[job.id].reason) == ("running", "")
    finally:
        flow.end()
        engine.cancel(job.id)
        engine.close()
    options = {**broker.options, "subscribe": "poisoned-in"}
    rows = spark.read.format("kafka").options(**options).load()
    ids = rows.selectExpr("CAST(value AS STRING)", "concat_ws('-', topic, partition, offset) AS id")
    bad = sorted(row.id for row in ids.collect() if row.value in poison.values())
    letters = [json.loads(row.value) for row in topics.read("poisoned-dead")]
    assert sorted(letter["source"] for letter in letters) == bad
    assert Counter(letter["at"] for letter in letters).keys() == {"in", "spread"}
    assert len({letter["error"] for letter in letters if letter["at"] == "spread"}) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:  # noqa: S603
        pytest.skip("only root can mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(disk)], check=True)  # noqa: S603


def fill(disk: Path) -> Path:
    """Writes a file until nothing more fits on a disk."""
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def test_a_full_disk_degrades_the_job_says_why_and_corrupts_nothing(
    spark: SparkSession, broker: Kafka, small_disk: Path
) -> None:
    job = replace(job_named("full"), batch_s=600.0)
    create_topics(broker, [job])
    engine = SparkEngine(
        spark,
        broker,
        small_disk,
        tasks=lambda: max_tasks(spark),
        slots=20,
        backoff=RestartBackoff(initial_s=0.5, maximum_s=2.0),
    )
    engine.pacer = NoPacing()

    def health() -> Health:
        engine.reports()
        return engine.conditions()[job.id].health

    assert engine.submit(job, initial(job)).status is Status.DONE
    flow = Flow(broker, job.name, 100.0)
    try:
        until(lambda: health() and len(flow.got) > 200)
        checkpoint = engine.queries.checkpoint(engine.managed[job.id])
        filler = fill(small_disk)
        committed, sent = last_committed(checkpoint), flow.sent
        engine.boundaries.end(job.id)
        until(lambda: health() is Health.DEGRADED)
        condition = engine.conditions()[job.id]
        assert condition.cause is Cause.STORAGE
        assert "No space left on device" in condition.reason
        # It is tried again and again, takes the same records, and commits nothing.
        until_s = time.monotonic() + 10.0
        while time.monotonic() < until_s:
            if health() is Health.RUNNING:
                engine.boundaries.end(job.id)
            assert engine.conditions()[job.id].cause in {None, Cause.STORAGE}
            assert last_committed(checkpoint) == committed
            time.sleep(0.2)
        filler.unlink()
        until(lambda: health() is Health.RUNNING)
        flow.stop_sending()
        assert flow.sent > sent + 300
        until(partial(passed, engine, flow, flow.sent))
        assert {record.number for record in flow.got} == set(range(flow.sent))
        engine.boundaries.end(job.id)
        until(lambda: health() and last_committed(checkpoint) != committed)
    finally:
        flow.end()
        engine.cancel(job.id)
        engine.close()
