"""Owns an application: the broker if there is none, the Spark session, and the engine on top of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.session import session
from trilithon.errors import BrokerUnavailable
from trilithon.model.action import Outcome
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job

PARTITIONS = 2


@contextmanager
def application(
    master: str,
    kafka: str | None,
    folder: Path,
    slots: int,
    jobs: Sequence[Job] = (),
    tell: Callable[[str], None] = lambda _: None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkEngine]:
    """An engine that runs jobs. Without a Kafka there is an embedded one, with the jobs' topics."""
    with ExitStack() as ending:
        if kafka is None:
            broker = ending.enter_context(EmbeddedBroker.start(progress=tell))
            access = Kafka(broker.address)
            create_topics(access, jobs)
        else:
            access = Kafka(kafka, settings or {})
        connector = jars(CONNECTOR, tell)
        tell(f"Spark: starting {master}")
        spark = ending.enter_context(session(master, folder / "local", connector))
        engine = SparkEngine(spark, access, folder, tasks=max_tasks(spark), slots=slots)
        ending.callback(engine.close)
        yield engine


class TopicsFirst:
    """An engine with a Kafka of its own: the topics of a job are made before it is started."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine
        self.cancel, self.apply, self.jobs = engine.cancel, engine.apply, engine.jobs
        self.reports, self.capabilities = engine.reports, engine.capabilities
        self.close = engine.close

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        create_topics(self._engine.kafka, [job])
        return self._engine.submit(job, allocation, checkpoint)


def max_tasks(spark: SparkSession) -> int:
    """How many tasks the application can hold open at once: what Spark calls its slots."""
    scala: Any = spark._jsc.sc()  # noqa: SLF001 - only the JVM knows
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def create_topics(kafka: Kafka, jobs: Sequence[Job]) -> None:
    """The topics that the jobs read and write, where they are not there yet."""
    admin = AdminClient(dict(kafka.client))
    try:
        there = set(admin.list_topics(timeout=10).topics)
        wanted: dict[str, int] = {}
        for job in jobs:
            for source in job.sources:
                share = max(1, (source.partitions or PARTITIONS) // max(1, len(source.topics)))
                wanted |= dict.fromkeys(source.topics, share)
            wanted |= dict.fromkeys((sink.topic for sink in job.sinks), PARTITIONS)
            if job.dead_letter_topic is not None:
                wanted[job.dead_letter_topic] = 1
        missing = [NewTopic(name, count, 1) for name, count in wanted.items() if name not in there]
        for done in admin.create_topics(missing).values() if missing else ():
            done.result(timeout=30)
    except KafkaException as error:
        raise BrokerUnavailable(
            f"Kafka at {kafka.servers} does not make topics: {error}."
        ) from error
