"""Derives settings from a Spark master: where the driver listens, how many executors to expect."""

import re
import time
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession

from trilithon import logs
from trilithon.errors import ClusterTooSmall, SparkNotStarted

_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_POLL_S: Final = 0.1
_log = logs.logger()
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def settings_for(master: str) -> dict[str, str]:
    """Spark settings for a master. On one machine the driver listens on loopback only; in a local
    cluster an executor takes a whole worker.
    """
    if not on_this_machine(master):
        return {}
    if (sizes := _LOCAL_CLUSTER.fullmatch(master)) is None:
        return _LOOPBACK
    _, cores, memory_mb = sizes.groups()
    return {**_LOOPBACK, "spark.executor.cores": cores, "spark.executor.memory": f"{memory_mb}m"}


def on_this_machine(master: str) -> bool:
    return master.startswith("local") or "://127.0.0.1:" in master or "://localhost:" in master


def executors_of(master: str) -> int:
    """The executors to wait for: those that the master names, at least 1; 0 in local mode."""
    sizes = _LOCAL_CLUSTER.fullmatch(master)
    return int(sizes.group(1)) if sizes else 0 if master.startswith("local") else 1


def await_executors(
    spark: SparkSession,
    count: int,
    timeout_s: float = 120.0,
    enough_s: float = 30.0,
    shortage: Callable[[str], str] = lambda _: "",
) -> None:
    """Waits for executors: a query only ever uses those that were there when it started. A cluster
    that has lost some is used as it is, after `enough_s`: its jobs start by priority. One that has
    no room for any is not waited for longer: `shortage` says so of an application, or nothing.
    """
    began = time.monotonic()
    while (registered := executors(spark)) < count:
        waited_s = time.monotonic() - began
        if registered and waited_s > enough_s:
            _log.warning("executors_missing", registered=registered, expected=count)
            return
        if waited_s > enough_s and (why := shortage(str(spark.sparkContext.applicationId))):
            raise ClusterTooSmall(
                f"The cluster started no executor within {enough_s:g} s. {why}",
                "End an application, start workers with more --memory and --cores, or divide them "
                "among more applications (`serve --per-tenant --applications`).",
            )
        if waited_s > timeout_s:
            raise SparkNotStarted(
                f"{registered} of {count} executors registered within {timeout_s:g} s.",
                "Check on the master's web page whether the cluster has room for them.",
            )
        time.sleep(_POLL_S if waited_s < enough_s else 10 * _POLL_S)


def executors(spark: SparkSession) -> int:
    """The executors that are registered now, without the driver."""
    scala: Any = spark._jsc.sc()  # noqa: SLF001 - only the JVM knows
    return int(scala.getExecutorMemoryStatus().size()) - 1


def max_tasks(spark: SparkSession) -> int:
    """How many tasks the application can run at once: what Spark calls its slots."""
    scala: Any = spark._jsc.sc()  # noqa: SLF001
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
