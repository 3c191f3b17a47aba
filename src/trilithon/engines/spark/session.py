"""Owns the Spark session that jobs run in: its settings, and closing it so that no JVM is left.

One session per process: PySpark keeps its JVM and its context in class variables.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from trilithon.engines.spark import probe
from trilithon.engines.spark.jdk import MISSING, find_jdk
from trilithon.engines.spark.masters import (
    await_executors,
    executors_of,
    on_this_machine,
    settings_for,
)
from trilithon.errors import SparkNotStarted

# PySpark prints each exception that it raises, besides raising it.
for _logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.getLogger(_logger).setLevel(logging.CRITICAL)

# The catalog under which queries find the probe's functions.
CATALOG: Final = "trilithon"
_CLOSING_S: Final = 20.0

# What the compiled queries rely on. A caller's settings come first for everything else.
_FIXED: Final = {
    f"spark.sql.catalog.{CATALOG}": "io.trilithon.probe.ProbeCatalog",
    "spark.plugins": "io.trilithon.probe.ProbePlugin",
    # `${env:…}` in an expression would read the environment, even inside a string.
    "spark.sql.variable.substitute": "false",
    # An expression that cannot be evaluated says so, and its record becomes a dead letter; without
    # ANSI most of them would quietly give null.
    "spark.sql.ansi.enabled": "true",
    # A common part of two expressions would be taken out of the `try` that guards each of them.
    "spark.sql.subexpressionElimination.enabled": "false",
    # Reading only the fields that are used would not see that another one is broken.
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    # Times in JSON without a zone mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
}
_USUAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    # How long a record may wait for company in a shuffle. Spark's 50 ms would be most of the latency.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "5",
}


@contextmanager
def session(
    master: str,
    folder: Path,
    jars: Sequence[Path],
    *,
    settings: Mapping[str, str] | None = None,
    executors: int | None = None,
    log_level: str = "ERROR",
) -> Iterator[SparkSession]:
    """A session with the probe on a master such as `local[16]`; closed, with its JVM, at the end.
    On a master with executors it waits for as many as are wanted, or as the master names.

    `jars` are the Kafka connector's; everything that Spark writes by itself goes below `folder`.
    """
    spark = _open(master, folder, jars, settings or {})
    try:
        spark.sparkContext.setLogLevel(log_level)
        await_executors(spark, executors or executors_of(master))
        yield spark
    finally:
        close(spark)


def configuration(
    master: str, folder: Path, jars: Sequence[Path], settings: Mapping[str, str]
) -> dict[str, str]:
    """Every setting that a session is started with, the caller's over the usual ones."""
    if taken := sorted(_FIXED.keys() & settings.keys()):
        raise SparkNotStarted(
            f"{', '.join(taken)}: compiled jobs rely on this setting.", "Leave it out."
        )
    own = {
        "spark.jars": ",".join(str(jar) for jar in (*jars, probe.JAR)),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return {**_USUAL, **settings_for(master), **own, **settings, **_FIXED}


def _open(
    master: str, folder: Path, jars: Sequence[Path], settings: Mapping[str, str]
) -> SparkSession:
    for jar in (*jars, probe.JAR):
        if not jar.is_file():
            raise SparkNotStarted(
                f"{jar} is not there.", "`make probe` builds the probe's jar in a checkout."
            )
    if (home := find_jdk()) is None:
        raise SparkNotStarted(MISSING)
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - PySpark has no other way
        raise SparkNotStarted("A Spark session is open in this process already.", "Close it first.")
    folder.mkdir(parents=True, exist_ok=True)
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("trilithon")
    for name, value in configuration(master, folder, jars, settings).items():
        builder = builder.config(name, value)
    # Spark's launcher looks at JAVA_HOME only, and at the other for the address it announces.
    needed = {"JAVA_HOME": str(home)}
    if on_this_machine(master):
        needed["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in needed}
    os.environ.update(needed)
    try:
        with _errors_to(folder / "spark.log"):
            spark: SparkSession = builder.getOrCreate()
    except Exception as error:
        _end_jvm()
        raise SparkNotStarted(
            f"Spark did not start: {error}", f"{folder / 'spark.log'} tells more."
        ) from error
    finally:
        for name, old in before.items():
            os.environ.pop(name, None)
            if old is not None:
                os.environ[name] = old
    return spark


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """What the JVM says on its standard error goes to a file: it inherits ours as it starts."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def close(spark: SparkSession) -> None:
    """Stops the queries, the session and its JVM, and waits until that is gone."""
    try:
        # Each reader of a shuffle logs at ERROR that its writer has gone, which is meant here.
        spark.sparkContext.setLogLevel("OFF")
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    finally:
        _end_jvm()


def _end_jvm() -> None:
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark leaves its JVM behind otherwise
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is None:
        return
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is None:
        return
    if process.stdin is not None:
        # The JVM ends when its standard input closes.
        process.stdin.close()
    try:
        process.wait(timeout=_CLOSING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=_CLOSING_S)
