"""Owns how the engine reaches Kafka: the address and security settings, and what topics there are."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError
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
    there = topics(spark, kafka)
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


def end_offsets(spark: SparkSession, kafka: Kafka, job: Job) -> dict[str, int]:
    """Where the log of each source of a job ends: the sum over its partitions."""
    with _admin(spark, kafka) as (jvm, admin):
        ends: dict[str, int] = {}
        for source in job.sources:
            described = admin.describeTopics(list(source.topics)).allTopicNames().get()
            asked = jvm.java.util.HashMap()
            for name in list(described.keySet()):
                for partition in range(described.get(name).partitions().size()):
                    topic = jvm.org.apache.kafka.common.TopicPartition(name, partition)
                    asked.put(topic, jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
            found = admin.listOffsets(asked).all().get()
            ends[source.name] = sum(
                int(found.get(topic).offset()) for topic in list(asked.keySet())
            )
        return ends


def topics(spark: SparkSession, kafka: Kafka) -> dict[str, int]:
    """Every topic with its number of partitions, asked by the connector's own client."""
    with _admin(spark, kafka) as (_, admin):
        described = admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get()
        return {
            str(name): int(described.get(name).partitions().size())
            for name in list(described.keySet())
        }


@contextmanager
def _admin(spark: SparkSession, kafka: Kafka) -> Iterator[tuple[Any, Any]]:
    """The connector's own client: what it reaches, queries reach."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the client is the JVM's
    settings = jvm.java.util.HashMap()
    limits = {"request.timeout.ms": str(_ANSWER_MS), "default.api.timeout.ms": str(_ANSWER_MS)}
    for name, value in {**limits, **kafka.client}.items():
        settings.put(name, value)
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        yield jvm, admin
    except (Py4JError, PySparkException) as error:
        raise KafkaUnreachable(
            f"Kafka does not answer at {kafka.servers}.", "Is it running, and is the address right?"
        ) from error
    finally:
        if admin is not None:
            admin.close()


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
