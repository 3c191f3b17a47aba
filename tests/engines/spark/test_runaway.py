"""Records that never end: noticed, told apart from slow ones, ended with their threads."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.flow import Flow, job_named
from tests.measured import Measured
from trilithon.contract.engine import Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

# No function of it looks for an interrupt: v³ steps.
DEAF = "0L"
for _ in range(3):
    DEAF = f"aggregate(sequence(1, v), 0L, (a, x) -> a + {DEAF})"


def rogue(name: str, where: str) -> Job:
    return parse_job(f"""
name: {name}
trigger: {{realTime: 10 minutes}}
sources:
- name: in
  options: {{subscribe: {name}-in, startingOffsets: earliest}}
  schema: {{v: INT}}
  partitions: 1
operators:
- {{name: calm, input: in, where: v >= 0, parallelism: {{initial: 1, max: 2}}}}
- {{name: heavy, input: calm, where: "{where}", parallelism: {{initial: 2, max: 2}}}}
sinks:
- {{name: out, input: heavy, options: {{topic: {name}-out}}}}
""")


@pytest.fixture
def replaced() -> list[str]:
    return []


@pytest.fixture
def engine(
    spark: SparkSession, broker: Kafka, tmp_path: Path, replaced: list[str]
) -> Iterator[SparkEngine]:
    engine = SparkEngine(
        spark,
        broker,
        tmp_path,
        tasks=lambda: max_tasks(spark),
        slots=20,
        replace_host=replaced.append,
    )
    yield engine
    for name in list(engine.jobs()):
        engine.cancel(name)
    assert not spark.streams.active


def health(engine: SparkEngine, job: Job) -> str:
    engine.reports()
    return str(engine.jobs()[job.id].health)


def test_an_endless_record_fails_the_job_with_the_operators_name_and_a_neighbour_goes_on(
    engine: SparkEngine, broker: Kafka, topics: Topics, measured: Measured
) -> None:
    job, neighbour = rogue("endless", "work(1000000000) >= v"), job_named("beside")
    create_topics(broker, [job, neighbour])
    for one in (job, neighbour):
        assert engine.submit(one, initial(one)).status is Status.DONE
    flow = Flow(broker, neighbour.name, 100.0)
    try:
        until(lambda: len(flow.got) > 100)
        topics.write("endless-in", ['{"v": 1}', '{"v": 2}'])
        began = time.monotonic()
        until(lambda: health(engine, job) == "failed")
        measured.within("noticed", time.monotonic() - began, 30)
        reason = engine.jobs()[job.id].reason
        assert "A record never ends in the operator heavy" in reason
        # `work` ends with its task: nothing has to be replaced.
        until(lambda: engine.control.threads(job.id) == {})
        assert health(engine, neighbour) == "running"
        before = len(flow.got)
        until(lambda: len(flow.got) > before + 100)
        # A new host does not run into the same record again.
        restarted = SparkEngine(engine.spark, broker, engine.folder, tasks=lambda: 40, slots=20)
        assert restarted.submit(job, initial(job)).status is Status.DONE
        assert restarted.jobs()[job.id].health == "failed"
        assert restarted.jobs()[job.id].reason == reason
        # To pause and resume it is to try again.
        assert engine.cancel(job.id, keep=True).status is Status.DONE
        assert engine.submit(job, initial(job)).status is Status.DONE
        assert engine.jobs()[job.id].health == "running"
    finally:
        flow.end()


def test_a_slow_job_is_not_stopped(engine: SparkEngine, broker: Kafka, topics: Topics) -> None:
    """Each record takes 6 s: longer than a batch of 5 s, and the next one is no surprise."""
    job = rogue("slow", "wait(6000) >= v")
    create_topics(broker, [job])
    assert engine.submit(job, initial(job)).status is Status.DONE
    topics.write("slow-in", ['{"v": 1}'] * 12)
    until(lambda: health(engine, job) != "running" or topics.count("slow-out") >= 12)
    assert (health(engine, job), topics.count("slow-out")) == ("running", 12)


def test_threads_that_cannot_be_ended_are_told_and_the_host_is_replaced(
    engine: SparkEngine, broker: Kafka, topics: Topics, replaced: list[str]
) -> None:
    engine.watchdog.threads.end_s = 5.0  # Spark's own threads may take longer, not these
    job = rogue("deaf", f"{DEAF} >= 0")
    create_topics(broker, [job])
    assert engine.submit(job, initial(job)).status is Status.DONE
    topics.write("deaf-in", ['{"v": 850}'])  # about a minute of CPU
    until(
        lambda: health(engine, job) == "running" and bool(engine.watchdog.records.working(job.id))
    )
    outcome = engine.cancel(job.id)
    assert (outcome.status, outcome.code) == (Status.FAILED, "THREADS_LEFT")
    message = "1 thread of default/deaf cannot be ended: the engine host is replaced."
    assert (outcome.message, replaced) == (message, [message])
    # It does not call itself stopped, however often it is asked.
    assert engine.cancel(job.id).code == "THREADS_LEFT"
    assert engine.jobs()[job.id].health == "failed"
    until(lambda: engine.control.threads(job.id) == {}, timeout_s=600)
    assert engine.cancel(job.id).status is Status.DONE
