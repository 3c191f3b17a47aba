"""Faults while records pass: a broker that is killed again and again, a disk that is full."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import Flow, NoPacing, job_named
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


def passed(engine: SparkEngine, flow: Flow, records: int) -> bool:
    """Whether so many records have arrived. Lets the engine supervise its jobs, as a host does."""
    engine.reports()
    return flow.arrived >= records


def test_a_broker_that_is_killed_five_times_while_records_pass_loses_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    with EmbeddedBroker.start(tmp_path / "broker") as broker:
        kafka = Kafka(broker.address)
        job = job_named("bounced")
        create_topics(kafka, [job])
        engine = SparkEngine(spark, kafka, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
        assert engine.submit(job, initial(job)).status is Status.DONE
        flow = Flow(kafka, job.name, RATE_PER_S)
        try:
            for part in range(1, BOUNCES + 1):
                # Each one hits a job in whose sink records arrive, while more are sent.
                until(partial(passed, engine, flow, part * RECORDS // (BOUNCES + 1)))
                os.kill(broker.pid, signal.SIGKILL)
                sent = flow.sent
                until(broker.revive)
                assert flow.sent > sent
                flow.pause()
                until(partial(passed, engine, flow, sent))
                flow.resume()
            until(lambda: passed(engine, flow, 0) and flow.sent >= RECORDS)
            until(partial(passed, engine, flow, flow.stop_sending()))
            assert {record.number for record in flow.got} == set(range(flow.sent))
            # The last records may be here before the engine has asked the revived broker again.
            until(lambda: engine.conditions()[job.id].health is Health.RUNNING)
        finally:
            flow.end()
            engine.cancel(job.id)
            engine.close()


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
