"""The Spark session: what it is started with, and that nothing of it is left."""

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from trilithon.engines.spark import probe
from trilithon.engines.spark.session import configuration, session
from trilithon.errors import SparkNotStarted


def test_a_caller_may_change_what_queries_do_not_rely_on(tmp_path: Path) -> None:
    found = configuration("local[2]", tmp_path, [Path("a.jar")], {"spark.driver.memory": "1g"})
    assert found["spark.driver.memory"] == "1g"
    assert found["spark.jars"] == f"a.jar,{probe.JAR}"
    assert found["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] == "5"
    with pytest.raises(SparkNotStarted, match=r"spark\.sql\.variable\.substitute"):
        configuration("local[2]", tmp_path, [], {"spark.sql.variable.substitute": "true"})


def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(SparkNotStarted, match=r"none\.jar is missing"),
        session("local[1]", tmp_path, [tmp_path / "none.jar"]),
    ):
        pass


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
