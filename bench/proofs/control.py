"""A proof's access to the probe: routing tables, placements, sums of counters."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from trilithon.engines.spark.probe_control import ProbeControl


def first(count: int, tasks: int) -> list[float]:
    """Equal weights for the first tasks, 0 for the others."""
    return [1.0] * count + [0.0] * (tasks - count)


class ProofControl(ProbeControl):
    """The probe's control with a generation counter of its own."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._generation = 0

    def use(self, job: str, operator: str, weights: Sequence[float], **more: Any) -> None:
        """Routes records to the tasks by these weights."""
        self._push(job, operator, {"weights": list(weights), **more})

    def place(self, job: str, operator: str, executors: Mapping[str, int]) -> None:
        """Places this many instances on each executor."""
        self._push(job, operator, {"executors": dict(executors)})

    def places(self, job: str, operator: str) -> dict[int, str]:
        """The executor of each task of the running batch."""
        tasks = self.tables().get(f"{job}/{operator}", {}).get("tasks", {})
        return {int(index): executor for index, executor in tasks.items()}

    def placed_batch(self, job: str, operator: str) -> str:
        """The batch in which all of an operator's tasks run now."""
        return str(self.tables().get(f"{job}/{operator}", {}).get("batch", ""))

    def parked_s(self, job: str) -> dict[str, float]:
        """How long senders have been parked so far, per edge."""
        sums: dict[str, float] = {}
        for one in self.totals(job):
            for target, edge in one["out"].items():
                name = f"{one['operator']}>{target}"
                sums[name] = sums.get(name, 0.0) + edge["parked_ns"] / 1e9
        return sums

    def forced(self, job: str) -> int:
        """Records that passed a gate without credit."""
        return sum(edge["forced"] for one in self.totals(job) for edge in one["out"].values())

    def taken(self, job: str, operator: str) -> int:
        return sum(one["taken"] for one in self.totals(job) if one["operator"] == operator)

    def _push(self, job: str, operator: str, table: Mapping[str, Any]) -> None:
        self._generation += 1
        assert self.set_table(job, operator, {"generation": self._generation, **table})
