"""Calls the probe inside the Spark driver: incarnations, routing tables, batches, reports."""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from trilithon.engines.spark.whole_reports import WholeReports


class ProbeControl:
    """The probe in the driver of a session. All methods may be called while queries run."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the probe is the JVM's
        self._probe: Any = jvm.io.trilithon.probe.Control
        self._reports, self._draining = WholeReports(), threading.Lock()

    def start_job(self, job: str, stages: Sequence[str]) -> int:
        """Begins and returns a new incarnation of a job; stages are named from source to sink."""
        return int(self._probe.startJob(job, json.dumps(list(stages))))

    def set_least_incarnation(self, least: int) -> None:
        """The incarnations that begin from now on are at least this one."""
        self._probe.leastIncarnation(least)

    def driver_time_s(self) -> float:
        """The time of the driver, in which reports are timed: it never steps."""
        return float(self._probe.nowUs()) / 1e6

    def end_job(self, job: str) -> None:
        self._probe.endJob(job)

    def set_table(self, job: str, operator: str, table: Mapping[str, Any]) -> bool:
        """Pushes a routing table; false if one of this or a later generation is set already."""
        return bool(self._probe.setTable(job, operator, json.dumps(dict(table))))

    def use_tasks(self, job: str, operator: str, count: int, tasks: int, generation: int) -> bool:
        """Routes records to the first `count` of an operator's `tasks`, with equal weights."""
        weights = [1] * count + [0] * (tasks - count)
        return self.set_table(job, operator, {"generation": generation, "weights": weights})

    def tasks_per_stage(self, job: str) -> tuple[int, ...]:
        """The tasks of each stage of the running batch; empty before the first."""
        return tuple(json.loads(self._probe.tasksPerStage(job)))

    def tasks_started(self, job: str) -> tuple[int, ...]:
        """How many tasks of each stage of the running batch have started; empty before the
        first.
        """
        return tuple(json.loads(self._probe.tasksStarted(job)))

    def totals(self, job: str) -> list[dict[str, Any]]:
        """The cumulative counters of the job's instances."""
        instances = json.loads(self._probe.totals())
        return [instance for instance in instances if instance["job"] == job]

    def tables(self) -> dict[str, Any]:
        """Per `job/operator`: the desired table, the effective one, the executor of each task."""
        described: dict[str, Any] = json.loads(self._probe.tables())
        return described

    def running_tasks(self, job: str, stage: str) -> int:
        """How many tasks of a stage run in the current batch; 0 until all of them do."""
        return len(self.tables().get(f"{job}/{stage}", {}).get("tasks", {}))

    def batch(self, job: str) -> str:
        """The batch in which the job's tasks run, as `run:number`; empty before the first."""
        return str(self._probe.batch(job))

    def batches(self) -> dict[str, str]:
        """The running batch of each job; a job before its first batch is missing."""
        return {job: described["batch"] for job, described in self.batch_times().items()}

    def batch_times(self) -> dict[str, dict[str, Any]]:
        """The running batch of each job, when the batch before it ended, when Spark had planned it
        and when its tasks were up.
        """
        times: dict[str, dict[str, Any]] = json.loads(self._probe.batches())
        return times

    def end_batch(self, job: str, batch: str, *, hold: bool = False) -> None:
        """Ends a batch of a job early. With `hold` the next batch sends no record, so that the
        query can be stopped without a replay.
        """
        self._probe.endBatch(job, batch, hold)

    def hold_back(self, part: str, cut: str, for_s: float, pause_s: float | None) -> None:
        """Holds back those who write to another part over a cut, for so long: each writes a record
        per pause, or none if it is None; a pause of 0 lets them go.
        """
        pause_us = -1 if pause_s is None else round(1e6 * pause_s)
        self._probe.holdBack(part, cut, round(1000 * for_s), pause_us)

    def watch(self, edge: str, for_s: float) -> None:
        """Looks at the records of an edge inside a query, written `job/from>to`, for so long."""
        self._probe.watch(edge, round(1000 * for_s))

    def seen(self, edge: str) -> list[dict[str, Any]]:
        """The latest records of an edge that is watched, the oldest first."""
        records: list[dict[str, Any]] = json.loads(self._probe.seen(edge))
        return records

    def set_flush_time(self, ms: int) -> None:
        """How long writers of the shuffle gather records: for all jobs, from the next batch of each
        on.
        """
        self._probe.flushTime(ms)

    def flush_times(self) -> dict[str, int]:
        """The flush time that each executor has set, in ms; an executor without one is left
        out.
        """
        times: dict[str, int] = json.loads(self._probe.flushTimes())
        return {executor: ms for executor, ms in times.items() if ms >= 0}

    def threads(self, job: str) -> dict[str, int]:
        """The threads that run tasks of a job, per executor."""
        lives: dict[str, dict[str, int]] = json.loads(self._probe.threads(job))
        return {executor: sum(counts.values()) for executor, counts in lives.items()}

    def stacks(self, job: str) -> str:
        """Where the threads of a job are that run in the driver's JVM."""
        return str(self._probe.stacks(job))

    def halt_executor(self, executor: str, reason: str) -> None:
        """Ends an executor's JVM; the cluster manager starts another. Not the driver's."""
        self._probe.halt(executor, reason)

    def drain_reports(self) -> dict[str, Any]:
        """The executors' reports since the last call, and which executors were lost. Executors
        send what changed; the reports that are returned are whole.
        """
        with self._draining:
            drained, missing = self._reports.complete(json.loads(self._probe.drainReports()))
            if missing:
                self._probe.resendReports()
        return drained

    def sizes(self) -> dict[str, dict[str, int]]:
        """How many entries each table of the probe has, in the driver and in this JVM as an
        executor, and how many threads each pool of this JVM.
        """
        sizes: dict[str, dict[str, int]] = json.loads(self._probe.sizes())
        return sizes
