"""The whole way on real Spark: from a record to a decision and back, and
what a dead controller changes.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.proofs.disturbances import children, jvm_of
from tests.engines.spark.conftest import broker, spark, until  # noqa: F401 - fixtures
from tests.engines.spark.diamond import DiamondFlow, diamond
from tests.engines.spark.flow import Flow
from tests.measured import Measured
from trilithon.contract.watch import Watcher
from trilithon.control.rules import Rules
from trilithon.engines.host import Host
from trilithon.engines.remote import RemoteEngine
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.model.job import Job, Parallelism
from trilithon.model.mode import Mode
from trilithon.service.daemon import Daemon, daemon
from trilithon.spec.dump import dump_job
from trilithon.spec.job_file import parse_job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

# Rounds of seconds, so that a test sees several of them.
RULES = {
    "policy": "threshold",
    "limits": {"round_s": 2.0, "cool_down_s": 4.0, "fresh_s": 4.0, "good_after_s": 2.0},
    "parameters": {"window_s": 5.0},
}


# How soon records flow again after the host, and with it Spark's driver, was killed.
GOES_ON_S = 60.0
# What was under way when a host died has arrived by then, and no new host is that soon.
UNDER_WAY_S = 2.0
Looked = tuple[Daemon, RemoteEngine]


def job_named(name: str) -> Job:
    """An instance of `slow` is good for about 90 records/s."""
    return parse_job(f"""
name: {name}
sources:
  - name: in
    options: {{subscribe: {name}-in, startingOffsets: earliest}}
    schema: {{n: BIGINT, k: INT}}
    partitions: 2
operators:
  - name: slow
    input: in
    select: [n, k, wait(10) AS waited]
    parallelism: {{initial: 1, max: 6}}
sinks:
  - {{name: out, input: slow, options: {{topic: {name}-out}}}}
intent:
  slo:
    - {{metric: latency, statistic: p95, at_most: 500 ms}}
