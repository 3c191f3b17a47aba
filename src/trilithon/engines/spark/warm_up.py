"""Warms a new executor up: it computes what it will run, once, before it gets tasks of jobs.

A JVM that has just started loads classes and compiles for seconds, and a batch whose tasks wait for
it lets nothing of its job through. So the stages of the queries that run are computed before,
beside them: as a batch over a few of the records that they have read last, whose results nobody
writes.

A query that begins its next batch meanwhile must find its slots: the tasks of the warm-up have an
entry in the ledger, and what does not fit is left out. What keeps state is left out, too.
"""

import functools
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from trilithon import logs
from trilithon.engines.spark.compiler import Chain
from trilithon.engines.spark.failures import describe
from trilithon.engines.spark.frame import build_frame
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.ledger import Entry, Ledger
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.start import job_properties, local_properties
from trilithon.errors import DoesNotFit

# As what the probes count it, instead of as records of a job: no tenant can have this name.
WARM_UP: Final = ".trilithon/warm-up"
# Of each source.
RECORDS: Final = 20
# The stages of a batch run one after the other: nobody takes a record while others are sent.
_CREDIT: Final = 100_000
# In which executors learn of a routing table.
_LEARNED_S: Final = 0.3
# All queries, one after the other, and again: the first time classes are loaded.
TIMES: Final = 2
# What is late is left out.
WITHIN_S: Final = 45.0
_log = logs.logger()


@dataclass(frozen=True)
class RunningChain:
    """A query that runs, and the next offset of each partition that it reads."""

    chain: Chain
    kafka: Kafka
    next_offsets: Mapping[tuple[str, int], int]

    def read(self, spark: SparkSession, executors: int, options: Mapping[str, str]) -> DataFrame:
        """The last records of one partition of a source, in so many parts: Spark gives each
        executor one. A scan of Kafka would choose its executors itself.
        """
        assigned = json.loads(options["assign"]) if "assign" in options else {}
        topics = assigned or options["subscribe"].split(",")
        (topic, number), end = max(
            (item for item in self.next_offsets.items() if item[0][0] in topics),
            key=lambda item: item[1],
        )
        kept = {
            key: value
            for key, value in options.items()
            if key.startswith("kafka.") or key == "includeHeaders"
        }
        begin = max(0, end - RECORDS)
        return (
            spark.read.format("kafka")
            .options(**kept, assign=json.dumps({topic: [number]}), failOnDataLoss="false")
            .option("startingOffsets", json.dumps({topic: {str(number): begin}}))
            .option("endingOffsets", json.dumps({topic: {str(number): end}}))
            .load()
            .repartition(executors)
        )

    def width(self, executors: int) -> int:
        """The most tasks that its stages have at once: one stage runs after the other."""
        reading = executors * len(self.chain.sources)
        tables = len(self.chain.job.tables)
        return max(reading, *(stage.tasks for stage in self.chain.stages[1:])) + tables


@dataclass
class WarmUp:
    """Computes the stages of the queries of an application on whichever executors have room."""

    spark: SparkSession
    control: ProbeControl
    ledger: Ledger
    # The tasks of the live executors.
    tasks: Callable[[], int]
    running: Callable[[], Collection[RunningChain]]

    def run(self, executors: int) -> None:
        """Warms up so many executors, among which the new ones are. What fails is logged: a machine
        that is cold is better than none.
        """
        began_s, group, late = time.monotonic(), f"warm-up-{time.time_ns()}", threading.Event()

        def cancel() -> None:
            late.set()
            self.spark.sparkContext.cancelJobGroup(group)

        timer = threading.Timer(WITHIN_S, cancel)
        timer.daemon = True
        timer.start()
        try:
            self.ledger.tasks = self.tasks()
            self._compute_all(executors, group, late)
        except Exception as error:  # noqa: BLE001 - jobs go on in any case
            if not late.is_set():
                _log.warning("not_warmed_up", problem=describe(error))
        finally:
            timer.cancel()
        took_s = round(time.monotonic() - began_s, 1)
        _log.info("warmed_up", took_s=took_s, late=late.is_set())

    def _compute_all(self, executors: int, group: str, late: threading.Event) -> None:
        # Stages as those of a stream, which are not planned anew while they run.
        session = self.spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "false")
        frames: dict[str, DataFrame] = {}
        chains = [
            each
            for each in self.running()
            if not any(operator.work.stateful for operator in each.chain.operators)
        ]
        for each in chains * TIMES:
            if late.is_set():
                return
            if (name := each.chain.job.id) not in frames:
                read = functools.partial(each.read, session, executors)
                frames[name] = build_frame(session, each.chain, each.kafka, WARM_UP, read)
            with self._room(each.width(executors)) as enough:
                if enough:
                    self._compute(frames[name], each.chain, group)

    @contextmanager
    def _room(self, tasks: int) -> Iterator[bool]:
        """Holds so many tasks, if they are free."""
        try:
            self.ledger.reserve(WARM_UP, Entry(WARM_UP, tasks, 0))
            self.ledger.occupy(WARM_UP)
            enough = True
        except DoesNotFit:
            enough = False
        try:
            yield enough
        finally:
            self.ledger.release(WARM_UP)

    def _compute(self, frame: DataFrame, chain: Chain, group: str) -> None:
        incarnation = self.control.start_job(WARM_UP, chain.names)
        for operator in chain.operators:
            weights = [1] * chain.tasks_of(operator)
            table = {"generation": 1, "weights": weights, "credit": _CREDIT}
            self.control.set_table(WARM_UP, operator.name, table)
        time.sleep(_LEARNED_S)
        properties = {
            **job_properties(WARM_UP, incarnation),
            "streaming.sql.batchId": "0",
            "spark.jobGroup.id": group,
            "spark.job.description": "warms new executors up",
            "spark.job.interruptOnCancel": "true",
        }
        try:
            with local_properties(self.spark, properties):
                frame.write.format("noop").mode("overwrite").save()
        finally:
            self.control.end_job(WARM_UP)
