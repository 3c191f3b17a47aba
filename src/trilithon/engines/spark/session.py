"""Opens the Spark session that jobs run in, and closes it together with its JVM.

One session per process: PySpark keeps its JVM and its context in class variables.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from trilithon.engines.spark import probe
from trilithon.engines.spark.class_archive import ClassArchive
from trilithon.engines.spark.flush_time import FLUSH_MS, FLUSH_TIME
from trilithon.engines.spark.jdk import MISSING, find_jdk
from trilithon.engines.spark.masters import (
    await_executors,
    executors_of,
    on_this_machine,
    settings_for,
)
from trilithon.errors import SparkNotStarted

# PySpark logs each exception that it raises.
for _logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.getLogger(_logger).setLevel(logging.CRITICAL)

# The catalog under which queries find the probe's functions.
CATALOG: Final = "trilithon"
_SHUTDOWN_TIMEOUT_S: Final = 20.0

# Settings that compiled queries rely on: a caller cannot override them.
_REQUIRED: Final = {
    f"spark.sql.catalog.{CATALOG}": "io.trilithon.probe.ProbeCatalog",
    "spark.plugins": "io.trilithon.probe.ProbePlugin",
    # `${env:…}` in an expression would read the environment, even inside a string.
    "spark.sql.variable.substitute": "false",
    # An expression that fails throws, and its record becomes a dead letter; without ANSI mode most
    # failures would silently give null.
    "spark.sql.ansi.enabled": "true",
    # It would move a common part of two expressions out of the `try` around each of them.
    "spark.sql.subexpressionElimination.enabled": "false",
    # A parser that reads only the fields in use would miss an invalid one.
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    # Real-time mode keeps state in RocksDB only.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Times in JSON without a zone mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
}
# Linux heeds Java's thread priorities only with this policy. The probe gives the threads of jobs'
# tasks priority 4, and 1 to one that is at a single record for long: as nice values, 5 and 19. The
# kernel's weights of these are 335 and 15; with 110, that of nice 10, an endless record on every
# core would take a quarter of what a neighbour had. Without the other mappings a JVM of root would
# raise its compiler threads above everything else on the machine.
_PRIORITIES: Final = " ".join(
    [
        "-XX:ThreadPriorityPolicy=1",
        "-XX:JavaPriority1_To_OSPriority=19",
        "-XX:JavaPriority4_To_OSPriority=5",
        *(f"-XX:JavaPriority{n}_To_OSPriority=0" for n in range(5, 11)),
    ]
)
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_JAVA_OPTIONS: Final = (_DRIVER_OPTIONS, "spark.executor.extraJavaOptions")
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    FLUSH_TIME: str(FLUSH_MS),
    # Every batch is an execution with a job, stages and tasks. Spark keeps a thousand of them with
    # their plans for its own pages, which are off, and the driver's heap would grow for hours.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "150",
    "spark.ui.retainedTasks": "5000",
    "spark.ui.retainedDeadExecutors": "10",
    "spark.sql.ui.retainedExecutions": "20",
}


@contextmanager
def session(
    master: str,
    folder: Path,
    jars: Sequence[Path],
    *,
    name: str = "trilithon",
    settings: Mapping[str, str] | None = None,
    executors: int | None = None,
    log_level: str = "ERROR",
    record_classes: bool = False,
    shortage: Callable[[str], str] = lambda _: "",
) -> Iterator[SparkSession]:
    """A session with the probe on a master such as `local[16]`; closed, with its JVM, at the end.
    It waits for `executors`, or for as many as the master names.

    `jars` are the Kafka connector's; Spark's own files go below `folder`. With `record_classes` the
    driver records which classes it loads, if there is no archive of them yet. `shortage` says why
    an application gets no executors.
    """
    spark = _start(master, folder, jars, name, settings or {}, record_classes=record_classes)
    try:
        spark.sparkContext.setLogLevel(log_level)
        await_executors(spark, executors or executors_of(master), shortage=shortage)
        yield spark
    finally:
        close(spark)


def configuration(
    master: str,
    folder: Path,
    jars: Sequence[Path],
    settings: Mapping[str, str],
    driver_options: str = "",
) -> dict[str, str]:
    """Every setting of a session: the caller's over the defaults. `driver_options` are added to
    the Java options of the driver.
    """
    if reserved := sorted(_REQUIRED.keys() & settings.keys()):
        raise SparkNotStarted(
            f"{', '.join(reserved)} cannot be set: compiled jobs rely on its value.",
            "Leave it out.",
        )
    own = {
        "spark.jars": ",".join(str(jar) for jar in (*jars, probe.JAR)),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    java = {name: f"{_PRIORITIES} {settings.get(name, '')}".rstrip() for name in _JAVA_OPTIONS}
    java[_DRIVER_OPTIONS] = f"{driver_options} {java[_DRIVER_OPTIONS]}".lstrip()
    return {**_DEFAULTS, **settings_for(master), **own, **settings, **java, **_REQUIRED}


def _start(
    master: str,
    folder: Path,
    jars: Sequence[Path],
    name: str,
    settings: Mapping[str, str],
    *,
    record_classes: bool,
) -> SparkSession:
    for jar in (*jars, probe.JAR):
        if not jar.is_file():
            raise SparkNotStarted(
                f"{jar} is missing.", "In a checkout, `make probe` builds the probe's jar."
            )
    if probe.is_outdated():
        raise SparkNotStarted(
            "The probe's jar was built of other sources than these.",
            "`make probe` builds it again.",
        )
    if (home := find_jdk()) is None:
        raise SparkNotStarted(MISSING)
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - PySpark has no API for it
        raise SparkNotStarted("This process has an open Spark session already.", "Close it first.")
    folder.mkdir(parents=True, exist_ok=True)
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName(name)
    archive = class_archive(home, jars).java_options(record=record_classes)
    for key, value in configuration(master, folder, jars, settings, archive).items():
        builder = builder.config(key, value)
    # Spark's launcher finds Java by JAVA_HOME only; SPARK_LOCAL_IP is the address it announces.
    needed = {"JAVA_HOME": str(home)}
    if on_this_machine(master):
        needed["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {variable: os.environ.get(variable) for variable in needed}
    os.environ.update(needed)
    try:
        with _redirect_stderr(folder / "spark.log"):
            spark: SparkSession = builder.getOrCreate()
    except Exception as error:
        _end_jvm()
        raise SparkNotStarted(
            f"Spark did not start: {error}", f"See {folder / 'spark.log'}."
        ) from error
    finally:
        for variable, old in before.items():
            os.environ.pop(variable, None)
            if old is not None:
                os.environ[variable] = old
    return spark


def class_archive(jdk: Path, jars: Sequence[Path]) -> ClassArchive:
    """The archive of the classes that a session with these jars loads."""
    return ClassArchive(jdk, (*jars, probe.JAR))


def driver_process() -> int | None:
    """The process of the session's JVM."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark has no API for it
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return None if process is None else process.pid


def on_driver_end(act: Callable[[str], None]) -> None:
    """Calls `act`, with the reason, in a thread of its own, if the session's JVM ends before it is
    closed: every call of the session would fail from then on.
    """
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark has no API for it
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)

    def follow(process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        if SparkContext._gateway is gateway:  # noqa: SLF001
            act(f"The JVM of Spark's driver ended (exit code {code}).")

    if process is not None:
        threading.Thread(target=follow, args=(process,), name="driver-watch", daemon=True).start()


@contextmanager
def _redirect_stderr(log: Path) -> Iterator[None]:
    """Sends standard error to a file while the JVM starts, which inherits it."""
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
    """Stops the queries, the session and its JVM, and waits until the JVM has ended."""
    try:
        # Each shuffle reader would log at ERROR that its writer is gone, which is intended here.
        spark.sparkContext.setLogLevel("OFF")
        for query in spark.streams.active:
            query.stop()
        spark.stop()
    finally:
        _end_jvm()


def kill_jvm() -> None:
    """Kills the session's JVM at once, whatever its threads do."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - PySpark has no API for it
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()


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
        process.wait(timeout=_SHUTDOWN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=_SHUTDOWN_TIMEOUT_S)
