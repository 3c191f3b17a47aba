"""Owns an application: the broker if there is none, the Spark session, and the engine on top of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import session
from trilithon.errors import BrokerUnavailable
from trilithon.model.action import Outcome
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job

PARTITIONS = 2


@dataclass(frozen=True)
class Setup:
    """What an application is started with."""

    master: str
    folder: Path
    slots: int
    # host:port of a Kafka, and its client's settings; without it there is an embedded one.
    kafka: str | None = None
    kafka_settings: Mapping[str, str] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    executors: int | None = None


@contextmanager
def application(
    setup: Setup, jobs: Sequence[Job] = (), tell: Callable[[str], None] = lambda _: None
) -> Iterator[SparkEngine]:
    """An engine that runs jobs. Without a Kafka there is an embedded one, with the jobs' topics."""
    with ExitStack() as ending:
        if setup.kafka is None:
            broker = ending.enter_context(EmbeddedBroker.start(progress=tell))
            access = Kafka(broker.address)
            create_topics(access, jobs)
        else:
            access = Kafka(setup.kafka, setup.kafka_settings)
        connector = jars(CONNECTOR, tell)
        tell(f"Spark: starting {setup.master}")
        spark = ending.enter_context(
            session(
                setup.master,
                setup.folder / "local",
                connector,
                settings=setup.spark_settings,
                executors=setup.executors,
            )
        )
        engine = SparkEngine(
            spark,
            access,
            setup.folder,
            tasks=lambda: max_tasks(spark),
            slots=setup.slots,
            quotas=setup.quotas,
        )
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
