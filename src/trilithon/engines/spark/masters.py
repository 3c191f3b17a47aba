"""Owns what a master means for an application: where its driver listens, and how many executors to wait for."""

import re
import time
from typing import Any, Final

from pyspark.sql import SparkSession

from trilithon.errors import SparkNotStarted

_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_POLL_S: Final = 0.1
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def settings_for(master: str) -> dict[str, str]:
    """What Spark needs to know for a master: on one machine nothing listens beyond it, and in a local
    cluster an executor is as large as its worker.
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
    """How many executors there will be, as far as the master says so; 0 where the driver is the only one."""
    sizes = _LOCAL_CLUSTER.fullmatch(master)
    return int(sizes.group(1)) if sizes else 0 if master.startswith("local") else 1


def await_executors(spark: SparkSession, count: int, timeout_s: float = 120.0) -> None:
    """Waits for them: a query that starts before takes those that are there, and keeps to them."""
    deadline = time.monotonic() + timeout_s
    while (found := executors(spark)) < count:
        if time.monotonic() > deadline:
            raise SparkNotStarted(
                f"{found} of {count} executors came within {timeout_s:g} s.",
                "Look at the master's page whether the cluster has room for them.",
            )
        time.sleep(_POLL_S)


def executors(spark: SparkSession) -> int:
    """Executors that are there now, besides the driver."""
    scala: Any = spark._jsc.sc()  # noqa: SLF001 - only the JVM knows
    return int(scala.getExecutorMemoryStatus().size()) - 1


def max_tasks(spark: SparkSession) -> int:
    """How many tasks the application can hold open at once: what Spark calls its slots."""
    scala: Any = spark._jsc.sc()  # noqa: SLF001
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
