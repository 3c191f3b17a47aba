"""Operators that follow their use grow by a restart between two batches, while records flow."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import Flow, Scene, read_all
from tests.measured import Measured
from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Outcome, Reallocate, RestartJob, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.allocation import initial
from trilithon.model.job import Job
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
SOURCE = """
    options: {{subscribe: {0}-in, startingOffsets: earliest}}
    schema: {{n: BIGINT, k: INT}}
    partitions: 2
"""
LINE = """
name: {0}
trigger: {{realTime: 10 minutes}}
sources:
  - name: in
    {1}
operators:
  - {{name: spread, input: in, where: n >= 0, parallelism: {{initial: 2, max: 16}}}}
  - name: keyed
    input: {{from: spread, grouping: by_key, key: [k]}}
    select: [n, k]
    parallelism: {{initial: 1, max: 16}}
sinks:
  - {{name: out, input: keyed, key: k, options: {{topic: {0}-out}}}}
"""
FAN_OUT = """
name: {0}
trigger: {{realTime: 10 minutes}}
sources:
  - name: in
    {1}
operators:
  - {{name: split, input: in, where: n >= 0, parallelism: {{max: 2}}}}
  - {{name: left, input: split, select: [n, k], parallelism: {{max: 16}}}}
  - {{name: right, input: split, where: n % 2 = 0, parallelism: {{max: 2}}}}
sinks:
  - {{name: out, input: left, options: {{topic: {0}-out}}}}
  - {{name: other, input: right, options: {{topic: {0}-other}}}}
"""


def job_named(text: str, name: str) -> Job:
    return parse_job(text.format(name, SOURCE.format(name).strip()))


@pytest.fixture
def run(
    spark: SparkSession, broker: Kafka, tmp_path: Path
) -> Iterator[Callable[[Job, float], Any]]:
    engine = SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=30)

    @contextmanager
    def running(job: Job, rate_per_s: float) -> Iterator[Scene]:
        create_topics(broker, [job])
        outcome = engine.submit(job, initial(job))
        assert outcome.status is Status.DONE, outcome
        flow = Flow(broker, job.name, rate_per_s)
        try:
            yield Scene(engine, job, flow)
        finally:
            flow.end()
            engine.cancel(job.id)

    yield running
    assert not spark.streams.active


def rescaled(on: Scene, **counts: int) -> Outcome:
    wanted = on.engine.jobs()[on.job.id].allocation.rescaled(counts).next_generation()
    return on.engine.apply(Reallocate(wanted))


def caught_up(on: Scene) -> None:
    """Waits until records flow and few are under way: on a starved machine a backlog takes longer
    than a batch may take to end, and is replayed.
    """
    on.flowing()
    until(lambda: on.polled() and on.flow.sent - on.flow.arrived < on.flow.rate_per_s)


def tasks_run(on: Scene, part: str, *operators: str) -> list[int]:
    return [on.engine.control.running_tasks(part, name) for name in operators]


def used(on: Scene) -> int | None:
    return on.engine.capabilities().tasks_used


def test_a_job_grows_by_one_restart_under_load_and_loses_and_doubles_nothing(
    run: Any, measured: Measured
) -> None:
    job = job_named(LINE, "growing")
    with run(job, 100.0) as on:
        managed = on.engine.managed[job.id]
        assert tasks_run(on, job.id, "spread", "keyed") == [4, 4]
        assert used(on) == 2 + 4 + 4
        on.flowing()
        first = managed.running.incarnation
        # The tasks that there are: live.
        assert rescaled(on, spread=4).code == ""
        caught_up(on)
        assert managed.running.incarnation == first
        asked_s = time.time()
        grown = rescaled(on, spread=6, keyed=6)
        assert (grown.status, grown.code) == (Status.DONE, "RESTARTED"), grown
        assert "spread 4 → 12 tasks, keyed 4 → 12 tasks" in grown.message
        second = managed.running.incarnation
        assert second != first
        assert tasks_run(on, job.id, "spread", "keyed") == [12, 12]
        assert used(on) == 2 + 12 + 12
        on.flowing()
        written_s = [asked_s, *(one.written_s for one in on.flow.got if one.written_s > asked_s)]
        gap_s = max(later - earlier for earlier, later in pairwise(sorted(written_s)))
        measured.within("longest gap while it grows", gap_s, 1.0)
        live = rescaled(on, spread=8, keyed=8)
        assert (live.status, live.code) == (Status.DONE, "")
        assert managed.running.incarnation == second
        assert used(on) == 2 + 12 + 12
        assembler = Assembler()
        assembler.expect(job, on.engine.jobs()[job.id].allocation)

        def working(operator: str) -> int:
            """How many of the eight instances have taken records."""
            for report in on.engine.reports():
                assembler.take(report)
            view = assembler.snapshot(on.engine.clock()).job(job.id)
            return sum(bool(view.instance(operator, i)["taken"]) for i in range(8))

        until(lambda: working("spread") == 8 and working("keyed") == 8)
        sent = on.flow.stop_sending()
        on.flow.await_all()
        assert {one.number for one in on.flow.got} == set(range(sent))
        assert on.undisturbed()
        # Fewer are used: they are given back by a restart that happens anyway, and by no other.
        assert rescaled(on, spread=1, keyed=1).code == ""
        assert used(on) == 2 + 12 + 12
        assert on.engine.apply(RestartJob("anyway", job.id)).status is Status.DONE
        assert tasks_run(on, job.id, "spread", "keyed") == [4, 4]
        assert used(on) == 2 + 4 + 4


def test_only_the_part_that_needs_more_tasks_is_restarted(run: Any, broker: Kafka) -> None:
    job = job_named(FAN_OUT, "forked")
    with run(job, 100.0) as on:
        parts = {name: f"{job.id}~{name}" for name in ("split", "left", "right")}

        def incarnations() -> dict[str, int]:
            managed = on.engine.managed
            return {name: managed[part].running.incarnation for name, part in parts.items()}

        # The topic before `left` has eight partitions, that before `right` two.
        assert used(on) == (2 + 2) + (8 + 4) + (2 + 2)
        caught_up(on)
        before = incarnations()
        grown = rescaled(on, left=6)
        assert (grown.status, grown.code) == (Status.DONE, "RESTARTED"), grown
        assert used(on) == (2 + 2) + (8 + 12) + (2 + 2)
        assert tasks_run(on, parts["left"], "left") == [12]
        after = incarnations()
        assert {name for name in parts if after[name] != before[name]} == {"left"}
        on.flowing()
        assert rescaled(on, left=8).code == ""
        assert incarnations() == after
        on.flowing()
        sent = on.flow.stop_sending()
        on.flow.await_all()
        assert {one.number for one in on.flow.got} == set(range(sent))
        assert on.undisturbed()
        even = (sent + 1) // 2
        until(lambda: on.polled() and len(read_all(broker, "forked-other")) >= even)
        numbers = [row.value["n"] for row in read_all(broker, "forked-other")]
        assert sorted(numbers) == list(range(0, sent, 2))
