"""Diagnoses causes (sections 5.1 and 5.2, table 1).

Table 1, with r the processing rates and p the queues of the instances of the operator that holds
others back, and B those that suspended their senders:

    under-provisioned   r alike, p alike
    slow instance       r alike, p of B larger
    data skew           r of B larger, p of B larger

At most one of the three holds. Ours differs in one point, which `diagnosis: table_1` takes back:
service times are measured. The load of B is its rate times its service time, and where both are
above those of the rest, the larger ratio is the cause. So a slow instance is not taken for skew
while it works off its queue and its peers are idle, or where keys fall a little unevenly; and one
that is full first although it is as fast as its peers counts as under-provisioned, where table 1
alone would call it slow.
"""

import math
from collections.abc import Sequence
from typing import Final

from trilithon.model.intent import Metric
from trilithon.policies.dhalion.detectors import (
    BACK_PRESSURE,
    EMISSION,
    GROWTH,
    LASTING_GROWTH,
    PENDING,
    RATE_SKEW,
    ratio_to_rest,
)
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.health import Diagnosis, JobCase, Symptom
from trilithon.policies.dhalion.job_view import CATCHING_UP, OperatorView

UNDER: Final = "under_provisioned"
SLOW: Final = "slow_instance"
SKEW: Final = "data_skew"
OVER: Final = "over_provisioned"
SLO_MISSED: Final = "emission_below_slo"
NO_DATA: Final = "not_enough_data"
SOURCE_BOUND: Final = "sources_at_their_limit"
SMALL_DEFICIT: Final = "small_deficit"
# Chosen: an operator that is at work for more of the time than this cannot take more.
SATURATED: Final = 0.9
# Chosen: sources at work for less of the time than this would emit more if there were more.
STARVED: Final = 0.5
# A lag of what arrives in so long is no backlog: records are on their way for some time.
SMALL_LAG_S: Final = 1.0


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
    alike = 1 / parameters.skew <= rate_ratio <= parameters.skew
    slow = alike
    if parameters.diagnosis == "service_times" and service_ratio is not None:
        slow = service_ratio > max(parameters.slow, rate_ratio)
    if longer_queues and slow:
        return SLOW
    if longer_queues and rate_ratio > parameters.skew:
        return SKEW
    return UNDER if alike else None


class TableOneDiagnoser:
    """One condition of table 1, for the operator that is the origin of the back-pressure."""

    def __init__(self, kind: str, sentence: str) -> None:
        self.name, self._sentence = kind, sentence
        self.summary = sentence.format(operator="an operator", which="")

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
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
        chosen = pressure.instances
        instances = case.view.operator(pressure.operator).instances
        names = (f"{pressure.operator}-{instances[i].index}" for i in chosen)
        which = f" ({', '.join(names)})" if chosen else ""
        used = tuple(s for s in about if s.kind in {BACK_PRESSURE, PENDING, RATE_SKEW})
        sentence = self._sentence.format(operator=pressure.operator, which=which)
        return (Diagnosis(self.name, pressure.operator, sentence, used, numbers, chosen),)


def _catches_up(case: JobCase) -> bool:
    """Whether a backlog is being worked off: then everybody is busy, and there are enough."""
    emitted, arriving = case.view.emission_per_s, case.view.arriving_per_s
    return emitted is not None and arriving is not None and emitted > CATCHING_UP * arriving


def _reads_all(case: JobCase) -> bool:
    """Whether the sources emit all that arrives, and no backlog waits that they could emit."""
    emitted, arriving = case.view.emission_per_s, case.view.arriving_per_s
    if emitted is None or arriving is None or emitted * CATCHING_UP < arriving:
        return False
    return case.view.lag is None or case.view.lag <= SMALL_LAG_S * arriving


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

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        if any(symptom.kind == BACK_PRESSURE for symptom in symptoms):
            return ()
        for symptom in symptoms:
            if symptom.kind != GROWTH:
                continue
            if symptom.operator is not None:
                diagnosis = _of_queues(case, symptom, case.view.operator(symptom.operator))
            else:
                diagnosis = _of_lag(case, symptom)
            if diagnosis is not None:
                return (diagnosis,)
        return ()


class SmallDeficitDiagnoser:
    """A lag that grows slowly for long: a little less is processed than arrives. Silent where
    back-pressure or growth say more.
    """

    name = SMALL_DEFICIT

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        if any(symptom.kind in {BACK_PRESSURE, GROWTH} for symptom in symptoms):
            return ()
        creeping = next((s for s in symptoms if s.kind == LASTING_GROWTH), None)
        if creeping is None:
            return ()
        known = [(busy, o.name) for o in case.view.operators if (busy := o.busiest) is not None]
        busy, name = max(known, default=(None, None))
        most = "" if busy is None else f"; {name} is the busiest operator, {busy:.0%} of the time"
        sentence = f"a little less is processed than arrives: {creeping.sentence}{most}"
        numbers = {**creeping.numbers, "busiest": busy}
        return (Diagnosis(SMALL_DEFICIT, None, sentence, (creeping,), numbers),)


