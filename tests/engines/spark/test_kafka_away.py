"""Kafka is killed and comes back: the job says so within 15 s, and runs again within 60."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import Flow, job_named
from tests.measured import Measured
from trilithon.contract.condition import Cause
from trilithon.contract.engine import Health, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

# A query dies after seconds, not minutes, of an outage: settings of the Java client that a user may
# set as well (`--kafka-settings`).
IMPATIENT = {
    "request.timeout.ms": "2000",
    "default.api.timeout.ms": "4000",
    "delivery.timeout.ms": "4000",
    "linger.ms": "0",
    "max.block.ms": "4000",
}
AWAY_S = 20.0
# On an idle machine: until the job says so, and until it runs again.
SAID_S, BACK_S = 15.0, 60.0


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker.start(tmp_path / "broker") as broker:
        yield broker


def timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_a_job_outlives_an_outage_of_kafka_in_which_its_query_dies(
    spark: SparkSession, own_broker: EmbeddedBroker, tmp_path: Path, measured: Measured
) -> None:
    plain = Kafka(own_broker.address)
    # The query dies when it plans its next batch.
    job = replace(job_named("outage"), batch_s=5.0)
    create_topics(plain, [job])
    engine = SparkEngine(
        spark,
        Kafka(own_broker.address, IMPATIENT),
        tmp_path,
        tasks=lambda: max_tasks(spark),
        slots=20,
    )

    def health() -> Health:
        engine.reports()
        return engine.conditions()[job.id].health

    assert engine.submit(job, initial(job)).status is Status.DONE
    flow = Flow(plain, job.name, 50.0)
    again = None
    try:
        until(lambda: len(flow.got) > 100)
        with capture_logs() as events:
            os.kill(own_broker.pid, signal.SIGKILL)
            killed = time.monotonic()
            until(lambda: health() is Health.DEGRADED)
            measured.within("degraded", time.monotonic() - killed, SAID_S)
            condition = engine.conditions()[job.id]
            assert condition.cause is Cause.KAFKA
            assert condition.next_try_s is not None
            until(lambda: health() and engine.monitor.outage is not None)
            measured.within("the reason is known", time.monotonic() - killed, 2 * SAID_S)
            shown = engine.conditions()[job.id]
            assert shown.reason == f"Kafka does not answer at {own_broker.address}."
            # Reports do not wait for a broker that does not answer: each would take four seconds.
            assert any(timed(engine.reports) < 2.0 for _ in range(10))
            while time.monotonic() - killed < AWAY_S or engine.managed[job.id].running is not None:
                assert health() is Health.DEGRADED
                assert time.monotonic() - killed < 300.0, "the query did not die"
                time.sleep(0.2)
        said = {event["event"]: event for event in events}
        assert said["kafka_away"]["exc_info"] is not None
        assert (said["query_died"]["cause"], said["query_died"]["job"]) == ("kafka", job.id)
        again = EmbeddedBroker.start(own_broker.folder)
        assert again.address == own_broker.address
        back = time.monotonic()
        until(lambda: health() is Health.RUNNING)
        measured.within("runs again", time.monotonic() - back, BACK_S)
        flow.stop_sending()
        flow.await_all()
        assert {record.number for record in flow.got} == set(range(flow.sent))
    finally:
        flow.end()
        engine.cancel(job.id)
        engine.close()
        if again is not None:
            again.stop()
