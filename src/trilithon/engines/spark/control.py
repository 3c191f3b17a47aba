"""Owns the driver's side of the probe as Python sees it: lives of jobs, routing tables, counters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession


class Control:
    """The probe inside the driver of a session. Its methods may be called while queries run."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the probe is the JVM's
        self._probe: Any = jvm.io.trilithon.probe.Control

    def start_job(self, job: str, stages: Sequence[str]) -> int:
        """A new life of a job, its stages named from source to sink; gives its incarnation."""
        return int(self._probe.startJob(job, json.dumps(list(stages))))

    def end_job(self, job: str) -> None:
        self._probe.endJob(job)

    def set_table(self, job: str, operator: str, table: Mapping[str, Any]) -> bool:
        """Pushes a routing table; false if one of this or a later generation is there already."""
        return bool(self._probe.setTable(job, operator, json.dumps(dict(table))))

    def use_tasks(self, job: str, operator: str, count: int, tasks: int, generation: int) -> bool:
        """The first `count` of an operator's `tasks` get records, all alike."""
        weights = [1] * count + [0] * (tasks - count)
        return self.set_table(job, operator, {"generation": generation, "weights": weights})

    def tasks_per_stage(self, job: str) -> tuple[int, ...]:
        """The shape of the running batch; empty before the first."""
        return tuple(json.loads(self._probe.tasksPerStage(job)))

    def totals(self, job: str) -> list[dict[str, Any]]:
        """The cumulative counters of the job's instances."""
        return [one for one in json.loads(self._probe.totals()) if one["job"] == job]

    def tables(self) -> dict[str, Any]:
        """Per operator, named `job/operator`: the wanted table, the effective one, where its tasks are."""
        described: dict[str, Any] = json.loads(self._probe.tables())
        return described

    def running_tasks(self, job: str, stage: str) -> int:
        """How many tasks of a stage are placed in the running batch; 0 until all of them are."""
        return len(self.tables().get(f"{job}/{stage}", {}).get("tasks", {}))

    def batch(self, job: str) -> str:
        """The batch in which the job's tasks run, as `run:number`; empty before the first."""
        return str(self._probe.batch(job))

    def end_batch(self, job: str, batch: str, *, hold: bool = False) -> None:
        """Ends a batch of a job early. With a hold the job's next one sends no record: it is to be stopped."""
        self._probe.endBatch(job, batch, hold)

    def drain_reports(self) -> dict[str, Any]:
        """The executors' reports since the last call, and which executors were lost."""
        drained: dict[str, Any] = json.loads(self._probe.drainReports())
        return drained