def _of_queues(case: JobCase, symptom: Symptom, operator: OperatorView) -> Diagnosis | None:
    """Table 1 with the longest queues in the place of B: nobody was held back yet."""
    queues = [instance.queue or 0.0 for instance in operator.instances]
    longest = tuple(i for i, queue in enumerate(queues) if queue >= max(queues) / 2)
    numbers = {
        **symptom.numbers,
        "rate_ratio": ratio_to_rest(operator, longest, lambda each: each.even_rate_per_s),
        "queue_ratio": ratio_to_rest(operator, longest, lambda each: each.queue),
        "service_ratio": ratio_to_rest(operator, longest, lambda each: each.service_s),
    }
    ratios = (numbers[name] for name in ("rate_ratio", "queue_ratio", "service_ratio"))
    kind = condition(case.parameters, *ratios)
    if kind == UNDER:
        return _lacking(symptom, operator, longest)
    if kind is None:
        return None
    what = "is slower" if kind == SLOW else "gets more records"
    sentence = f"an instance of {operator.name} {what} than its peers: {symptom.sentence}"
    return Diagnosis(kind, operator.name, sentence, (symptom,), numbers, longest)


def _of_lag(case: JobCase, symptom: Symptom) -> Diagnosis:
    """A lag grows before an operator that takes from the log itself and is always at work, or the
    readers are the limit.
    """
    first = _first(case)
    lacking = next((each for o in first if (each := _lacking(symptom, o)) is not None), None)
    if lacking is not None:
        return lacking
    sentence = f"the sources cannot read as much as arrives: {symptom.sentence}"
    return Diagnosis(SOURCE_BOUND, None, sentence, (symptom,), symptom.numbers)


def _first(case: JobCase) -> list[OperatorView]:
    """The operators behind the sources."""
    return [operator for operator in case.view.operators if operator.at_source]


def _lacking(
    symptom: Symptom, operator: OperatorView, longest: tuple[int, ...] = ()
) -> Diagnosis | None:
    """Too few instances, if none of them has room."""
    if _least_busy(operator) <= SATURATED:
        return None
    share = (symptom.numbers["growth"] or 0.0) / (symptom.numbers["rate"] or 1.0)
    sentence = f"{operator.name} has too few instances: {symptom.sentence}"
    numbers = {**symptom.numbers, "lacking": share}
    return Diagnosis(UNDER, operator.name, sentence, (symptom,), numbers, longest)


def _least_busy(operator: OperatorView) -> float:
    busy = [instance.busy for instance in operator.instances]
    return 0.0 if None in busy else min((b for b in busy if b is not None), default=0.0)


class OverProvisionedDiagnoser:
    """No back-pressure, nothing that grows, and an operator that could do with fewer instances.

    By the paper's rule (`over: pending`) it has almost empty queues, which any healthy job has. By
    default its utilisation after the removal is predicted: busiest · p / (p − 1).
    """

    name = OVER

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        if any(s.kind in {BACK_PRESSURE, GROWTH, LASTING_GROWTH} for s in symptoms):
            return ()
        diagnoses = []
        for symptom in symptoms:
            if symptom.kind != PENDING or symptom.operator is None:
                continue
            operator = case.view.operator(symptom.operator)
            count, busy = operator.parallelism, operator.busiest
            span = case.view.status.spans.get(operator.name)
            least = max(1, 1 if span is None else span.min)
            if count <= least or busy is None or operator.broadcast:
                continue
            after = busy * count / (count - 1)
            waiting = symptom.numbers["pending"]
            if case.parameters.over == "pending":
                excessive = _almost_empty(operator, waiting, case.parameters.empty_s)
            else:
                excessive = after <= case.parameters.full
            if excessive:
                sentence = f"{operator.name} has more instances than it needs: {symptom.sentence}"
                numbers = {"pending": waiting, "busiest": busy, "busiest_after": after}
                diagnoses.append(Diagnosis(OVER, operator.name, sentence, (symptom,), numbers))
        # The one with the most room first.
        return sorted(diagnoses, key=lambda d: (d.number("busiest_after") or 0.0, d.operator or ""))


def _almost_empty(operator: OperatorView, pending: float | None, within_s: float) -> bool:
    """Whether what waits for each instance is worked off within so long."""
    if pending is None or not operator.rate_per_s:
        return False
    return pending <= within_s * operator.rate_per_s / operator.parallelism


class EmissionDiagnoser:
    """The sources emit less than the SLO. Silent under back-pressure (section 5.2), and where a lag
    grows although the first operators have room: more of them would not read more. Where all that
    arrives is read by operators with room, records are missing, not instances. (Of sources that
    make their records themselves, as Heron's do, all arrives at which they are always at work.)
    """

    name = SLO_MISSED

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        wanted = max(
            (t.value for t in case.view.job.intent.thresholds if t.metric is Metric.EMISSION),
            default=None,
        )
        emitted = next((s for s in symptoms if s.kind == EMISSION), None)
        if wanted is None or emitted is None or (rate := emitted.numbers["emission"]) is None:
            return ()
        if any(symptom.kind == BACK_PRESSURE for symptom in symptoms) or rate >= wanted:
            return ()
        first = _first(case)
        lagging = any(s.kind == GROWTH and s.operator is None for s in symptoms)
        if lagging and all(_least_busy(operator) <= SATURATED for operator in first):
            return ()
        busy = max((operator.busiest or 0.0 for operator in first), default=0.0)
        numbers = {**emitted.numbers, "slo": wanted, "busiest": busy}
        behind = f"{emitted.sentence}, the SLO is {wanted:.4g}"
        grows = any(symptom.kind == GROWTH for symptom in symptoms)
        if not grows and (busy < STARVED or (busy <= SATURATED and _reads_all(case))):
            sentence = f"{behind}: no more records arrive"
            return (Diagnosis(NO_DATA, None, sentence, (emitted,), numbers),)
        slowest = max(first, key=lambda operator: operator.busiest or 0.0)
        factor = wanted / rate if rate > 0 else math.inf
        numbers["factor"] = factor if math.isfinite(factor) else None
        return (Diagnosis(SLO_MISSED, slowest.name, behind, (emitted,), numbers),)
