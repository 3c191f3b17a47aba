"""Compares predicted with measured waiting, per operator and adjustment.

An adjustment predicts the waiting for each operator that it changes. As soon as the operator has
run with that number of instances for a whole window, the waiting is measured. The load may have
changed meanwhile, and that is no fault of the model: its error is taken against what the same
coefficient e gives for the load that came,

    error = (measured − e · Kingman's waiting now) / allowed waiting Ŵ

as a share of what the promise allows, since an error of a microsecond matters to nobody. While the
mean error of an operator's latest adjustments is above a bound, scale-downs of its sequences are
held. Scale-ups are not: a coefficient that is too large helps to end a violation soon (V-A). An
error is forgotten after a time, so that the model is tried again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from trilithon.policies.latency.scaling import SequencePlan
from trilithon.policies.latency.sequence import ConstrainedOperator, ConstrainedSequence

# Chosen: how many errors of an operator count.
ERRORS_KEPT: Final = 3


@dataclass(frozen=True, slots=True)
class WaitingPrediction:
    """What an adjustment predicts for one operator of a sequence. `instances` may yet be clipped;
    then the prediction is dropped.
    """

    decision: str
    at_s: float
    operator: str
    edge: str
    instances: int
    predicted_s: float
    coefficient: float
    limit_s: float

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{f.name: data[f.name] for f in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True)
class CheckedPrediction:
    """A prediction with what was measured; `for_load_s` is the prediction for the load then."""

    decision: str
    at_s: float
    operator: str
    instances: int
    predicted_s: float
    for_load_s: float
    measured_s: float
    limit_s: float

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{f.name: data[f.name] for f in fields(cls)})

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def error(self) -> float:
        return (self.measured_s - self.for_load_s) / self.limit_s

    def __str__(self) -> str:
        instances = "1 instance" if self.instances == 1 else f"{self.instances} instances"
        return (
            f"{self.operator} with {instances}: {1000 * self.predicted_s:.2f} ms of waiting "
            f"predicted, {1000 * self.measured_s:.2f} ms measured "
            f"({1000 * self.for_load_s:.2f} ms predicted for the load that came)"
        )


def predictions_of(
    plans: Iterable[SequencePlan], changed: Mapping[str, int], decision: str, at_s: float
) -> list[WaitingPrediction]:
    """The predictions of an adjustment, for the operators that it changes. An edge in several
    sequences is predicted once, for the strictest of them.
    """
    predictions: dict[tuple[str, str], WaitingPrediction] = {}
    for plan in plans:
        predicted, limit_s = plan.predicted_s(changed), plan.waiting_limit_s
        for operator in plan.sequence.operators:
            waiting_s, e = predicted.get(operator.name, math.inf), plan.coefficient_of(operator)
            if operator.name not in changed or operator.edge is None or e is None:
                continue
            if not math.isfinite(waiting_s) or limit_s <= 0:
                continue
            key = operator.name, operator.edge
            if key in predictions and predictions[key].limit_s <= limit_s:
                continue
            count = changed[operator.name]
            predictions[key] = WaitingPrediction(decision, at_s, *key, count, waiting_s, e, limit_s)
    return list(predictions.values())


def check_predictions(
    pending: Sequence[WaitingPrediction],
    sequences: Iterable[ConstrainedSequence],
    now_s: float,
    give_up_s: float,
    bottleneck: float,
) -> tuple[list[WaitingPrediction], list[CheckedPrediction]]:
    """Those that still wait to be measured, and those that were measured now.

    While a queue is worked off, nothing is measured. A prediction for a number of instances that
    the operator does not have, and one that waited for longer than `give_up_s`, is dropped. So is
    one whose operator has become a bottleneck, with a utilisation of at least `bottleneck`: its
    queue grows for as long as that lasts, and no model of a steady state says how long records wait
    (IV-E).
    """
    measured: dict[tuple[str, str], ConstrainedOperator] = {
        (o.name, o.edge): o for s in sequences for o in s.operators if o.edge is not None
    }
    waiting: list[WaitingPrediction] = []
    checked: list[CheckedPrediction] = []
    for prediction in pending:
        operator = measured.get((prediction.operator, prediction.edge))
        if operator is None or operator.draining:
            if now_s - prediction.at_s < give_up_s:
                waiting.append(prediction)
            continue
        steady = operator.utilisation < bottleneck and math.isfinite(operator.kingman_s)
        if operator.instances != prediction.instances or not steady:
            continue
        checked.append(
            CheckedPrediction(
                prediction.decision,
                now_s,
                prediction.operator,
                prediction.instances,
                prediction.predicted_s,
                prediction.coefficient * operator.kingman_s,
                operator.waiting_s,
                prediction.limit_s,
            )
        )
    return waiting, checked


def kept_errors(
    past: Sequence[CheckedPrediction],
    checked: Sequence[CheckedPrediction],
    now_s: float,
    keep_s: float,
) -> list[CheckedPrediction]:
    """The latest errors of each operator that are not too old."""
    recent = [each for each in (*past, *checked) if now_s - each.at_s < keep_s]
    kept: list[CheckedPrediction] = []
    for each in reversed(recent):
        if sum(other.operator == each.operator for other in kept) < ERRORS_KEPT:
            kept.append(each)
    return kept[::-1]


def mean_errors(kept: Iterable[CheckedPrediction]) -> dict[str, float]:
    """The mean error of each operator; above 0, records waited longer than predicted."""
    by_operator: dict[str, list[float]] = {}
    for each in kept:
        by_operator.setdefault(each.operator, []).append(each.error)
    return {operator: sum(errors) / len(errors) for operator, errors in by_operator.items()}
