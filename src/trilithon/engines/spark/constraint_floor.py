"""Estimates the mean latency of a sequence below which no parallelism gets it, part by part.

    work        what operators declare
    shuffles    transport and flush time of each edge inside a query
    cuts        the way through Kafka of each edge between two queries, besides its shuffle
    pauses      what records wait in an internal topic between two batches of the query that reads
                it (`stall.py`)

Waiting in queues is not in it: instances change that. Neither is waiting in the topic of a source:
the edge of a source begins with its reader, which sends nothing between two batches.
"""

from dataclasses import dataclass
from typing import Final

from trilithon.engines.spark.cuts import PlanGraph, cut_into_parts
from trilithon.engines.spark.flush_time import declared_service_ms, flush_time_ms
from trilithon.engines.spark.stall import mean_pause_ms
from trilithon.model.allocation import initial
from trilithon.model.intent import Constraint
from trilithon.model.job import Job

# A hop over the shuffle takes so long besides gathering. Where many records come, one is gathered
# for half of the flush time; where few come, for nearly all of it. With 1,000 records/s over four
# pairs of tasks `python -m bench.proof_flush_time --parts flush` prints 0.8–1.8 ms for a flush time
# of 1 ms, 3.2–5.5 for 5 and 34–42 for 50.
HOP_MS: Final = 0.3
FLUSH_SHARE: Final = 0.5
# From the writer of an internal topic to its reader. The medians that `python -m bench.diamond`
# printed (docs/concepts/graphs.md) are 16.6 ms for four shuffles and 17.1 for three and two cuts: a
# cut takes half of a shuffle, of 4.4 ms with a flush time of 5, and of the difference.
CUT_MS: Final = 2.5


@dataclass(frozen=True, slots=True)
class ConstraintFloor:
    """The parts of a sequence's least mean latency, in ms."""

    constraint: Constraint
    work_ms: float
    shuffles: int
    flush_ms: float
    cuts: int
    pauses_ms: float

    @property
    def shuffles_ms(self) -> float:
        return self.shuffles * (HOP_MS + FLUSH_SHARE * self.flush_ms)

    @property
    def cuts_ms(self) -> float:
        return self.cuts * CUT_MS

    @property
    def total_ms(self) -> float:
        return self.work_ms + self.shuffles_ms + self.cuts_ms + self.pauses_ms

    @property
    def unreachable(self) -> bool:
        return self.total_ms > self.constraint.mean_latency_ms

    def to_json(self) -> dict[str, float]:
        parts = {
            "promise_ms": self.constraint.mean_latency_ms,
            "work_ms": self.work_ms,
            "shuffles_ms": self.shuffles_ms,
            "cuts_ms": self.cuts_ms,
            "pauses_ms": self.pauses_ms,
            "least_ms": self.total_ms,
        }
        return {name: round(ms, 2) for name, ms in parts.items()}

    def __str__(self) -> str:
        path = ", ".join(str(part) for part in self.constraint.sequence)
        parts = [f"declared work {self.work_ms:.1f} ms"] if self.work_ms else []
        if self.shuffles:
            flush = f"flush time {self.flush_ms:g} ms"
            parts.append(f"{self.shuffles} × shuffle {self.shuffles_ms:.1f} ms ({flush})")
        if self.cuts:
            parts.append(f"{self.cuts} × internal topic {self.cuts_ms:.1f} ms")
        if self.pauses_ms:
            parts.append(f"pauses between batches {self.pauses_ms:.1f} ms")
        return (
            f"{self.constraint.mean_latency_ms:g} ms cannot be kept on {path}: "
            f"{', '.join(parts)}, in all {self.total_ms:.1f} ms. {self._advice()}"
        )

    def _advice(self) -> str:
        """What to do besides promising more, by the largest part."""
        advice = {
            "Promise more.": max(self.work_ms, self.shuffles_ms),
            "Promise more, or bound a path without edges over internal topics.": self.cuts_ms,
            "Promise more, or use longer batches.": self.pauses_ms,
        }
        return max(advice, key=lambda sentence: advice[sentence])


def constraint_floors(job: Job) -> tuple[ConstraintFloor, ...]:
    """The floor of each constraint of a job, in their order, on a cluster with this job alone."""
    flush_ms, graph = flush_time_ms([(job, initial(job))]), cut_into_parts(job)
    return tuple(_floor(job, graph, constraint, flush_ms) for constraint in job.intent.constraints)


def _floor(job: Job, graph: PlanGraph, constraint: Constraint, flush_ms: float) -> ConstraintFloor:
    sinks = {sink.name for sink in job.sinks}
    carried = {cut.edge.name for cut in graph.cuts}
    edges = set(constraint.edges)
    reading = [
        part
        for part in graph.parts
        if any(cut.internal and cut.edge.name in edges for cut in part.reads)
    ]
    return ConstraintFloor(
        constraint,
        declared_service_ms(job, constraint),
        # The last operator of a query writes to the sink itself.
        shuffles=sum(edge.target not in sinks for edge in edges),
        flush_ms=flush_ms,
        cuts=len(edges & carried),
        pauses_ms=sum(mean_pause_ms(part.tasks, job.batch_s) for part in reading),
    )
