"""A Spark session per module, ended with it, and the broker of the whole run."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from py4j.protocol import Py4JJavaError
from pyspark.sql import Row, SparkSession

from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import session
from trilithon.engines.spark.supervisor import RestartBackoff


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = {"spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "2"}
    with session(
        "local[40]", folder, fetch_jars(CONNECTOR), settings=settings, log_level="OFF"
    ) as spark:
        yield spark


@pytest.fixture(scope="module")
def broker(kafka: EmbeddedBroker) -> Iterator[Kafka]:
    """The broker of the run. A module that writes to topics of an earlier one would read what that
    one left there: it must take names of its own.
    """
    before = ends_of_topics(kafka.address)
    yield Kafka(kafka.address)
    after = ends_of_topics(kafka.address)
    assert [topic for topic, end in before.items() if after.get(topic, end) != end] == []


def ends_of_topics(servers: str) -> dict[str, int]:
    """The end offsets of the topics that tests have created, each summed over its partitions."""
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_topics(timeout=120).topics
    places = [
        TopicPartition(name, partition)
        for name, topic in listed.items()
        if not name.startswith("__")
        for partition in topic.partitions
    ]
    ends = dict.fromkeys((place.topic for place in places), 0)
    if places:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        futures = admin.list_offsets(dict.fromkeys(places, latest))
        for place, future in futures.items():
            ends[place.topic] += future.result(120).offset
    return ends


@dataclass
class Topics:
    """Topics of the broker, written and read by Spark itself outside of any stream."""

    spark: SparkSession
    kafka: Kafka

    @cached_property
    def admin(self) -> Any:
        settings = self.jvm.java.util.HashMap()
        settings.put("bootstrap.servers", self.kafka.servers)
        return self.jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    @property
    def jvm(self) -> Any:
        return self.spark._jvm

    def create(self, **partitions: int) -> None:
        optional, topic = (
            self.jvm.java.util.Optional,
            self.jvm.org.apache.kafka.clients.admin.NewTopic,
        )
        wanted = self.jvm.java.util.ArrayList()
        for name, count in partitions.items():
            wanted.add(topic(name, optional.of(count), optional.empty()))
        self.admin.createTopics(wanted).all().get()
        until(lambda: all(map(self._known, partitions)))

    def _known(self, topic: str) -> bool:
        """Whether the broker knows a topic: it may be late with one that it has just created."""
        names = self.jvm.java.util.Collections.singleton(topic)
        try:
            self.admin.describeTopics(names).allTopicNames().get()
        except Py4JJavaError:
            return False
        return True

    def limit(self, topic: str, record_bytes: int) -> None:
        """Sets the largest record that a topic takes."""
        config = self.jvm.org.apache.kafka.clients.admin
        resource = self.jvm.org.apache.kafka.common.config.ConfigResource
        entry = config.ConfigEntry("max.message.bytes", str(record_bytes))
        change = config.AlterConfigOp(entry, config.AlterConfigOp.OpType.SET)
        changes = self.jvm.java.util.HashMap()
        changes.put(resource(resource.Type.TOPIC, topic), self.jvm.java.util.List.of(change))
        self.admin.incrementalAlterConfigs(changes).all().get()

    def write(self, topic: str, values: Sequence[str | None]) -> None:
        rows = [(str(i), value) for i, value in enumerate(values)]
        frame = self.spark.createDataFrame(rows, "key STRING, value STRING")
        largest = {"kafka.max.request.size": "10000000"}
        frame.write.format("kafka").options(**self.kafka.options, **largest, topic=topic).save()

    def read(self, topic: str) -> list[Row]:
        options = {**self.kafka.options, "subscribe": topic, "includeHeaders": "true"}
        rows = self.spark.read.format("kafka").options(**options).load()
        return rows.selectExpr("CAST(value AS STRING) AS value", "headers").collect()

    def count(self, topic: str) -> int:
        """The records in a topic, by its end offsets."""
        names = self.jvm.java.util.Collections.singleton(topic)
        described = self.admin.describeTopics(names).allTopicNames().get().get(topic)
        latest = self.jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        asked = self.jvm.java.util.HashMap()
        for i in range(described.partitions().size()):
            asked.put(self.jvm.org.apache.kafka.common.TopicPartition(topic, i), latest)
        return sum(end.offset() for end in self.admin.listOffsets(asked).all().get().values())


@pytest.fixture(scope="module")
def topics(spark: SparkSession, broker: Kafka) -> Iterator[Topics]:
    topics = Topics(spark, broker)
    yield topics
    topics.admin.close()


def until(condition: Callable[[], object], timeout_s: float = 240.0) -> None:
    """Waits for a condition; the test fails if it does not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        time.sleep(0.1)


@pytest.fixture
def spark_engine(spark: SparkSession, broker: Kafka, tmp_path: Path) -> Iterator[SparkEngine]:
    """An engine that tries again soon; its jobs end with the test."""
    backoff = RestartBackoff(initial_s=0.2)
    engine = SparkEngine(
        spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20, backoff=backoff
    )
    yield engine
    for name in list(engine.jobs()):
        engine.cancel(name)
    left = list(spark.streams.active)
    for query in left:
        query.stop()  # or every test after it would fail, too
    assert not left
