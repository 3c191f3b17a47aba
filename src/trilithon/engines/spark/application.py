"""Starts a Spark application: the embedded broker if needed, the session and the engine on top."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
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
    """The settings of a Spark application."""

    master: str
    folder: Path
    slots: int
    # host:port of a Kafka cluster and its client settings; None starts an embedded broker.
    kafka: str | None = None
    kafka_settings: Mapping[str, str] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    executors: int | None = None


@contextmanager
def application(
    setup: Setup, jobs: Sequence[Job] = (), progress: Callable[[str], None] = lambda _: None
) -> Iterator[SparkEngine]:
    """An engine on a new application. An embedded broker gets the jobs' topics first."""
    with ExitStack() as ending:
        if setup.kafka is None:
            broker = ending.enter_context(EmbeddedBroker.start(progress=progress))
            access = Kafka(broker.address)
            create_topics(access, jobs)
        else:
            access = Kafka(setup.kafka, setup.kafka_settings)
        connector = fetch_jars(CONNECTOR, progress)
        progress(f"Spark: starting {setup.master}")
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


class TopicCreatingEngine:
    """An engine with an embedded broker: creates the topics of a job before it submits it."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine
        self.cancel, self.apply, self.jobs = engine.cancel, engine.apply, engine.jobs
        self.reports, self.capabilities = engine.reports, engine.capabilities
        self.close = engine.close

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        create_topics(self._engine.kafka, [job])
        return self._engine.submit(job, allocation, checkpoint)


def create_topics(kafka: Kafka, jobs: Sequence[Job]) -> None:
    """Creates the topics that the jobs read and write, as far as they are missing."""
    admin = AdminClient({"log_level": 0, **kafka.client})
    try:
        existing = set(admin.list_topics(timeout=10).topics)
        wanted: dict[str, int] = {}
        for job in jobs:
            for source in job.sources:
                share = max(1, (source.partitions or PARTITIONS) // max(1, len(source.topics)))
                wanted |= dict.fromkeys(source.topics, share)
            wanted |= dict.fromkeys((sink.topic for sink in job.sinks), PARTITIONS)
            if job.dead_letter_topic is not None:
                wanted[job.dead_letter_topic] = 1
        missing = [
            NewTopic(name, count, 1) for name, count in wanted.items() if name not in existing
        ]
        for creation in admin.create_topics(missing).values() if missing else ():
            creation.result(timeout=30)
    except KafkaException as error:
        raise BrokerUnavailable(
            f"Kafka at {kafka.servers} did not create the topics: {error}."
        ) from error
