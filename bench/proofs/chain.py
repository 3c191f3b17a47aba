"""The job of a proof: numbered records through a line of operators.

The frame is built here, not by the compiler, because each record collects the tasks that it went
through, which an expression of a job may not. Everything else is the engine's own.
"""

import itertools
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bench.proofs.scene import Scene
from trilithon.engines.spark.compiler import plan_chain
from trilithon.engines.spark.expressions import qualify_probe_functions
from trilithon.engines.spark.frame_sources import KAFKA_SOURCE
from trilithon.engines.spark.session import CATALOG
from trilithon.engines.spark.start import RunningQuery, start_frame
from trilithon.model.job import (
    Edge,
    Field,
    HeldTasks,
    Job,
    Operator,
    Parallelism,
    Sink,
    Source,
    Work,
)

SOURCE = "src"


def line(name: str, operators: Mapping[str, str], tasks: int, topics: tuple[str, str]) -> Job:
    """A job of operators, each with its condition, between two topics; one batch is ten minutes."""
    names = [SOURCE, *operators, "out"]
    read, written = topics
    return Job(
        tenant="bench",
        name=name,
        sources=(
            Source(
                SOURCE,
                (Field("n", "BIGINT"), Field("sent", "DOUBLE")),
                (("subscribe", read), ("startingOffsets", "earliest")),
            ),
        ),
        operators=tuple(
            Operator(operator, Work(where=where), Parallelism(max=tasks, tasks=HeldTasks.ALL))
            for operator, where in operators.items()
        ),
        edges=tuple(Edge(a, b) for a, b in itertools.pairwise(names)),
        sinks=(Sink("out", (("topic", written),)),),
        batch_s=600,
    )


def run(scene: Scene, job: Job, partitions: int = 1, *, probed: bool = True) -> RunningQuery:
    """Starts the job and waits until its first batch runs with the compiled stages.

    Without probes it is the same query in plain Spark: nothing is counted or timed, and Spark
    itself spreads the records over all tasks.
    """
    chain = plan_chain(job, {SOURCE: partitions})
    checkpoint = scene.folder / "checkpoints" / job.name
    frame = _frame(scene, job) if probed else _plain_frame(scene, job)
    return start_frame(scene.spark, chain, frame, scene.kafka, checkpoint)


def _plain_frame(scene: Scene, job: Job) -> DataFrame:
    options = {**dict(job.sources[0].options), **scene.kafka.options}
    frame = (
        scene.spark.readStream.format("kafka")
        .options(**options)
        .load()
        .select(F.col("value").cast("string").alias("v"))
    )
    for operator in job.operators:
        work = qualify_probe_functions(operator.work.where or "true")
        frame = (
            frame.repartition(operator.parallelism.max)
            # Spark pushes a filter through a shuffle unless it cannot be moved.
            .where(f"({work}) AND rand() >= 0")
            .withColumn("v", F.expr("concat(v, ' ', spark_partition_id())"))
        )
    return frame.select(F.lit(job.sinks[0].topic).alias("topic"), F.col("v").alias("value"))


def _frame(scene: Scene, job: Job) -> DataFrame:
    options = {**dict(job.sources[0].options), **scene.kafka.options}
    frame = (
        scene.spark.readStream.format(KAFKA_SOURCE)
        .options(**options)
        .load()
        .select(F.col("value").cast("string").alias("v"), F.unix_micros("timestamp").alias("_o"))
        .where(f"{CATALOG}.take('{job.id}/>{SOURCE}', _o, _o)")
    )
    sender = SOURCE
    for operator in job.operators:
        edge = f"{job.id}/{sender}>{operator.name}"
        work = qualify_probe_functions(operator.work.where or "true")
        frame = (
            frame.withColumn("_p", F.expr(f"{CATALOG}.route('{edge}', 1, v)"))
            .withColumn("_t", F.expr(f"{CATALOG}.emit('{edge}', _p)"))
            .repartitionById(operator.parallelism.max, F.col("_p"))
            .drop("_p")
            .where(f"{CATALOG}.take('{edge}', _t, _o)")
            .where(f"{CATALOG}.mark('{job.id}/{operator.name}', {work})")
            .withColumn("v", F.expr("concat(v, ' ', spark_partition_id())"))
        )
        sender = operator.name
    return frame.where(f"{CATALOG}.sink('{job.id}/{sender}', _o, v)").select(
        F.lit(job.sinks[0].topic).alias("topic"), F.col("v").alias("value")
    )
