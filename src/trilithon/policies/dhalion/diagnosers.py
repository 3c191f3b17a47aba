"""Diagnoses causes (sections 5.1 and 5.2, table 1).

Table 1, with r the processing rates and p the queues of the instances of the operator that holds
others back, and B those that suspended their senders:

    under-provisioned   r alike, p alike
    slow instance       r alike, p of B larger
    data skew           r of B larger, p of B larger

At most one of the three holds. Ours differs in one point, which `diagnosis: table_1` takes back:
service times are measured, so an instance is called slow only if its service time is longer than
that of its peers. An instance that is full first because keys fall unevenly by chance then counts
as under-provisioned, where table 1 alone would call it slow.
"""

import math
from collections.abc import Sequence
from typing import Final

from trilithon.model.intent import Metric
from trilithon.policies.dhalion.detectors import (
    BACK_PRESSURE,
    EMISSION,
    GROWTH,
    PENDING,
    RATE_SKEW,
)
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.health import Case, Diagnosis, Symptom
from trilithon.policies.dhalion.job_view import OperatorView

UNDER: Final = "under_provisioned"
SLOW: Final = "slow_instance"
SKEW: Final = "data_skew"
OVER: Final = "over_provisioned"
SLO_MISSED: Final = "emission_below_slo"
NO_DATA: Final = "not_enough_data"
SOURCE_BOUND: Final = "sources_at_their_limit"
# Chosen: an operator that is at work for more of the time than this cannot take more.
SATURATED: Final = 0.9
# Chosen: sources at work for less of the time than this would emit more if there were more.
STARVED: Final = 0.5

# Chosen: sources that read more than this times what arrives work off a backlog.
CATCHING_UP: Final = 1.01


def condition(
    parameters: DhalionParameters,
    rate_ratio: float | None,
    queue_ratio: float | None,
    service_ratio: float | None,
) -> str | None:
    """Which condition of table 1 holds; None if none does or a number is missing."""
    if rate_ratio is None or queue_ratio is None:
        return None
    longer_queues = queue_ratio > parameters.queues
    more = rate_ratio > parameters.skew
    alike = 1 / parameters.skew <= rate_ratio <= parameters.skew
    if more and longer_queues:
        return SKEW
    if not alike:
        return None
    slow = longer_queues
    if parameters.diagnosis == "service_times" and service_ratio is not None:
        slow = longer_queues and service_ratio > parameters.slow
    return SLOW if slow else UNDER


