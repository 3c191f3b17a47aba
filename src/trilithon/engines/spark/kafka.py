"""Owns how the engine reaches Kafka: the address and security settings, and what topics there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import SparkSession

from trilithon.errors import InvalidJob, Problem, TrilithonError
from trilithon.model.job import Job

_ANSWER_MS: Final = 10_000


class KafkaUnreachable(TrilithonError):
    code = "KAFKA_UNREACHABLE"
    exit_code = 9


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


def topics(spark: SparkSession, kafka: Kafka) -> dict[str, int]:
    """Every topic with its number of partitions, asked by the connector's own client."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the client is the JVM's
    settings = jvm.java.util.HashMap()
    waiting = {"request.timeout.ms": str(_ANSWER_MS), "default.api.timeout.ms": str(_ANSWER_MS)}
    for name, value in {**waiting, **kafka.client}.items():
        settings.put(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        try:
            names = admin.listTopics().names().get()
            described = admin.describeTopics(names).allTopicNames().get()
            return {
                str(name): int(described.get(name).partitions().size())
                for name in list(described.keySet())
            }
        finally:
            admin.close()
    except Exception as error:
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
