"""The Spark session: what it is started with, and that nothing of it is left."""

import subprocess
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark import InheritableThread, SparkContext
from pyspark.sql.functions import expr
from structlog.testing import capture_logs

from tests.engines.spark.conftest import until
from trilithon.engines.spark import masters, probe
from trilithon.engines.spark.expressions import try_evaluate
from trilithon.engines.spark.probe_control import ProbeControl
from trilithon.engines.spark.session import configuration, on_driver_end, session
from trilithon.errors import SparkNotStarted


def test_a_caller_may_change_what_queries_do_not_rely_on(tmp_path: Path) -> None:
    found = configuration("local[2]", tmp_path, [Path("a.jar")], {"spark.driver.memory": "1g"})
    assert found["spark.driver.memory"] == "1g"
    assert found["spark.jars"] == f"a.jar,{probe.JAR}"
    assert found["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] == "5"
    with pytest.raises(SparkNotStarted, match=r"spark\.sql\.variable\.substitute"):
        configuration("local[2]", tmp_path, [], {"spark.sql.variable.substitute": "true"})


def test_a_callers_java_options_are_added_to_those_of_the_priorities(tmp_path: Path) -> None:
    given = {"spark.executor.extraJavaOptions": "-Xss2m"}
    options = configuration("local[2]", tmp_path, [], given)
    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        assert "-XX:ThreadPriorityPolicy=1" in options[name]
        # A record that never ends leaves 96 % of a core to a thread of another job.
        assert "-XX:JavaPriority1_To_OSPriority=19" in options[name]
        assert "-XX:JavaPriority4_To_OSPriority=5" in options[name]
    assert options["spark.executor.extraJavaOptions"].endswith(" -Xss2m")


def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(SparkNotStarted, match=r"none\.jar is missing"),
        session("local[1]", tmp_path, [tmp_path / "none.jar"]),
    ):
        pass


def test_a_cluster_that_lost_executors_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host waited for all of them and gave up: it did not start as long as one was missing."""
    spark = MagicMock()
    monkeypatch.setattr(masters, "executors", lambda _: 1)
    with capture_logs() as events:
        masters.await_executors(spark, 2, timeout_s=5, enough_s=0)
    assert [(event["registered"], event["expected"]) for event in events] == [(1, 2)]
    monkeypatch.setattr(masters, "executors", lambda _: 0)
    with pytest.raises(SparkNotStarted, match="0 of 2 executors registered"):
        masters.await_executors(spark, 2, timeout_s=0, enough_s=0)


@pytest.mark.parametrize("closed", [False, True])
def test_a_jvm_that_ends_before_its_session_is_closed_is_reported(
    closed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as jvm:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
        reasons: list[str] = []
        on_driver_end(reasons.append)
        if closed:
            monkeypatch.setattr(SparkContext, "_gateway", None)
        jvm.kill()
        jvm.wait()
        until(lambda: "driver-watch" not in {thread.name for thread in threading.enumerate()})
    expected = [] if closed else ["The JVM of Spark's driver ended (exit code -9)."]
    assert reasons == expected


@pytest.mark.spark
def test_a_session_ends_with_its_jvm_and_reads_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "leaked")
    with session("local[2]", tmp_path / "spark", [], log_level="OFF") as spark:
        gateway: Any = SparkContext._gateway
        process = gateway.proc
        assert process.poll() is None
        text = "${env:SECRET} ${spark.master}"
        assert spark.sql(f"SELECT '{text}' AS t").collect()[0].t == text
        with (
            pytest.raises(SparkNotStarted, match=r"has an open Spark session already"),
            session("local[2]", tmp_path / "other", []),
        ):
            pass
    assert process.poll() is not None
    assert SparkContext._gateway is None


@pytest.mark.spark
def test_threads_of_jobs_run_below_those_of_the_host_and_end_when_they_are_interrupted(
    tmp_path: Path,
) -> None:
    with session("local[2]", tmp_path / "spark", [], log_level="OFF") as spark:
        context = spark.sparkContext
        gateway: Any = SparkContext._gateway

        def endless() -> None:
            for name, value in {"trilithon.job": "ads/rogue", "trilithon.incarnation": "1"}.items():
                context.setLocalProperty(name, value)
            context.setJobGroup("rogue", "rogue", interruptOnCancel=True)
            with suppress(Exception):
                # As in a job: a `try` that would catch an exception.
                spark.range(1).select(try_evaluate(spark, expr("trilithon.work(1e9D)"))).collect()

        running = InheritableThread(target=endless, daemon=True)
        running.start()
        control = ProbeControl(spark)
        until(lambda: control.threads("ads/rogue") == {"driver": 1})
        nice = niceness(gateway.proc.pid)
        assert nice["Executor task l"] == {5}
        # The probe, Spark's scheduler, the compiler and the collector.
        for name in ("trilithon-probe", "dag-scheduler-e", "C2 CompilerThre", "VM Thread"):
            assert nice[name] == {0}, name
        context.cancelJobGroup("rogue")
        until(lambda: control.threads("ads/rogue") == {})
        running.join(timeout=120)
        assert not running.is_alive()


def niceness(pid: int) -> dict[str, set[int]]:
    """The nice values of the threads of a process, by the threads' names."""
    nice: dict[str, set[int]] = defaultdict(set)
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            text = path.read_text()
            name = text[text.index("(") + 1 : text.rindex(")")]
            nice[name].add(int(text[text.rindex(")") + 2 :].split()[16]))
    return nice
