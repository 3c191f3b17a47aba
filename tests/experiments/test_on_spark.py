"""The demo in small, on Spark: slots move to where they gain most."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import broker, spark, until  # noqa: F401 - fixtures
from tests.engines.spark.flow import Flow
from trilithon.contract.watch import Watcher
from trilithon.control.rules import Rules
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.experiments.tenants import UtilitySample, rules
from trilithon.model.job import Job
from trilithon.model.mode import Mode
from trilithon.service.daemon import daemon
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SLOTS = 5
# Without control; with it, at most. Both are judged by their last seconds.
OFF_S, AUTO_S, LAST_S = 25.0, 150.0, 8.0
MOST, GAIN = 45.0, 5.0
# As in the demo, with shorter windows: an instance of `work` is good for about 90 records/s.
QUICK = {
    "round_s": 1.0,
    "window_s": 4.0,
    "part_s": 1.0,
    "settle_s": 4.0,
    "settle_most_s": 8.0,
    "recover_s": 3.0,
    "warm_up_s": 3.0,
    # Other tests run on the same machine, and producers stall with them.
    "foreign_change": 100.0,
    "load_change": 0.5,
}


def job_named(name: str, priority: float, instances: int) -> Job:
    return parse_job(f"""
tenant: {name}
name: {name}
sources:
  - name: in
    options: {{subscribe: {name}-in, startingOffsets: latest}}
    schema: {{n: BIGINT, k: INT}}
    partitions: 2
operators:
  - name: work
    input: in
    select: [n, k, wait(10) AS waited]
    parallelism: {{initial: {instances}, max: 4}}
sinks:
  - {{name: out, input: work, options: {{topic: {name}-out}}}}
intent:
  priority: {priority}
  slo: [{{metric: latency, statistic: p95, at_most: 300 ms}}]
""")


@pytest.fixture
def host(spark: SparkSession, broker: Kafka, tmp_path: Path) -> Iterator[Host]:  # noqa: F811
    engine = SparkEngine(
        spark, broker, tmp_path / "spark", tasks=lambda: max_tasks(spark), slots=SLOTS
    )
    served = Host(engine, tmp_path / "host.sock")
    serving = threading.Thread(target=served.serve, daemon=True)
    serving.start()
    yield served
    served.close()
    serving.join(60)


def worth(
    host: Host, kafka: Kafka, jobs: list[Job], mode: Mode, folder: Path, *, wanted: float
) -> float:
    """What both jobs are worth in the last seconds of a run in which one of them gets too much. A
    controlled run ends when that is as much as is wanted.
    """
    base = rules("henge", QUICK, mode)
    limits = replace(base.limits, round_s=1.0, cool_down_s=1.0, fresh_s=3.0)
    quick = Rules(limits=limits, mode=mode, policy="henge", parameters=QUICK)
    engine, other = RemoteEngine(host.path, 120), RemoteEngine(host.path, 120)
    longest_s = OFF_S if mode is Mode.OFF else AUTO_S
    reached = 0.0
    with daemon(engine, quick, folder) as running:
        for job in jobs:
            running.commands.apply(job)
        running.wake()
        until(lambda: set(other.jobs()) == {job.id for job in jobs})
        watcher, samples = Watcher(other), list[UtilitySample]()
        flows = [Flow(kafka, jobs[0].name, 150.0), Flow(kafka, jobs[1].name, 20.0)]
        try:
            began = time.monotonic()
            while (passed := time.monotonic() - began) < longest_s:
                time.sleep(1)
                samples.append(UtilitySample.of(passed, watcher.look(time.time()), MOST))
                last = [one.utility for one in samples if one.at_s > passed - LAST_S]
                reached = mean(last)
                if mode is Mode.AUTO and passed > OFF_S and reached >= wanted:
                    break
        finally:
            for flow in flows:
                flow.end()
    for job in jobs:
        other.cancel(job.id)
    engine.close()
    other.close()
    return reached


def test_all_jobs_are_worth_more_with_henge_than_without(
    host: Host,
    broker: Kafka,  # noqa: F811
    tmp_path: Path,
) -> None:
    """All slots are in use: the job that needs more gets them from the one that has too many."""
    jobs = [job_named("hungry", 35, 1), job_named("sated", 10, 4)]
    create_topics(broker, jobs)
    without = worth(host, broker, jobs, Mode.OFF, tmp_path / "off", wanted=MOST)
    assert without < MOST - GAIN
    wanted = without + GAIN
    assert worth(host, broker, jobs, Mode.AUTO, tmp_path / "on", wanted=wanted) >= wanted
