"""A cluster of executors with one job under load, for tests."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import Flow, job_named
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.model.allocation import initial
from trilithon.model.snapshot import Snapshot


class Cluster:
    """An engine with one job under load, and what is known of it."""

    def __init__(self, engine: SparkEngine, kafka: Kafka, name: str) -> None:
        # One of four partitions stays empty.
        self.engine, self.job = engine, job_named(name, 4)
        create_topics(kafka, [self.job])
        assert engine.submit(self.job, initial(self.job)).status is Status.DONE
        self.flow = Flow(kafka, name, 200.0, 3)
        self.assembler = Assembler()
        self.generation = 0

    def snapshot(self) -> Snapshot:
        accepted = self.engine.jobs()[self.job.id]
        if accepted.allocation.generation != self.generation:
            self.generation = accepted.allocation.generation
            self.assembler.expect(accepted.job, accepted.allocation)
        for report in self.engine.reports():
            self.assembler.take(report)
        return self.assembler.snapshot(time.time())

    def flowing(self) -> None:
        before = len(self.flow.got)
        self.until(lambda _: len(self.flow.got) > before + 100)

    def until(self, condition: Callable[[Snapshot], object]) -> None:
        """Waits, polling the engine as a host does."""
        until(lambda: condition(self.snapshot()))

    def finish(self) -> None:
        """Nothing was lost; duplicates are counted."""
        sent = self.flow.stop_sending()
        self.flow.await_all(90)
        assert {one.number for one in self.flow.got} == set(range(sent))


def machines_of(snapshot: Snapshot, operator: str) -> list[str | None]:
    """Where the instances of an operator run, by the snapshot."""
    rows = [row for key, row in snapshot.layout.instance_row.items() if key[1] == operator]
    machines = snapshot.instances.machine[rows]
    return [None if np.isnan(m) else snapshot.layout.machines[int(m)] for m in machines]


def executor_processes(spark: SparkSession) -> list[int]:
    """The processes of this application's executors."""
    name = spark.sparkContext.applicationId
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            runs = any(part.endswith(b"CoarseGrainedExecutorBackend") for part in line)
            if runs and name.encode() in line:
                processes.append(int(entry.name))
    return processes
