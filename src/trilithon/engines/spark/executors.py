"""Calls Spark's scheduler about the executors of the application, through the probe."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Executor:
    """A registered executor: the tasks that it can run at once, and how many it runs now.

    `excluded` is one that gets no more tasks. `worker_port` is the port of its worker's web page,
    where a standalone cluster has workers.
    """

    id: str
    slots: int
    running: int
    excluded: bool
    worker_port: int | None


class Executors:
    """The executors of a session's application; none in local mode."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - the probe is the JVM's
        self._probe: Any = jvm.io.trilithon.probe.Executors
        self.removable = bool(self._probe.removable())

    def list(self) -> dict[str, Executor]:
        return {
            name: Executor(
                name,
                int(data["slots"]),
                int(data["running"]),
                bool(data["excluded"]),
                urlsplit(data["logs"]).port,
            )
            for name, data in json.loads(self._probe.list()).items()
        }

    def exclude(self, executors: Sequence[str]) -> None:
        """No task is placed there from now on; those that run go on."""
        self._probe.exclude(json.dumps(list(executors)))

    def include(self, executors: Sequence[str]) -> None:
        """Takes an exclusion back."""
        self._probe.include(json.dumps(list(executors)))

    def kill(self, executors: Sequence[str], keep: int) -> None:
        """Ends executors. The cluster manager keeps so many others and does not replace these."""
        self._probe.kill(json.dumps(list(executors)), keep)
