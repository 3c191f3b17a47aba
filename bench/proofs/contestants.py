"""The same work written by hand in PySpark and run by the engine, to be measured in turns.

`base64` is the query of Spark's own benchmark of real-time mode (RTMKafkaKafkaBenchmark): it
encodes the values of a topic. `ysb` is the Yahoo streaming benchmark as this package ships it. Both
take the column `sent` along, by which a row tells when its record was sent.

Who runs it:

plain      as one writes it by hand: nothing between reading and writing that need not be
staged     by hand with the engine's shuffles, rows as JSON on both sides, one stage per operator
trilithon  through the engine
open-gate  through the engine, with credit for any number of records in flight
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from bench.proofs.control import ProofControl, first
from bench.proofs.scene import Scene
from bench.proofs.usage import own_threads, threads_cpu_s
from trilithon.contract.condition import Health
from trilithon.contract.engine import Status
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.local_tables import local_table
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.model.job import Field, HeldTasks, Job, Parallelism
from trilithon.python_files import jobs_of_python
from trilithon.spec.job_file import parse_job
from trilithon.workloads.ad_events import SCHEMA

QUERIES: Final = ("plain", "staged", "trilithon", "open-gate")
# Each with the kind of records that it reads.
WORKLOADS: Final = {"base64": "text", "ysb": "ads"}
PARTITIONS: Final = 5
TASKS: Final = 5
# No batch ends within a turn.
BATCH_S: Final = 1800.0
# How often a daemon asks its host for reports.
POLL_S: Final = 1.0
OPEN: Final = 1_000_000
# A session of the engine sets these otherwise, and a query by hand would not.
BY_HAND: Final = {
    "spark.sql.subexpressionElimination.enabled": "true",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "true",
    "spark.sql.shuffle.partitions": str(TASKS),
}
TEXT_SCHEMA: Final = "n BIGINT, sent DOUBLE, text STRING"
# A filter with it stays behind its shuffle: Spark pushes others to the source.
STAYS: Final = "rand() >= 0"
Topics = tuple[str, str]


# -- through the engine


def job_of(workload: str, topics: Topics) -> Job:
    """The workload as a tenant would write it."""
    job = _base64_job(topics) if workload == "base64" else _ysb_job(topics)
    return replace(job, batch_s=BATCH_S)


def _base64_job(topics: Topics) -> Job:
    return parse_job(f"""
name: base64
tenant: bench
sources:
  - name: in
    options: {{subscribe: {topics[0]}, startingOffsets: earliest}}
    schema: {{n: BIGINT, sent: DOUBLE, text: STRING}}
    partitions: {PARTITIONS}
operators:
  - name: encode
    input: in
    select: [n, sent, "base64(encode(text, 'UTF-8')) AS text"]
    parallelism: {{initial: {TASKS}, max: {TASKS}}}
sinks:
  - {{name: out, input: encode, options: {{topic: {topics[1]}}}}}
""")


def _ysb_job(topics: Topics) -> Job:
    """The job as it ships, with the column `sent` and as many instances as tasks."""
    shipped = Path(str(resources.files("trilithon.workloads") / "jobs" / "ysb.py"))
    ((job, _),) = jobs_of_python(shipped)
    (source,), (sink,) = job.sources, job.sinks
    read = {**dict(source.options), "subscribe": topics[0], "startingOffsets": "earliest"}
    source = replace(
        source,
        schema=(*source.schema, Field("sent", "DOUBLE")),
        options=tuple(read.items()),
        partitions=PARTITIONS,
    )
    operators = []
    for operator in job.operators:
        work = operator.work
        if work.aggregate:
            work = replace(work, aggregate=(*work.aggregate, ("sent", "max(sent)")))
        else:
            work = replace(work, select=(*work.select, "sent"))
        wide = Parallelism(TASKS, 1, TASKS, HeldTasks.ALL)
        operators.append(replace(operator, work=work, parallelism=wide))
    return replace(
        job,
        tenant="bench",
        sources=(source,),
        operators=tuple(operators),
        sinks=(replace(sink, options=(("topic", topics[1]),)),),
    )


# -- by hand


def frame_by_hand(spark: SparkSession, raw: DataFrame, workload: str, *, staged: bool) -> DataFrame:
    """The query of a workload over the records of Kafka, with the columns of its writer."""
    if workload == "base64":
        return _base64_staged(raw) if staged else _base64_plain(raw)
    return _ysb(spark, raw, _shuffled if staged else _as_it_is)


def _base64_plain(raw: DataFrame) -> DataFrame:
    """The value is bytes; a header has the time of the record, as in Spark's benchmark."""
    at = F.encode(F.unix_millis("timestamp").cast("string"), "UTF-8")
    header = F.struct(F.lit("source-timestamp").alias("key"), at.alias("value"))
    return raw.select(F.base64("value").alias("value"), F.array(header).alias("headers"))


