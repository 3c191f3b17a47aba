"""The Kafka source: records that are gone, a broker that is gone, transactions."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.flow import Flow, Scene, job_named
from tests.engines.spark.test_chains import simple_job
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import RestartJob, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_job_whose_next_records_kafka_has_deleted_is_refused_with_their_place(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"expired-in": 1, "expired-out": 1})
    job = simple_job("expired")
    topics.write("expired-in", ['{"v": 1}'] * 10)
    engine = SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
    assert engine.submit(job, initial(job)).status is Status.DONE
    until(lambda: topics.count("expired-out") >= 10)
    assert engine.cancel(job.id, keep=True).status is Status.DONE
    topics.write("expired-in", ['{"v": 2}'] * 10)
    admin = AdminClient({**broker.client, "log_level": 0})
    deleted = admin.delete_records([TopicPartition("expired-in", 0, 15)])
    assert [future.result().low_watermark for future in deleted.values()] == [15]
    outcome = engine.submit(job, initial(job))
    assert (outcome.status, outcome.code) == (Status.REFUSED, "RECORDS_EXPIRED")
    assert "deleted 5 records" in outcome.message
    assert "partition 0 of expired-in: 5 from offset 10 on" in outcome.message
    assert topics.count("expired-out") == 10
    # Without its checkpoint it begins with what is there.
    engine.cancel(job.id)
    assert engine.submit(job, initial(job)).status is Status.DONE
    until(lambda: topics.count("expired-out") >= 15)
    engine.cancel(job.id)


def test_the_lag_of_committed_records_counts_neither_markers_nor_open_transactions(
    spark: SparkSession, broker: Kafka, tmp_path: Path
) -> None:
    job = job_named("committed", 1)
    committed = (*job.sources[0].options, ("kafka.isolation.level", "read_committed"))
    job = replace(job, sources=(replace(job.sources[0], options=committed),))
    create_topics(broker, [job])
    engine = SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
    assembler = Assembler()
    assembler.expect(job, initial(job))
    assert engine.submit(job, initial(job)).status is Status.DONE

    def counted() -> tuple[float | None, float, float]:
        """The lag, and what arrived and was taken at the source."""
        for report in engine.reports():
            assembler.take(report)
        sources = assembler.snapshot(time.time()).sources
        lag = assembler.snapshot(time.time()).job(job.id).lag("in")
        return lag, float(sources.arrived[0]), float(sources.taken[0])

    producer = Producer({**broker.client, "transactional.id": "committed", "log_level": 0})
    try:
        producer.init_transactions(120)
        for end in (producer.commit_transaction, producer.abort_transaction) * 3:
            producer.begin_transaction()
            for number in range(10):
                producer.produce("committed-in", f'{{"n": {number}, "k": 1}}')
            end(120)
        # 30 records that count, 30 that were aborted, six markers.
        until(lambda: counted() == (0.0, 30.0, 30.0))
        producer.begin_transaction()
        producer.produce("committed-in", '{"n": 1, "k": 1}')
        assert producer.flush(120) == 0
        time.sleep(3)
        assert counted() == (0.0, 30.0, 30.0)
        producer.commit_transaction(120)
        until(lambda: counted() == (0.0, 31.0, 31.0))
    finally:
        engine.cancel(job.id)


@contextmanager
def frozen(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_batch_that_is_ended_while_the_broker_is_away_loses_and_doubles_nothing(
    spark: SparkSession, kafka: EmbeddedBroker, broker: Kafka, tmp_path: Path
) -> None:
    job = job_named("away", 4)
    create_topics(broker, [job])
    engine = SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
    assert engine.submit(job, initial(job)).status is Status.DONE
    flow = Flow(broker, job.name, 200.0, 3)
    on = Scene(engine, job, flow)
    try:
        on.flowing()
        with frozen(kafka.pid):
            time.sleep(1)
            assert engine.boundaries.end(job.id)
            time.sleep(4)
        on.flowing()
        assert engine.apply(RestartJob("once", job.id)).code == ""
        on.flowing()
        sent = flow.stop_sending()
        flow.await_all()
        assert {one.number for one in flow.got} == set(range(sent))
        assert flow.doubled == 0
    finally:
        flow.end()
        engine.cancel(job.id)
