"""Starts a chain as one real-time query whose stages are the compiled ones, or refuses it."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trilithon import logs
from trilithon.engines.spark.compiler import Chain, plan_chain
from trilithon.engines.spark.file_path import FilePath
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka, partitions, record_limits
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.state_partitions import state_partitions
from trilithon.errors import PlanMismatch, QueryNotStarted
from trilithon.model.job import Job

START_S: Final = 60.0
# How long a record may wait for Kafka before its query fails. The producer counts by the wall
# clock: with its own two minutes, every record on its way is too old when the clock is set forwards
# by an hour, and the query dies. An outage of Kafka is noticed by other means.
WRITER: Final = {"kafka.delivery.timeout.ms": str(2 * 3600 * 1000)}
_POLL_S: Final = 0.05
_STOP_ATTEMPTS: Final = 2
_log = logs.logger()


@dataclass(frozen=True)
class RunningQuery:
    """The running query of a job: its chain and its incarnation."""

    chain: Chain
    query: StreamingQuery
    incarnation: int

    @property
    def active(self) -> bool:
        return bool(self.query.isActive)

    def stop(self) -> None:
        """Stops the query at once; the next start replays the open batch."""
        self.query.stop()

    def end(self) -> bool:
        """Stops the query, also if `stop` throws; whether it has ended."""
        for _ in range(_STOP_ATTEMPTS):
            try:
                self.stop()
            except (Py4JError, PySparkException):
                _log.exception("query_stop_failed", job=self.chain.job.id)
            if not self.active:
                return True
        return False


def start(
    spark: SparkSession, job: Job, kafka: Kafka, checkpoint: FilePath, timeout_s: float = START_S
) -> RunningQuery:
    """Compiles and starts a job, and waits until its first batch runs.

    Raises `InvalidJob` with every problem before anything is started.
    """
    chain = plan_with_partitions(spark, job, kafka)
    return start_frame(spark, chain, build_frame(spark, chain, kafka), kafka, checkpoint, timeout_s)


def plan_with_partitions(spark: SparkSession, job: Job, kafka: Kafka) -> Chain:
    """The chain of a job with the current partitions of its topics."""
    plan_chain(job)  # first the checks that need no Kafka
    readers, topics = partitions(spark, kafka, job)
    written = [sink.topic for sink in job.sinks]
    dead_letters = () if job.dead_letter_topic is None else (job.dead_letter_topic,)
    limits = record_limits(spark, kafka, (*written, *dead_letters))
    return plan_chain(job, readers, topics, limits)


def start_frame(
    spark: SparkSession,
    chain: Chain,
    frame: DataFrame,
    kafka: Kafka,
    checkpoint: FilePath,
    timeout_s: float = START_S,
    batch_s: float | None = None,
    waits: Mapping[str, str] | None = None,
) -> RunningQuery:
    """Starts a chain's query; stops it and raises if its stages are not the compiled ones. Spark
    ends a batch by itself after `batch_s`, or after the time that the job's trigger says. `waits`
    are options of the writer, unless the job has others.
    """
    control, job = ProbeControl(spark), chain.job
    incarnation = control.start_job(job.id, chain.names)
    writer = (
        frame.writeStream.format("kafka")
        .queryName(job.id)
        .options(**{**WRITER, **(waits or {}), **chain.writer_options, **kafka.options})
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
    )
    # PySpark's type stubs lack real-time mode.
    real_time: Any = writer.trigger
    writer = real_time(realTime=f"{round((batch_s or job.batch_s) * 1000)} milliseconds")
    # The query's thread inherits these local properties and passes them to its tasks: by them a
    # probe knows its job.
    properties = job_properties(job.id, incarnation)
    try:
        with local_properties(spark, properties), state_partitions(spark, chain.operators):
            query = writer.start()
    except PySparkException as error:
        control.end_job(job.id)
        raise QueryNotStarted(f"Spark did not start {job.id}: {first_line(error)}") from error
    try:
        _await_stages(control, query, chain, timeout_s)
    except BaseException:
        # What failed to start must not run on, and why it failed must not be hidden.
        RunningQuery(chain, query, incarnation).end()
        control.end_job(job.id)
        raise
    return RunningQuery(chain, query, incarnation)


def job_properties(job: str, incarnation: int) -> dict[str, str]:
    """By which a probe knows its job."""
    return {"trilithon.job": job, "trilithon.incarnation": str(incarnation)}


@contextmanager
def local_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Spark passes these on to what this thread starts."""
    context = spark.sparkContext
    try:
        for name, value in properties.items():
            context.setLocalProperty(name, value)
        yield
    finally:
        for name in properties:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it


def _await_stages(
    control: ProbeControl, query: StreamingQuery, chain: Chain, timeout_s: float
) -> None:
    def wait_for(condition: Callable[[], bool]) -> None:
        while not condition():
            if (failure := query.exception()) is not None:
                raise QueryNotStarted(f"{chain.job.id} ended: {first_line(failure)}") from failure
            if time.monotonic() > deadline:
                raise QueryNotStarted(
                    f"{chain.job.id} did not start a batch within {timeout_s:g} s."
                )
            time.sleep(_POLL_S)

    deadline = time.monotonic() + timeout_s
    # The scheduler may still report the previous run.
    run = f"{query.runId}:"
    wait_for(
        lambda: (
            bool(control.tasks_per_stage(chain.job.id))
            and control.batch(chain.job.id).startswith(run)
        )
    )
    if (planned := control.tasks_per_stage(chain.job.id)) != chain.tasks_per_stage:
        raise plan_mismatch(chain, planned)
    # Spark plans a batch before it looks for slots: the query has started when its tasks run.
    # Only this job is asked about: with many jobs, all their tables would take longer than a poll.
    wait_for(lambda: control.tasks_started(chain.job.id) == chain.tasks_per_stage)


def plan_mismatch(chain: Chain, planned: tuple[int, ...]) -> PlanMismatch:
    return PlanMismatch(
        f"Spark planned stages of {_listed(planned)} tasks for {chain.job.id}, expected were "
        f"{_listed(chain.tasks_per_stage)} ({', '.join(chain.names)}).",
        "The job was stopped: its metrics would be attributed to the wrong operators.",
    )


def _listed(tasks: tuple[int, ...]) -> str:
    return ", ".join(map(str, tasks)) or "no"


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its class without one."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
