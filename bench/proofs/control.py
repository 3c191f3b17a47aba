"""Owns what a proof does with the probe: tables of ever later generations, forced boundaries, sums."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from trilithon.engines.spark.probe_control import ProbeControl


def first(count: int, tasks: int) -> list[float]:
    """Weights that use the first tasks, all alike."""
    return [1.0] * count + [0.0] * (tasks - count)


class ProofControl(ProbeControl):
    """The probe's control, which counts generations by itself."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self._generation = 0

    def use(self, job: str, operator: str, weights: Sequence[float], **more: Any) -> None:
        """Records go to the tasks by these weights."""
        self._push(job, operator, {"weights": list(weights), **more})

    def place(self, job: str, operator: str, executors: Mapping[str, int]) -> None:
        """So many instances on each executor."""
        self._push(job, operator, {"executors": dict(executors)})

    def places(self, job: str, operator: str) -> dict[int, str]:
        """On which executor each task of the running batch is."""
        found = self.tables().get(f"{job}/{operator}", {}).get("tasks", {})
        return {int(index): executor for index, executor in found.items()}

    def placed_batch(self, job: str, operator: str) -> str:
        """The batch in which all of an operator's tasks run now."""
        return str(self.tables().get(f"{job}/{operator}", {}).get("batch", ""))

    def parked_s(self, job: str) -> dict[str, float]:
        """How long senders were held back so far, per edge."""
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
