"""How long records are on their way between two tasks, by the probe's counters."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hops:
    """Records that some instances took, and how long those were on their way, in all."""

    records: int
    time_us: float

    @classmethod
    def into(cls, totals: Iterable[Mapping[str, Any]], operators: Collection[str]) -> "Hops":
        """So far, into the instances of these operators or readers."""
        edges = [
            edge["channel"]
            for instance in totals
            if instance["operator"] in operators
            for edge in instance["in"].values()
        ]
        return cls(sum(edge["count"] for edge in edges), sum(edge["sum_us"] for edge in edges))

    def mean_ms_since(self, before: "Hops") -> float | None:
        """The mean of those that were taken since then; None without any."""
        records = self.records - before.records
        return round((self.time_us - before.time_us) / records / 1000, 2) if records else None
