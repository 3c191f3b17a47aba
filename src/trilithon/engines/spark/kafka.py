"""Connects the engine to Kafka: its address and settings, topics, partitions and end offsets."""

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

_TIMEOUT_MS: Final = 10_000


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
        """The client settings as options of Spark's Kafka source and sink."""
        return {f"kafka.{name}": value for name, value in self.client.items()}


def partitions(spark: SparkSession, kafka: Kafka, job: Job) -> dict[str, int]:
    """The partitions of each source of a job. Raises `InvalidJob` with every missing topic."""
    named = {topic for source in job.sources for topic in source.topics}
    named |= {sink.topic for sink in job.sinks}
    if job.dead_letter_topic is not None:
        named.add(job.dead_letter_topic)
    existing = topics(spark, kafka, named)
    missing: list[Problem] = []
    counts: dict[str, int] = {}
    for i, source in enumerate(job.sources):
        missing += _missing(source.topics, f"sources[{i}].options.subscribe", existing)
        counts[source.name] = sum(existing.get(topic, 0) for topic in source.topics)
    for i, sink in enumerate(job.sinks):
        missing += _missing([sink.topic], f"sinks[{i}].options.topic", existing)
    if job.dead_letter_topic is not None:
        missing += _missing([job.dead_letter_topic], "dead_letter_topic", existing)
    if missing:
        raise InvalidJob(missing, job.id)
    return counts


class Logs:
    """Reads the end offsets of topics, with one client for the life of an engine."""

    def __init__(self, spark: SparkSession, kafka: Kafka) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the client is the JVM's
        self._kafka = kafka
        self._client: Any = None
        self._lock = threading.Lock()

    def ends(self, topics: Collection[str]) -> dict[str, int]:
        """The sum of the end offsets of each topic; a missing topic is left out."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
        with self._lock, _unreachable_as_error(self._kafka):
            self._client = self._client or _connect(self._jvm, self._kafka)
            request = self._jvm.java.util.HashMap()
            partitions: dict[str, list[Any]] = {}
            for name, count in _described(self._jvm, self._client, topics).items():
                partitions[name] = [
                    self._jvm.org.apache.kafka.common.TopicPartition(name, i) for i in range(count)
                ]
                for partition in partitions[name]:
                    request.put(partition, spec)
            offsets = self._client.listOffsets(request).all().get()
            return {
                name: sum(int(offsets.get(partition).offset()) for partition in all_)
                for name, all_ in partitions.items()
            }

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None


def topics(spark: SparkSession, kafka: Kafka, names: Collection[str]) -> dict[str, int]:
    """The number of partitions of each of these topics that exists."""
    with _admin(spark, kafka) as (jvm, admin):
        return _described(jvm, admin, names)


def _described(jvm: Any, admin: Any, names: Collection[str]) -> dict[str, int]:
    wanted = jvm.java.util.ArrayList()
    for name in sorted(set(names)):
        wanted.add(name)
    counts = {}
    for name, described in dict(admin.describeTopics(wanted).topicNameValues()).items():
        try:
            counts[str(name)] = int(described.get().partitions().size())
        except Py4JJavaError as error:
            if "UnknownTopicOrPartition" not in str(error.java_exception.toString()):
                raise
    return counts


@contextmanager
def _admin(spark: SparkSession, kafka: Kafka) -> Iterator[tuple[Any, Any]]:
    """The connector's own client: if it reaches Kafka, queries do."""
    jvm: Any = spark._jvm  # noqa: SLF001
    with _unreachable_as_error(kafka):
        admin = _connect(jvm, kafka)
        try:
            yield jvm, admin
        finally:
            admin.close()


def _connect(jvm: Any, kafka: Kafka) -> Any:
    settings = jvm.java.util.HashMap()
    limits = {"request.timeout.ms": str(_TIMEOUT_MS), "default.api.timeout.ms": str(_TIMEOUT_MS)}
    for name, value in {**limits, **kafka.client}.items():
        settings.put(name, value)
    return jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)


@contextmanager
def _unreachable_as_error(kafka: Kafka) -> Iterator[None]:
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise KafkaUnreachable(
            f"Kafka does not answer at {kafka.servers}.",
            "Check that it runs and that the address is right.",
        ) from error


def _missing(names: Sequence[str], path: str, existing: Mapping[str, int]) -> list[Problem]:
    return [
        Problem(
            "MISSING_TOPIC",
            path,
            f"Kafka has no topic {name!r}.",
            "Create it first: records written before it exists would be lost or block the job.",
        )
        for name in names
        if name not in existing
    ]
