"""A Spark session and a Kafka broker for tests, one of each per module, ended with it."""

import base64
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from trilithon.engines.spark.jdk import find_jdk
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.session import session

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@pytest.fixture(scope="module")
def jars() -> Path:
    """Where the jars of the connector and of the broker are."""
    folder = Path(os.environ.get("TRILITHON_TEST_JARS", "/work/probe-lab/jars"))
    if not (folder / "connector").is_dir():
        pytest.skip(f"no Kafka jars in {folder}: set TRILITHON_TEST_JARS")
    return folder


@pytest.fixture(scope="module")
def spark(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    connector = sorted((jars / "connector").glob("*.jar"))
    folder = tmp_path_factory.mktemp("spark")
    settings = {"spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "2"}
    with session("local[40]", folder, connector, settings=settings, log_level="OFF") as spark:
        yield spark


@pytest.fixture(scope="module")
def broker(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    home = find_jdk()
    if home is None or not (jars / "broker").is_dir():
        pytest.skip("no JDK, or no broker's jars")
    folder = tmp_path_factory.mktemp("broker")
    port, controller = free_ports(2)
    config = folder / "server.properties"
    config.write_text(
        PROPERTIES.format(port=port, controller=controller, data=folder / "data"), encoding="utf-8"
    )
    java = [str(home / "bin" / "java"), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/broker/*"]
    cluster = "t" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
    subprocess.run(  # noqa: S603 - a JDK's java
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)],
        check=True,
        capture_output=True,
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - the same
            [*java, "kafka.Kafka", str(config)], stdout=log, stderr=log, cwd=folder
        )
    try:
        until(lambda: accepts(port) or process.poll() is not None)
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        yield Kafka(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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

    def write(self, topic: str, values: Sequence[str | None]) -> None:
        rows = [(str(i), value) for i, value in enumerate(values)]
        frame = self.spark.createDataFrame(rows, "key STRING, value STRING")
        frame.write.format("kafka").options(**self.kafka.options, topic=topic).save()

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


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def accepts(port: int) -> bool:
    with socket.socket() as probing:
        return probing.connect_ex(("127.0.0.1", port)) == 0


def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Waits for a condition; the test fails if it does not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        time.sleep(0.1)
