"""Starts a Spark application: the embedded broker if needed, the session and the engine on top."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trilithon import logs
from trilithon.engines.spark.broker import EmbeddedBroker
from trilithon.engines.spark.cluster_shares import executor_settings, shortage
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.jdk import find_jdk
from trilithon.engines.spark.kafka import Kafka, await_known
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import class_archive, driver_process, session
from trilithon.engines.spark.standalone import StandaloneCluster, check_master, own_cluster
from trilithon.errors import BrokerUnavailable, TrilithonError
from trilithon.model.action import Outcome
from trilithon.model.allocation import Allocation
from trilithon.model.job import Job

PARTITIONS = 2
# How long Kafka may take to create topics, and then to list them.
CREATED_S = 30.0
_log = logs.logger()


@dataclass(frozen=True)
class Setup:
    """The settings of a Spark application."""

    master: str
    folder: Path
    slots: int
    # host:port of a Kafka cluster and its client settings; None starts an embedded broker.
    kafka: str | None = None
    kafka_settings: Mapping[str, str] = field(default_factory=dict)
    # Client settings of tenants with a principal of their own.
    tenant_kafka: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    executors: int | None = None
    # Whether an embedded broker goes on when the application ends.
    keep_broker: bool = False
    # Whether to make an archive of the classes that Spark loads, for faster starts from then on:
    # worth it for an application that is started again when it dies.
    archive_classes: bool = False
    # Of one application among several that share the folder and with it checkpoints by job.
    name: str = ""
    # Among how many applications the standalone cluster of the state folder is divided.
    applications: int = 1
    # The standalone cluster whose machines the engine may add and remove; None for that of the
    # state folder, if the master is its own.
    cluster: StandaloneCluster | None = None


@contextmanager
def application(
    setup: Setup,
    jobs: Sequence[Job] = (),
    progress: Callable[[str], None] = lambda _: None,
    replace_host: Callable[[str], None] | None = None,
) -> Iterator[SparkEngine]:
    """An engine on a new application. An embedded broker gets the jobs' topics first.
    `replace_host` is called, with the reason, when only another process can end a thread.
    """
    check_master(setup.master)
    with ExitStack() as ending:
        # A broker starts while Spark does: both are JVMs that take seconds.
        broker = None
        if setup.kafka is None:
            broker = ending.enter_context(_starting(progress, keep=setup.keep_broker))
        connector = fetch_jars(CONNECTOR, progress)
        cluster = setup.cluster or own_cluster(setup.master)
        given = setup.spark_settings
        settings = {**executor_settings(cluster, setup.applications, given), **given}
        progress(f"Spark: starting {setup.master}")
        began_s = time.monotonic()
        spark = ending.enter_context(
            session(
                setup.master,
                setup.folder / "local" / setup.name,
                connector,
                name=f"trilithon-{setup.name}" if setup.name else "trilithon",
                settings=settings,
                executors=setup.executors or _workers(cluster),
                record_classes=setup.archive_classes,
                shortage=shortage(cluster, settings),
            )
        )
        _log.info("spark_started", master=setup.master, took_s=_since(began_s))
        access = Kafka(setup.kafka or "", setup.kafka_settings, setup.tenant_kafka)
        if broker is not None:
            access = Kafka(broker.result().address)
            _log.info("broker_ready", address=access.servers, took_s=_since(began_s))
            create_topics(access, jobs)
        engine = SparkEngine(
            spark,
            access,
            setup.folder,
            tasks=lambda: max_tasks(spark),
            slots=setup.slots,
            quotas=setup.quotas,
            replace_host=replace_host,
            cluster=cluster,
        )
        if broker is not None:
            engine.monitor.revive = broker.result().revive
        ending.callback(engine.close)
        if setup.archive_classes:
            ending.callback(_archive_classes(engine, connector))
        yield engine


def _workers(cluster: StandaloneCluster | None) -> int | None:
    """How many executors to wait for: those of the workers that run."""
    workers = () if cluster is None else cluster.status().workers
    return sum(worker.pid is not None for worker in workers) or None


def _archive_classes(engine: SparkEngine, connector: Sequence[Path]) -> Callable[[], None]:
    """Makes the archive of classes when a job runs; returns what ends that."""
    jdk, driver = find_jdk(), driver_process()
    if jdk is None or driver is None:
        return lambda: None

    def runs() -> bool:
        return any(managed.running is not None for managed in list(engine.managed.values()))

    return class_archive(jdk, connector).make_when(runs, driver)


def _since(began_s: float) -> float:
    return round(time.monotonic() - began_s, 3)


@contextmanager
def _starting(progress: Callable[[str], None], *, keep: bool) -> Iterator["Future[EmbeddedBroker]"]:
    """An embedded broker that is being started; it is stopped at the end, unless it is kept."""
    with ThreadPoolExecutor(1, "broker") as pool:
        broker = pool.submit(EmbeddedBroker.start, detached=keep, progress=progress)
        try:
            yield broker
        finally:
            with suppress(TrilithonError):  # it did not start: whoever waited for it knows
                if not keep:
                    broker.result().stop()


class TopicCreatingEngine:
    """An engine with an embedded broker: creates the topics of a job before it submits it."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine
        self.cancel, self.apply, self.jobs = engine.cancel, engine.apply, engine.jobs
        self.reports, self.capabilities = engine.reports, engine.capabilities
        self.conditions = engine.conditions
        self.close = engine.close

    def submit(self, job: Job, allocation: Allocation, checkpoint: str = "") -> Outcome:
        create_topics(self._engine.kafka, [job])
        return self._engine.submit(job, allocation, checkpoint)


def _listed(admin: AdminClient) -> set[str]:
    """The topics that the broker lists without an error."""
    topics = admin.list_topics(timeout=10).topics
    return {name for name, topic in topics.items() if topic.error is None}


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
        if not missing:
            return
        for creation in admin.create_topics(missing).values():
            creation.result(timeout=CREATED_S)
        await_known([each.topic for each in missing], lambda: _listed(admin), CREATED_S)
    except KafkaException as error:
        raise BrokerUnavailable(
            f"Kafka at {kafka.servers} did not create the topics: {error}."
        ) from error
