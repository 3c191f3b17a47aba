"""Tells how many instances promises would need: one sequence, a row per promise, nothing changed.

Each row is what ScaleReactively would choose for the measured load if the promise were the job's
only constraint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trilithon.model.intent import Constraint, EdgeName
from trilithon.model.snapshot import plain
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.scaling import SequencePlan, Technique, scale_reactively
from trilithon.policies.latency.sequence import (
    ConstrainedSequence,
    GlobalSummary,
    measure_sequence,
)
from trilithon.policies.scene import JobStatus

OUTCOMES = {
    Technique.REBALANCE: "kept",
    Technique.INFEASIBLE: "missed even with the maxima",
    Technique.OUT_OF_REACH: "out of reach of any parallelism",
    Technique.RESOLVE_BOTTLENECKS: "bottleneck: resolve it, then measure again",
    Technique.WORK_OFF_QUEUES: "a queue was worked off: measure again",
}


@dataclass(frozen=True, eq=False)
class PromiseTable:
    """A measured sequence, and a plan for each promise on it."""

    sequence: ConstrainedSequence
    plans: tuple[SequencePlan, ...]

    def to_json(self) -> dict[str, Any]:
        sequence = self.sequence
        return {
            "sequence": [str(part) for part in sequence.constraint.sequence],
            "mean_ms": 1000 * sequence.measured_s,
            "without_waiting_ms": 1000 * (sequence.task_s + sequence.transport_s),
            "operators": [
                {
                    "operator": o.name,
                    "instances": o.instances,
                    "utilisation": o.utilisation,
                    "service_ms": 1000 * o.service_s,
                    "waiting_ms": 1000 * o.waiting_s,
                    "e": o.coefficient,
                }
                for o in sequence.operators
            ],
            "promises": [_row(plan) for plan in self.plans],
        }


def _row(plan: SequencePlan) -> dict[str, Any]:
    sequence = plan.sequence
    reachable = plan.technique is not Technique.OUT_OF_REACH
    waiting = plan.predicted_s(plan.wanted) if reachable else {}
    busiest = max((o.work / plan.wanted[o.name] for o in sequence.operators), default=None)
    predicted_s = sequence.task_s + sequence.transport_s + sum(waiting.values())
    return {
        "promise_ms": sequence.constraint.mean_latency_ms,
        "outcome": OUTCOMES[plan.technique],
        "instances": dict(plan.wanted) if reachable else None,
        "total": sum(plan.wanted.values()) if reachable else None,
        "busiest_utilisation": busiest if waiting else None,
        "waiting_limit_ms": 1000 * plan.waiting_limit_s if plan.waiting_limit_s > 0 else None,
        "predicted_waiting_ms": plain(1000 * sum(waiting.values())) if waiting else None,
        "predicted_mean_ms": plain(1000 * predicted_s) if waiting else None,
    }


def promise_table(
    summary: GlobalSummary,
    status: JobStatus,
    sequence: Sequence[str | EdgeName],
    promises_ms: Iterable[float],
    parameters: LatencyParameters | None = None,
    *,
    adaptive: bool = False,
) -> PromiseTable | None:
    """The table of promises in ascending order; None if a part of the sequence is not measured.
    `adaptive`: batching gives way to waiting, as it does under the policy on such an engine.
    """
    ascending = sorted(set(promises_ms))
    constraint = Constraint(tuple(sequence), ascending[0], over_s=summary.window.span_s)
    measured = measure_sequence(summary, status, constraint)
    if measured is None:
        return None
    plans = []
    for promise_ms in ascending:
        promised = replace(
            measured, constraint=replace(measured.constraint, mean_latency_ms=promise_ms)
        )
        now = status.allocation.parallelism
        plan = scale_reactively(
            [promised], (), now, parameters or LatencyParameters(), adaptive=adaptive
        )
        plans.append(plan.sequences[0])
    return PromiseTable(measured, tuple(plans))
