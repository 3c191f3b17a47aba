"""Dead letters of a batch that is replayed: written again, under the same keys."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import Topics, until
from trilithon.contract.engine import Status
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.supervisor import RestartBackoff
from trilithon.model.allocation import initial
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

JOB = """
name: letters
trigger: {realTime: 10 minutes}
dead_letter_topic: letters-dead
sources:
  - name: in
    options: {subscribe: letters-in, startingOffsets: earliest}
    schema: {n: INT}
operators:
  - {name: divide, input: in, where: 100 div n > 0, parallelism: {initial: 1, max: 2}}
sinks:
  - {name: out, input: divide, options: {topic: letters-out}}
"""


def test_a_replay_writes_dead_letters_again_under_the_same_keys(
    spark: SparkSession, broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topics.create(**{"letters-in": 1, "letters-out": 1, "letters-dead": 2})
    engine = SparkEngine(
        spark,
        broker,
        tmp_path,
        tasks=lambda: max_tasks(spark),
        slots=20,
        backoff=RestartBackoff(initial_s=0.2),
    )
    job = parse_job(JOB)
    assert engine.submit(job, initial(job)).status is Status.DONE
    try:
        topics.write("letters-in", ['{"n": 1}', '{"n": 0}', "no JSON", '{"n": 0}'])
        until(lambda: topics.count("letters-dead") == 3)
        running = engine.managed[job.id].running
        assert running is not None
        running.query.stop()  # behind the engine's back: the open batch is replayed
        until(lambda: engine.reports() is not None and topics.count("letters-dead") == 6)
    finally:
        engine.cancel(job.id)
    options = {**broker.options, "subscribe": "letters-dead"}
    rows = spark.read.format("kafka").options(**options).load()
    letters = rows.selectExpr("CAST(key AS STRING) AS key", "partition").collect()
    keys = Counter(letter.key for letter in letters)
    assert sorted(keys.values()) == [2, 2, 2]
    assert all(key.startswith("letters-in-0-") for key in keys)
    # Doubles are in one partition, where compaction finds them.
    assert len({(letter.key, letter.partition) for letter in letters}) == 3
