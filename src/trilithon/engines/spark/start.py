"""Owns the start of a chain: everything checked that can be, then one real-time query with the stages
that were compiled, or none.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trilithon.engines.spark.compiler import Chain, plan_chain
from trilithon.engines.spark.control import Control
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka, partitions
from trilithon.errors import PlanMismatch, QueryNotStarted
from trilithon.model.job import Job

START_S: Final = 60.0
_POLL_S: Final = 0.05


@dataclass(frozen=True)
class Running:
    """A job that runs: its chain, its query and which life of the job it is."""

    chain: Chain
    query: StreamingQuery
    incarnation: int

    def stop(self) -> None:
        """Ends the query where it is; the open batch is replayed at the next start."""
        self.query.stop()


def start(
    spark: SparkSession, job: Job, kafka: Kafka, checkpoint: Path, timeout_s: float = START_S
) -> Running:
    """Compiles and starts a job, and waits until its first batch runs.

    Raises `InvalidJob` with every problem of what is wrong before anything is started.
    """
    chain = planned(spark, job, kafka)
    return start_frame(spark, chain, build_frame(spark, chain, kafka), kafka, checkpoint, timeout_s)


def planned(spark: SparkSession, job: Job, kafka: Kafka) -> Chain:
    """The chain of a job with the partitions that its topics have now."""
    plan_chain(job)  # what can be refused without Kafka is refused without asking it
    return plan_chain(job, partitions(spark, kafka, job))


def start_frame(
    spark: SparkSession,
    chain: Chain,
    frame: DataFrame,
    kafka: Kafka,
    checkpoint: Path,
    timeout_s: float = START_S,
) -> Running:
    """Starts a chain's query and refuses it if its stages are not the compiled ones."""
    control, job = Control(spark), chain.job
    incarnation = control.start_job(job.id, chain.names)
    writer = (
        frame.writeStream.format("kafka")
        .queryName(job.id)
        .options(**{**chain.writer_options, **kafka.options})
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
    )
    # PySpark's types do not know real-time mode yet.
    real_time: Any = writer.trigger
    writer = real_time(realTime=f"{round(job.batch_s * 1000)} milliseconds")
    # The query's thread inherits these, and its tasks get them: that is how a probe knows its job.
    properties = {"trilithon.job": job.id, "trilithon.incarnation": str(incarnation)}
    context = spark.sparkContext
    try:
        for name, value in properties.items():
            context.setLocalProperty(name, value)
        query = writer.start()
    except PySparkException as error:
        control.end_job(job.id)
        raise QueryNotStarted(f"Spark does not start {job.id}: {first_line(error)}") from error
    finally:
        for name in properties:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes it
    try:
        _await_stages(control, query, chain, timeout_s)
    except BaseException:
        query.stop()
        control.end_job(job.id)
        raise
    return Running(chain, query, incarnation)


def _await_stages(control: Control, query: StreamingQuery, chain: Chain, timeout_s: float) -> None:
    def wait_for(condition: Callable[[], bool]) -> None:
        while not condition():
            if (failure := query.exception()) is not None:
                raise QueryNotStarted(f"{chain.job.id} ended: {first_line(failure)}") from failure
            if time.monotonic() > deadline:
                raise QueryNotStarted(f"{chain.job.id} runs no batch after {timeout_s:g} s.")
            time.sleep(_POLL_S)

    deadline = time.monotonic() + timeout_s
    # The scheduler may still tell of the run before.
    run = f"{query.runId}:"
    wait_for(
        lambda: (
            bool(control.tasks_per_stage(chain.job.id))
            and control.batch(chain.job.id).startswith(run)
        )
    )
    if (found := control.tasks_per_stage(chain.job.id)) != chain.tasks_per_stage:
        raise mismatch(chain, found)
    # A batch is planned before Spark looks for slots: only tasks that run are a start.
    wait_for(
        lambda: all(control.running_tasks(chain.job.id, s.name) == s.tasks for s in chain.stages)
    )


def mismatch(chain: Chain, found: tuple[int, ...]) -> PlanMismatch:
    return PlanMismatch(
        f"Spark planned stages of {_listed(found)} tasks for {chain.job.id}, compiled were "
        f"{_listed(chain.tasks_per_stage)} ({', '.join(chain.names)}).",
        "The job is not run, since its figures would be attributed wrongly.",
    )


def _listed(tasks: tuple[int, ...]) -> str:
    return ", ".join(map(str, tasks)) or "no"


def first_line(error: Exception) -> str:
    """What an error says first, or what it is if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