""")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRILITHON_STATE", str(tmp_path))
    return tmp_path


@pytest.fixture
def host(spark: SparkSession, broker: Kafka, state: Path) -> Iterator[Host]:  # noqa: F811
    engine = SparkEngine(spark, broker, state / "spark", tasks=lambda: max_tasks(spark), slots=20)
    host = Host(engine, state / "host.sock")
    serving = threading.Thread(target=host.serve, daemon=True)
    serving.start()
    yield host
    for name in list(engine.jobs()):
        engine.cancel(name)
    host.close()
    serving.join(60)


@contextmanager
def looked_after(host: Host, kafka: Kafka, state: Path, job: Job) -> Iterator[Looked]:
    """A job that runs under a daemon which may not act yet, and another who can ask the host."""
    create_topics(kafka, [job])
    engine, other = RemoteEngine(host.path, 120), RemoteEngine(host.path, 120)
    with daemon(engine, Rules.of({**RULES, "mode": "off"}), state / "daemon") as running:
        running.commands.apply(job)
        running.wake()
        until(lambda: job.id in other.jobs())
        yield running, other
    engine.close()
    other.close()


def test_a_promise_is_missed_without_the_controller_and_kept_with_it(
    host: Host,
    broker: Kafka,  # noqa: F811
    state: Path,
) -> None:
    job = job_named("promised")
    with looked_after(host, broker, state, job) as (running, other):
        watcher = Watcher(other)

        def p95_ms() -> float | None:
            time.sleep(1)
            p95: float | None = next((j.get("p95_ms") for j in watcher.look(time.time())), None)
            return p95

        flow = Flow(broker, job.name, 150.0)
        try:
            # Off: it falls behind, and nobody does anything about it.
            until(lambda: (p95_ms() or 0) > 3000)
            assert running.journal.decisions(None, 10, 0.0) == ()
            assert other.jobs()[job.id].allocation.parallelism == {"slow": 1}
            running.commands.mode(job.id, Mode.AUTO)
            running.wake()
            until(lambda: other.jobs()[job.id].allocation.parallelism["slow"] >= 3)
            until(lambda: 0 < (p95_ms() or 0) < 500)
        finally:
            flow.end()
        decisions = running.journal.decisions(job.id, 10, 0.0)
        assert {row.reason for row in decisions} >= {"LATENCY_MISSED"}


def test_a_version_that_is_refused_disturbs_nobody_and_a_good_one_loses_nothing(
    host: Host,
    broker: Kafka,  # noqa: F811
    state: Path,
) -> None:
    job = job_named("versioned")
    (slow,) = job.operators
    huge = replace(job, operators=(replace(slow, parallelism=Parallelism(1, 1, 500)),))
    kept = replace(job, operators=(replace(slow, work=replace(slow.work, where="n >= 0")),))
    with looked_after(host, broker, state, job) as (running, other):

        def standing(job_: Job) -> tuple[int, str]:
            version = running.controller.state.jobs[job_.id].version
            return version.generation, str(version.status)

        flow = Flow(broker, job.name, 40.0)
        try:
            until(lambda: standing(job) == (1, "good"))
            assert host.engine.jobs()[job.id].job.operators == job.operators
            query = host.engine.managed[job.id].running  # type: ignore[attr-defined]
            assert running.commands.apply(huge).generation == 2
            running.wake()
            until(lambda: standing(job) == (1, "good"))
            assert host.engine.managed[job.id].running is query  # type: ignore[attr-defined]
            assert running.commands.apply(kept).plan.impact == "restart"
            running.wake()
            until(lambda: other.jobs()[job.id].job.operators[0].work.where == "n >= 0")
            until(lambda: standing(job) == (3, "good"))
            sent = flow.stop_sending()
            flow.await_all()
            assert {record.number for record in flow.got} == set(range(sent))
        finally:
            flow.end()


def serve(state: Path, *options: str) -> "subprocess.Popen[bytes]":
    """A daemon as a process of its own; it finds the host that runs, or starts one."""
    rules = state / "rules.yaml"
    rules.write_text(json.dumps(RULES))
    log = (state / "serve.log").open("ab")
    process = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "trilithon", "serve", "--rules", str(rules), *options],
        stdout=subprocess.DEVNULL,
        stderr=log,
    )
    log.close()
    address = state / "daemon" / "daemon.json"

    def answers() -> bool:
        assert process.poll() is None, (state / "serve.log").read_text()
        with suppress(OSError, ValueError):  # it is not there yet, or is being written
            return bool(json.loads(address.read_text())["pid"] == process.pid)
        return False

    until(answers)
    return process


def trilithon(*arguments: str) -> Any:
    done = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-m", "trilithon", *arguments, "-o", "json"],
        capture_output=True,
        check=True,
        timeout=240,
    )
    return json.loads(done.stdout)


def test_a_controller_that_is_killed_is_not_missed_by_the_jobs_and_another_takes_over(
    host: Host,
    broker: Kafka,  # noqa: F811
    state: Path,
) -> None:
    job = job_named("orphaned")
    create_topics(broker, [job])
    (state / "job.json").write_text(json.dumps(dump_job(job)))
    first = serve(state)
    second = None
    try:
        trilithon("job", "apply", str(state / "job.json"))
        until(lambda: job.id in host.engine.jobs())
        flow = Flow(broker, job.name, 60.0)
        try:
            until(lambda: len(flow.got) > 300)
            time.sleep(5)
            before = rate(flow, 8)
            os.kill(first.pid, signal.SIGKILL)
            first.wait(240)
            assert any(rate(flow, 8) > 0.5 * before for _ in range(3))
            second = serve(state)
            until(lambda: trilithon("cluster", "status")["round"] >= 2)
            assert [row["job"] for row in trilithon("job", "list")] == [job.id]
            sent = flow.stop_sending()
            flow.await_all()
            accepted = host.engine.jobs()[job.id]
            assert (accepted.health, accepted.reason) == ("running", "")
            assert len(flow.got) == sent
        finally:
            flow.end()
    finally:
        for process in (first, second):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(240)
    # The daemon's end is not the jobs' end.
    assert job.id in host.engine.jobs()


@pytest.mark.parametrize("killed", ["host", "jvm"])
def test_a_host_that_is_killed_comes_back_with_a_line_and_a_graph_and_nothing_is_lost(
    broker: Kafka,  # noqa: F811
    state: Path,
    measured: Measured,
    killed: str,
) -> None:
    """The next life of a job goes on from its checkpoints: what was not committed comes again.
    A host whose JVM alone was killed went on for ever, and every call of it failed.
    """
    line, graph = f"bereft-{killed}", f"bereft-graph-{killed}"
    jobs = [job_named(line), diamond(graph)]
    create_topics(broker, jobs)
    files = [state / f"{job.name}.json" for job in jobs]
    for file, job in zip(files, jobs, strict=True):
        file.write_text(json.dumps(dump_job(job)))
    daemon_ = serve(state, "--master", "local[40]", "--kafka", broker.servers, "--with-jobs")
    try:
        [host_] = children(daemon_.pid)
        trilithon("job", "apply", *map(str, files), "--wait")
        flows = [Flow(broker, line, 40.0), DiamondFlow(broker, graph, 40.0)]
        try:
            until(lambda: all(flow.arrived > 200 for flow in flows))
            os.kill(host_ if killed == "host" else jvm_of(host_), signal.SIGKILL)
            killed_s = time.time()
            until(lambda: children(daemon_.pid) not in ([], [host_]))
            time.sleep(UNDER_WAY_S)
            sent = [flow.sent_while_down() for flow in flows]
            for job, flow, before in zip(jobs, flows, sent, strict=True):
                until(lambda flow=flow, before=before: flow.goes_on_s(before))  # type: ignore[misc]
                took_s = (flow.goes_on_s(before) or 0.0) - killed_s
                measured.within(f"{job.name} goes on", took_s, GOES_ON_S)
            until(lambda: all(flow.arrived > n + 400 for flow, n in zip(flows, sent, strict=True)))
            for flow in flows:
                flow.stop_sending()
                flow.await_all()
        finally:
            for flow in flows:
                flow.end()
        for job, flow in zip(jobs, flows, strict=True):
            assert flow.arrivals_s().keys() == set(range(flow.sent))
            assert flow.removable_by_id()
            measured.note(f"{job.name} doubled", f"{flow.doubled} of {len(flow.got)}")
        log = (state / "serve.log").read_text()
        assert "the host has died and is started again" in log
    finally:
        daemon_.terminate()
        assert daemon_.wait(240) == 0
    assert not (state / "host.sock").exists()


def rate(flow: Flow, for_s: float) -> float:
    before, began = len(flow.got), time.monotonic()
    time.sleep(for_s)
    return (len(flow.got) - before) / (time.monotonic() - began)
