"""Connects the engine to Kafka: its address and settings, topics, partitions and end offsets."""

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trilithon.errors import InvalidJob, KafkaUnreachable, Problem, RecordsExpired
from trilithon.model.job import Job

_ABSENT: Final = re.compile("UnknownTopicOrPartition|TopicAuthorization")
_TIMEOUT_MS: Final = 10_000
# A monitor asks all the time: two calls that time out are to take less than ten seconds.
_MONITOR_TIMEOUT_MS: Final = 4_000
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka cluster: `host:port,…` and client settings such as `security.protocol`."""

    servers: str
    settings: Mapping[str, str] = field(default_factory=dict)
    # Settings of tenants with a principal of their own, which replace those above.
    tenants: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def of_tenant(self, tenant: str) -> "Kafka":
        """The same cluster as a tenant's jobs reach it: with the tenant's principal, if it has one,
        and at its listener, if the settings name another.
        """
        if (own := self.tenants.get(tenant)) is None:
            return Kafka(self.servers, self.settings)
        servers = own.get("bootstrap.servers", self.servers)
        return Kafka(servers, {k: v for k, v in own.items() if k != "bootstrap.servers"})

    @property
    def client(self) -> dict[str, str]:
        return {**self.settings, "bootstrap.servers": self.servers}

    @property
    def options(self) -> dict[str, str]:
        """The client settings as options of Spark's Kafka source and sink."""
        return {f"kafka.{name}": value for name, value in self.client.items()}


def partitions(
    spark: SparkSession, kafka: Kafka, job: Job
) -> tuple[dict[str, int], dict[str, int]]:
    """The partitions of each source of a job, and of each topic that it reads. Raises `InvalidJob`
    with every missing topic.
    """
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
    read = {topic for source in job.sources for topic in source.topics}
    return counts, {topic: existing[topic] for topic in sorted(read)}


def await_known(
    names: Collection[str], known: Callable[[], Collection[str]], within_s: float
) -> None:
    """Waits until topics that were created are among those that Kafka lists: a busy broker lists
    them a moment later, and who plans a job in between would miss them. After a while the plan
    says which one is missing.
    """
    deadline = time.monotonic() + within_s
    while set(names) - set(known()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


class Logs:
    """Reads the end offsets of topics, with one client for the life of an engine. The end of a
    topic that is read committed is where its first open transaction begins.
    """

    def __init__(
        self,
        spark: SparkSession,
        kafka: Kafka,
        committed: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._committed = committed
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the client is the JVM's
        self._kafka = kafka
        self._client: Any = None
        self._lock = threading.Lock()
        # The partitions of each topic by the last answer.
        self.partitions: dict[str, int] = {}

    def ends(self, topics: Collection[str]) -> dict[str, int]:
        """The sum of the end offsets of each topic; a missing topic is left out. One call of the
        JVM, and one request to each broker, for all topics together.
        """
        with self._lock, _unreachable_as_error(self._kafka):
            self._client = self._client or _connect(self._jvm, self._kafka, _MONITOR_TIMEOUT_MS)
            wanted, committed = (json.dumps(sorted(names)) for names in (topics, self._committed()))
            answer = self._jvm.io.trilithon.source.TopicEnds.ask(self._client, wanted, committed)
            listed: dict[str, tuple[int, int]] = json.loads(answer)
            self.partitions = {name: count for name, (count, _) in listed.items()}
            return {name: end for name, (_, end) in listed.items()}

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None


def check_not_expired(
    spark: SparkSession, kafka: Kafka, offsets: Mapping[tuple[str, int], int]
) -> None:
    """Raises `RecordsExpired` if Kafka has deleted records from these offsets on. A query would die
    of it with the error of whichever of its tasks notices first.
    """
    if not offsets:
        return
    with admin_client(spark, kafka) as (jvm, admin):
        named = jvm.org.apache.kafka
        request = jvm.java.util.HashMap()
        partitions = {key: named.common.TopicPartition(*key) for key in offsets}
        for partition in partitions.values():
            request.put(partition, named.clients.admin.OffsetSpec.earliest())
        listed = admin.listOffsets(request).all().get()
        first = {key: int(listed.get(partition).offset()) for key, partition in partitions.items()}
    expired = {key: first[key] - at for key, at in offsets.items() if first[key] > at}
    if expired:
        (topic, number), count = max(expired.items(), key=lambda item: item[1])
        raise RecordsExpired(
            f"Kafka has deleted {sum(expired.values())} records that were not read yet, most of "
            f"them in partition {number} of {topic}: {count} from offset "
            f"{offsets[topic, number]} on.",
            "Give the topic a longer retention. To go on without these records, delete the job and "
            "submit it again.",
        )


def topics(spark: SparkSession, kafka: Kafka, names: Collection[str]) -> dict[str, int]:
    """The number of partitions of each of these topics that exists."""
    with admin_client(spark, kafka) as (jvm, admin):
        return _described(jvm, admin, names)


def record_limits(spark: SparkSession, kafka: Kafka, names: Collection[str]) -> dict[str, int]:
    """The bytes of the largest record that each topic takes; a topic whose settings may not be read
    is left out.
    """
    with admin_client(spark, kafka) as (jvm, admin):
        resource = jvm.org.apache.kafka.common.config.ConfigResource
        topic = jvm.org.apache.kafka.common.config.ConfigResource.Type.TOPIC
        asked = jvm.java.util.ArrayList()
        for name in sorted(set(names)):
            asked.add(resource(topic, name))
        limits = {}
        for described, settings in dict(admin.describeConfigs(asked).values()).items():
            try:
                limit = settings.get().get("max.message.bytes")
            except Py4JJavaError as error:
                if "AuthorizationException" not in str(error.java_exception.toString()):
                    raise
                continue
            limits[str(described.name())] = int(limit.value())
        return limits


def _described(jvm: Any, admin: Any, names: Collection[str]) -> dict[str, int]:
    wanted = jvm.java.util.ArrayList()
    for name in sorted(set(names)):
        wanted.add(name)
    counts = {}
    for name, described in dict(admin.describeTopics(wanted).topicNameValues()).items():
        try:
            counts[str(name)] = int(described.get().partitions().size())
        except Py4JJavaError as error:
            # Of a topic that a principal may not see, Kafka does not say whether it exists.
            if not _ABSENT.search(str(error.java_exception.toString())):
                raise
    return counts


@contextmanager
def admin_client(spark: SparkSession, kafka: Kafka) -> Iterator[tuple[Any, Any]]:
    """The connector's own client: if it reaches Kafka, queries do."""
    jvm: Any = spark._jvm  # noqa: SLF001
    with _unreachable_as_error(kafka):
        admin = _connect(jvm, kafka)
        try:
            yield jvm, admin
        finally:
            admin.close()


def _connect(jvm: Any, kafka: Kafka, timeout_ms: int = _TIMEOUT_MS) -> Any:
    settings = jvm.java.util.HashMap()
    limits = {"request.timeout.ms": str(timeout_ms), "default.api.timeout.ms": str(timeout_ms)}
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
            f"Kafka has no topic {name!r} that this job's principal may use.",
            "Create it first, and allow the principal to use it: records written before it exists "
            "would be lost or block the job.",
        )
        for name in names
        if name not in existing
    ]