def _base64_staged(raw: DataFrame) -> DataFrame:
    row = F.from_json(F.col("value").cast("string"), TEXT_SCHEMA)
    rows = _shuffled(raw.select(row.alias("row")).select("row.*"))
    encoded = rows.select("n", "sent", F.base64(F.encode("text", "UTF-8")).alias("text"))
    return encoded.select(F.to_json(F.struct("*")).alias("value"))


def _ysb(
    spark: SparkSession, raw: DataFrame, next_stage: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    (table,) = _ysb_job(("in", "out")).tables
    ads = local_table(spark, table, "tables[0]", "ysb")
    row = F.from_json(F.col("value").cast("string"), f"{SCHEMA}, sent DOUBLE")
    events = next_stage(raw.select(row.alias("row")).select("row.*"))
    views = next_stage(
        events.where("event_type = 'view'").selectExpr(
            "ad_id", "timestamp_millis(event_time) AS event_time", "sent"
        )
    )
    campaigns = views.join(F.broadcast(ads), "ad_id").select("campaign_id", "event_time", "sent")
    counts = (
        campaigns.withWatermark("event_time", "10 seconds")
        .groupBy("campaign_id", F.window("event_time", "10 seconds"))
        .agg(F.count("*").alias("views"), F.max("sent").alias("sent"))
    )
    return counts.select(F.col("campaign_id").alias("key"), F.to_json(F.struct("*")).alias("value"))


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


def _shuffled(frame: DataFrame) -> DataFrame:
    return frame.repartition(TASKS).where(STAYS)


# -- whoever has their turn


class Contestant(Protocol):
    """A query that runs."""

    def host_cpu_s(self) -> float:
        """The CPU seconds of what runs beside Spark for it."""
        ...

    def parked_s(self) -> float | None:
        """How long its senders have waited for credit, in all; None without a gate."""
        ...

    def stop(self) -> None:
        """Raises if it has died."""
        ...


def started(name: str, around: Scene, workload: str, topics: Topics, folder: Path) -> Contestant:
    """Starts one of the queries on new checkpoints."""
    if name in {"plain", "staged"}:
        return QueryByHand(around, workload, topics, folder, staged=name == "staged")
    return EngineJob(around, job_of(workload, topics), folder, open_gate=name == "open-gate")


class QueryByHand:
    """A query of plain PySpark, in a session with Spark's own settings for queries."""

    def __init__(
        self, around: Scene, workload: str, topics: Topics, folder: Path, *, staged: bool
    ) -> None:
        spark = around.spark.newSession()
        for setting, value in BY_HAND.items():
            spark.conf.set(setting, value)
        read = {"subscribe": topics[0], "startingOffsets": "earliest", **around.kafka.options}
        raw = spark.readStream.format("kafka").options(**read).load()
        writer: Any = (
            frame_by_hand(spark, raw, workload, staged=staged)
            .writeStream.format("kafka")
            .options(**around.kafka.options, topic=topics[1])
            .option("checkpointLocation", str(folder))
            .outputMode("update")
        )
        # PySpark's type stubs lack real-time mode.
        self._query = writer.trigger(realTime=f"{BATCH_S:g} seconds").start()

    def host_cpu_s(self) -> float:
        return 0.0

    def parked_s(self) -> float | None:
        return None

    def stop(self) -> None:
        failure = self._query.exception()
        self._query.stop()
        if failure is not None:
            raise failure


class EngineJob:
    """A job of an engine that is asked for reports as a daemon does."""

    def __init__(self, around: Scene, job: Job, folder: Path, *, open_gate: bool) -> None:
        spark, self.job = around.spark, job
        before = own_threads()
        self.engine = SparkEngine(
            spark, around.kafka, folder, tasks=lambda: max_tasks(spark), slots=4 * TASKS
        )
        outcome = self.engine.submit(job, initial(job))
        assert outcome.status is Status.DONE, outcome
        self._control = ProofControl(spark)
        if open_gate:
            for operator in job.operators:
                table = {"weights": first(TASKS, TASKS), "credit": OPEN, "generation": OPEN}
                assert self._control.set_table(job.id, operator.name, table)
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()
        # Those of the engine: what sends and reads records is in another process.
        self._threads = own_threads() - before

    def _poll(self) -> None:
        while not self._ended.wait(POLL_S):
            self.engine.reports()

    def host_cpu_s(self) -> float:
        return threads_cpu_s(self._threads)

    def parked_s(self) -> float | None:
        return sum(self._control.parked_s(self.job.id).values())

    def stop(self) -> None:
        self._ended.set()
        self._poller.join()
        condition = self.engine.conditions().get(self.job.id)
        self.engine.cancel(self.job.id)
        self.engine.close()
        if condition is None or condition.health is not Health.RUNNING:
            raise RuntimeError(f"{self.job.id} does not run: {condition}")
