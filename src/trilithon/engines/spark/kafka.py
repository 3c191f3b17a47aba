"""Owns how the engine reaches Kafka: the address and security settings, and what topics there are."""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trilithon.errors import InvalidJob, KafkaUnreachable, Problem
from trilithon.model.job import Job

_ANSWER_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka cluster: `host:port,…` and client settings such as `security.protocol`."""

    servers: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def client(self) -> dict[str, str]:
        return {**self.settings, "bootstrap.servers": self.servers}

    @property
    def options(self) -> dict[str, str]:
        """As Spark's Kafka source and sink take them."""
        return {f"kafka.{name}": value for name, value in self.client.items()}


def partitions(spark: SparkSession, kafka: Kafka, job: Job) -> dict[str, int]:
    """The partitions of each source of a job. Raises `InvalidJob` with every topic that is missing."""
    named = {topic for source in job.sources for topic in source.topics}
    named |= {sink.topic for sink in job.sinks}
    if job.dead_letter_topic is not None:
        named.add(job.dead_letter_topic)
    there = topics(spark, kafka, named)
    missing: list[Problem] = []
    found: dict[str, int] = {}
    for i, source in enumerate(job.sources):
        missing += _missing(source.topics, f"sources[{i}].options.subscribe", there)
        found[source.name] = sum(there.get(topic, 0) for topic in source.topics)
    for i, sink in enumerate(job.sinks):
        missing += _missing([sink.topic], f"sinks[{i}].options.topic", there)
    if job.dead_letter_topic is not None:
        missing += _missing([job.dead_letter_topic], "dead_letter_topic", there)
    if missing:
        raise InvalidJob(missing, job.id)
    return found


class Logs:
    """Where logs end and began, asked with one client for as long as an engine lives."""

    def __init__(self, spark: SparkSession, kafka: Kafka) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the client is the JVM's
        self._kafka = kafka
        self._client: Any = None
        self._lock = threading.Lock()

    def ends(self, topics: Collection[str]) -> dict[str, int]:
        """The sum of the end offsets of each topic; one that is not there is left out."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        with self._lock, _answering(self._kafka):
            self._client = self._client or _connect(self._jvm, self._kafka)
            asked = self._jvm.java.util.HashMap()
            partitions: dict[str, list[Any]] = {}
            for name, count in _described(self._jvm, self._client, topics).items():
                partitions[name] = [
                    self._jvm.org.apache.kafka.common.TopicPartition(name, i) for i in range(count)
                ]
                for partition in partitions[name]:
                    asked.put(partition, spec)
            found = self._client.listOffsets(asked).all().get()
            return {
                name: sum(int(found.get(partition).offset()) for partition in all_)
                for name, all_ in partitions.items()
            }

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None


def topics(spark: SparkSession, kafka: Kafka, names: Collection[str]) -> dict[str, int]:
    """Those of some topics that are there, with their partitions, asked by the connector's own client."""
    with _admin(spark, kafka) as (jvm, admin):
        return _described(jvm, admin, names)


def _described(jvm: Any, admin: Any, names: Collection[str]) -> dict[str, int]:
    wanted = jvm.java.util.ArrayList()
    for name in sorted(set(names)):
        wanted.add(name)
    found = {}
    for name, described in dict(admin.describeTopics(wanted).topicNameValues()).items():
        try:
            found[str(name)] = int(described.get().partitions().size())
        except Py4JJavaError as error:
            if "UnknownTopicOrPartition" not in str(error.java_exception.toString()):
                raise
    return found


@contextmanager
def _admin(spark: SparkSession, kafka: Kafka) -> Iterator[tuple[Any, Any]]:
    """The connector's own client: what it reaches, queries reach."""
    jvm: Any = spark._jvm  # noqa: SLF001
    with _answering(kafka):
        admin = _connect(jvm, kafka)
        try:
            yield jvm, admin
        finally:
            admin.close()


def _connect(jvm: Any, kafka: Kafka) -> Any:
    settings = jvm.java.util.HashMap()
    limits = {"request.timeout.ms": str(_ANSWER_MS), "default.api.timeout.ms": str(_ANSWER_MS)}
    for name, value in {**limits, **kafka.client}.items():
        settings.put(name, value)
    return jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)


@contextmanager
def _answering(kafka: Kafka) -> Iterator[None]:
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise KafkaUnreachable(
            f"Kafka does not answer at {kafka.servers}.", "Is it running, and is the address right?"
        ) from error


def _missing(names: Sequence[str], path: str, there: Mapping[str, int]) -> list[Problem]:
    return [
        Problem(
            "MISSING_TOPIC",
            path,
            f"Kafka has no topic {name!r}.",
            "Create it: what is written before it exists would be lost or block the job.",
        )
        for name in names
        if name not in there
    ]