class TableOneDiagnoser:
    """One condition of table 1, for the operator that is the origin of the back-pressure."""

    def __init__(self, kind: str, sentence: str) -> None:
        self.name, self._sentence = kind, sentence

    def diagnose(self, case: Case, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        pressure = next((symptom for symptom in symptoms if symptom.kind == BACK_PRESSURE), None)
        if pressure is None or pressure.operator is None:
            return ()
        about = [s for s in symptoms if s.operator == pressure.operator]
        numbers = {name: value for s in about for name, value in s.numbers.items()}
        holds = condition(
            case.parameters,
            numbers.get("rate_ratio"),
            numbers.get("queue_ratio"),
            numbers.get("service_ratio"),
        )
        if holds != self.name or (self.name == UNDER and _catches_up(case)):
            return ()
        chosen = () if self.name == UNDER else pressure.instances
        which = f" ({', '.join(map(str, chosen))})" if chosen else ""
        used = tuple(s for s in about if s.kind in {BACK_PRESSURE, PENDING, RATE_SKEW})
        sentence = self._sentence.format(operator=pressure.operator, which=which)
        return (Diagnosis(self.name, pressure.operator, sentence, used, numbers, chosen),)


def _catches_up(case: Case) -> bool:
    """Whether a backlog is being worked off: then everybody is busy, and there are enough."""
    emitted, arriving = case.view.emission_per_s, case.view.arriving_per_s
    return emitted is not None and arriving is not None and emitted > CATCHING_UP * arriving


UNDER_PROVISIONED: Final = TableOneDiagnoser(
    UNDER, "{operator} has too few instances: all of them fare alike"
)
SLOW_INSTANCE: Final = TableOneDiagnoser(
    SLOW, "an instance of {operator}{which} is slower than its peers"
)
DATA_SKEW: Final = TableOneDiagnoser(
    SKEW, "an instance of {operator}{which} gets more records than its peers"
)


class GrowthDiagnoser:
    """A queue or lag that grows before back-pressure begins: the operator that cannot keep up has
    too few instances, or the sources cannot read as much as arrives.
    """

    name = "growth"

    def diagnose(self, case: Case, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        if any(symptom.kind == BACK_PRESSURE for symptom in symptoms):
            return ()
        growing = [symptom for symptom in symptoms if symptom.kind == GROWTH]
        view = case.view
        for symptom in growing:
            # A queue that grows belongs to who cannot keep up; so does a lag before one that takes
            # from the log itself and is always at work.
            behind = (
                [view.operator(symptom.operator)]
                if symptom.operator is not None
                else [operator for operator in view.operators if operator.at_source]
            )
            for operator in behind:
                # If one of them has room, the operator does not lack instances.
                if _least_busy(operator) > SATURATED:
                    share = (symptom.numbers["growth"] or 0.0) / (symptom.numbers["rate"] or 1.0)
                    sentence = f"{operator.name} has too few instances: {symptom.sentence}"
                    numbers = {**symptom.numbers, "lacking": share}
                    return (Diagnosis(UNDER, operator.name, sentence, (symptom,), numbers),)
            if symptom.operator is None:
                sentence = f"the sources cannot read as much as arrives: {symptom.sentence}"
                return (Diagnosis(SOURCE_BOUND, None, sentence, (symptom,), symptom.numbers),)
        return ()


def _least_busy(operator: OperatorView) -> float:
    busy = [instance.busy for instance in operator.instances]
    return 0.0 if None in busy else min((b for b in busy if b is not None), default=0.0)


class OverProvisionedDiagnoser:
    """No back-pressure, nothing that grows, and an operator that could do with fewer instances.

    By the paper's rule (`over: pending`) it has almost empty queues, which any healthy job has. By
    default its utilisation after the removal is predicted: busiest · p / (p − 1).
    """

    name = OVER

    def diagnose(self, case: Case, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        if any(symptom.kind in {BACK_PRESSURE, GROWTH} for symptom in symptoms):
            return ()
        diagnoses = []
        for symptom in symptoms:
            if symptom.kind != PENDING or symptom.operator is None:
                continue
            operator = case.view.operator(symptom.operator)
            count, busy = operator.parallelism, operator.busiest
            if count < 2 or busy is None or operator.broadcast:
                continue
            after = busy * count / (count - 1)
            waiting = symptom.numbers["pending"]
            if case.parameters.over == "pending":
                excessive = waiting is not None and waiting <= case.parameters.empty
            else:
                excessive = after <= case.parameters.full
            if excessive:
                sentence = f"{operator.name} has more instances than it needs: {symptom.sentence}"
                numbers = {"pending": waiting, "busiest": busy, "busiest_after": after}
                diagnoses.append(Diagnosis(OVER, operator.name, sentence, (symptom,), numbers))
        # The one with the most room first.
        return sorted(diagnoses, key=lambda d: (d.number("busiest_after") or 0.0, d.operator or ""))


class EmissionDiagnoser:
    """The sources emit less than the SLO; silent under back-pressure (section 5.2)."""

    name = SLO_MISSED

    def diagnose(self, case: Case, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        wanted = max(
            (t.value for t in case.view.job.intent.thresholds if t.metric is Metric.EMISSION),
            default=None,
        )
        emitted = next((s for s in symptoms if s.kind == EMISSION), None)
        if wanted is None or emitted is None or (rate := emitted.numbers["emission"]) is None:
            return ()
        if any(symptom.kind == BACK_PRESSURE for symptom in symptoms) or rate >= wanted:
            return ()
        first = [operator for operator in case.view.operators if operator.at_source]
        busy = max((operator.busiest or 0.0 for operator in first), default=0.0)
        numbers = {**emitted.numbers, "slo": wanted, "busiest": busy}
        behind = f"{emitted.sentence}, the SLO is {wanted:.4g}"
        if busy < STARVED and not any(s.kind == GROWTH for s in symptoms):
            sentence = f"{behind}: no more records arrive"
            return (Diagnosis(NO_DATA, None, sentence, (emitted,), numbers),)
        slowest = max(first, key=lambda operator: operator.busiest or 0.0)
        factor = wanted / rate if rate > 0 else math.inf
        numbers["factor"] = factor if math.isfinite(factor) else None
        return (Diagnosis(SLO_MISSED, slowest.name, behind, (emitted,), numbers),)
