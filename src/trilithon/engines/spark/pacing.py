"""Decides when each job's batch ends, so that the stalls of different jobs never coincide.

Left alone, Spark ends a batch when its time is over: jobs that were started together stall
together, and compete for the CPU while they plan and start their tasks. The host ends batches
before that, one job's at a time, and spreads the ends over the time.

A batch is as long as the job's trigger says, or up to a quarter shorter; the first one, which may
have begun together with many others, up to three quarters. If it is another job's turn, it waits
for that. A batch in which a backlog was read is short: after a crash the open
batch is replayed, and a catch-up holds many more records than the same time of normal operation.

While a machine joins, no batch is ended: the next one would wait for the tasks that it gets on a
machine whose JVM is still cold.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

# The shortest batch, as a share of the job's setting. What is in between is free to be chosen.
SHORTEST: Final = 0.75
SHORTEST_FIRST: Final = 0.25
# From the start of a job's new batch to the end of another job's.
QUIET_S: Final = 1.0
# A batch in which a backlog is read.
BACKLOG_BATCH_S: Final = 15.0
# After this time an end that had no effect no longer keeps the other jobs waiting.
END_TIMEOUT_S: Final = 30.0
# Of a job with much shorter batches only the next ends count.
_REPEATS: Final = 20


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """The running batch of a job; `length_s` is the job's setting."""

    job: str
    batch: str
    length_s: float
    backlog: bool = False


@dataclass
class _Plan:
    """When a batch is to end, and for which length that was chosen."""

    batch: str
    began_s: float
    shortest: float
    length_s: float = 0.0
    due_s: float = 0.0
    ended_s: float | None = None


@dataclass
class BatchPacer:
    """Keeps a plan for each job's running batch. Times are of one steady clock."""

    _plans: dict[str, _Plan] = field(default_factory=dict)
    _quiet_until_s: float = 0.0

    def next_end(
        self, now_s: float, batches: Iterable[RunningBatch], *, hold: bool = False
    ) -> str | None:
        """The job whose batch is to be ended now, if there is one; it counts as told to end. While
        the ends are held, none is due.
        """
        running = {batch.job: batch for batch in batches}
        self._plans = {job: plan for job, plan in self._plans.items() if job in running}
        for batch in running.values():
            self._observe(now_s, batch)
        if (
            hold
            or now_s < self._quiet_until_s
            or any(_ending(p, now_s) for p in self._plans.values())
        ):
            return None
        due = [
            (plan.due_s, job)
            for job, plan in self._plans.items()
            if plan.ended_s is None and plan.due_s <= now_s
        ]
        if not due:
            return None
        _, job = min(due)
        self._plans[job].ended_s = now_s
        return job

    def planned(self) -> Mapping[str, float]:
        """When each job's batch is to end."""
        return {job: plan.due_s for job, plan in self._plans.items()}

    def _observe(self, now_s: float, batch: RunningBatch) -> None:
        plan = self._plans.get(batch.job)
        if plan is None or plan.batch != batch.batch:
            if plan is not None:
                # The job has just stalled, for whatever reason: the next job waits a little.
                self._quiet_until_s = now_s + QUIET_S
            plan = _Plan(batch.batch, now_s, SHORTEST_FIRST if plan is None else SHORTEST)
            self._plans[batch.job] = plan
        length_s = batch.length_s
        if batch.backlog or plan.length_s == BACKLOG_BATCH_S:
            length_s = min(length_s, BACKLOG_BATCH_S)
        if plan.length_s != length_s:
            plan.length_s = length_s
            first_s = max(now_s, plan.began_s + plan.shortest * length_s)
            last_s = max(first_s, plan.began_s + length_s)
            plan.due_s = farthest(first_s, last_s, self._ends_of_others(batch.job, last_s))

    def _ends_of_others(self, job: str, until_s: float) -> list[float]:
        """The planned ends of the other jobs, and those that follow them until then."""
        ends = []
        for other, plan in self._plans.items():
            if other == job:
                continue
            for repeat in range(_REPEATS):
                end_s = plan.due_s + repeat * plan.length_s
                ends.append(end_s)
                if end_s > until_s or plan.length_s <= 0:
                    break
        return ends


def _ending(plan: _Plan, now_s: float) -> bool:
    return plan.ended_s is not None and now_s - plan.ended_s < END_TIMEOUT_S


def farthest(first_s: float, last_s: float, others: Iterable[float]) -> float:
    """The time between two times that is farthest from all others; the latest of several."""
    points = sorted(others)
    middles = ((a + b) / 2 for a, b in pairwise(points))
    candidates = [first_s, last_s, *(m for m in middles if first_s <= m <= last_s)]
    return max(candidates, key=lambda t: (min((abs(t - p) for p in points), default=0.0), t))
