"""Detects symptoms (sections 5.1 and 5.2): pending records, back-pressure, skew, emission, growth.

Chosen where the paper speaks of outliers: set B of table 1 are the instances before which senders
were held back for at least half as long as before the worst one (`suspends`). B is compared with
the rest; where all belong to B there is no rest, and the instances are alike.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from trilithon.policies.dhalion.dhalion_parameters import ON
from trilithon.policies.dhalion.health import JobCase, Symptom
from trilithon.policies.dhalion.job_view import InstanceView, OperatorView

PENDING: Final = "pending"
BACK_PRESSURE: Final = "back_pressure"
RATE_SKEW: Final = "rate_skew"
EMISSION: Final = "emission"
GROWTH: Final = "growth"
LASTING_GROWTH: Final = "lasting_growth"


def suspending(operator: OperatorView, at_least: float) -> tuple[int, ...]:
    """Set B: the positions of the instances that suspended their senders; empty if it was not
    measured before all of them, or if none did.
    """
    parked = [instance.parked_s for instance in operator.instances]
    if None in parked or not parked:
        return ()
    worst = max(value for value in parked if value is not None)
    if worst <= 0:
        return ()
    return tuple(i for i, value in enumerate(parked) if (value or 0.0) >= at_least * worst)


def ratio_to_rest(
    operator: OperatorView,
    chosen: Sequence[int],
    value: Callable[[InstanceView], float | None],
) -> float | None:
    """The mean over the chosen instances over that of the others. 1 if all are chosen; None if a
    value is missing or none is chosen; infinite if the others have nothing.
    """
    values = [value(instance) for instance in operator.instances]
    if None in values or not chosen:
        return None
    known = [v for v in values if v is not None]
    rest = [v for i, v in enumerate(known) if i not in chosen]
    if not rest:
        return 1.0
    of_chosen = sum(known[i] for i in chosen) / len(chosen)
    of_rest = sum(rest) / len(rest)
    if of_rest <= 0:
        return 1.0 if of_chosen <= 0 else math.inf
    return of_chosen / of_rest


class BackPressureDetector:
    """Names the operator that holds others back, for which share of the time, and set B."""

    name = BACK_PRESSURE

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        return tuple(
            Symptom(
                BACK_PRESSURE,
                operator.name,
                f"{operator.name} held its senders back for {operator.held_back:.0%} of the time",
                {"back_pressure": operator.held_back},
                suspending(operator, case.parameters.suspends),
            )
            for operator in case.view.origins
        )


class PendingDetector:
    """Compares the queues of an operator's instances: mean pending records, and those of B to those
    of the rest.
    """

    name = PENDING

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        symptoms = []
        for operator in case.view.operators:
            queues = [instance.queue for instance in operator.instances]
            if None in queues or not queues:
                continue
            mean = sum(queue for queue in queues if queue is not None) / len(queues)
            chosen = suspending(operator, case.parameters.suspends)
            contrast = ratio_to_rest(operator, chosen, lambda instance: instance.queue)
            symptoms.append(
                Symptom(
                    PENDING,
                    operator.name,
                    f"{mean:.3g} records wait for each instance of {operator.name}",
                    {"pending": mean, "queue_ratio": contrast},
                    chosen,
                )
            )
        return symptoms


class RateSkewDetector:
    """Compares the processing rates of an operator's instances, divided by their weights."""

    name = RATE_SKEW

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        symptoms = []
        for operator in case.view.operators:
            chosen = suspending(operator, case.parameters.suspends)
            rates = ratio_to_rest(operator, chosen, lambda instance: instance.even_rate_per_s)
            service = ratio_to_rest(operator, chosen, lambda instance: instance.service_s)
            if rates is None:
                continue
            symptoms.append(
                Symptom(
                    RATE_SKEW,
                    operator.name,
                    f"instances of {operator.name} that hold senders back process {rates:.2f} "
                    "times as much as the rest",
                    {"rate_ratio": rates, "service_ratio": service},
                    chosen,
                )
            )
        return symptoms


class EmissionDetector:
    """The total rate at which the sources emit (section 5.2)."""

    name = EMISSION

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        rate = case.view.emission_per_s
        if rate is None:
            return ()
        sentence = f"the sources emit {rate:.4g} records/s"
        numbers = {"emission": rate, "arriving": case.view.arriving_per_s}
        return (Symptom(EMISSION, None, sentence, numbers),)


class GrowthDetector:
    """Queues or lags that grow: future work in the paper (section 6.2). Behind a gate queues cannot
    grow, and the lag in the log does.
    """

    name = GROWTH

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        view, least = case.view, case.parameters.growing
        if case.parameters.growth != ON:
            return ()
        symptoms = []
        for operator in view.operators:
            growth, rate = operator.queue_growth_per_s, operator.rate_per_s
            if growth is not None and rate and growth > least * rate:
                symptoms.append(
                    Symptom(
                        GROWTH,
                        operator.name,
                        f"the queues of {operator.name} grow by {growth:.4g} records/s",
                        {"growth": growth, "rate": rate},
                    )
                )
        growth, rate = view.lag_growth_per_s, view.emission_per_s
        if growth is not None and rate and growth > least * rate:
            sentence = f"the lag grows by {growth:.4g} records/s"
            symptoms.append(Symptom(GROWTH, None, sentence, {"growth": growth, "rate": rate}))
        return symptoms


class LastingGrowthDetector:
    """A lag that grew in each of several examinations, by too little to be seen in one of them."""

    name = LASTING_GROWTH

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        rate, lasting = case.view.emission_per_s, case.parameters.lasting
        lags = case.lags[-lasting - 1 :]
        if case.parameters.growth != ON or len(lags) <= lasting or not rate:
            return ()
        (since_s, before), (now_s, now) = lags[0], lags[-1]
        growth = (now - before) / (now_s - since_s)
        grows = all(earlier < later for (_, earlier), (_, later) in pairwise(lags))
        if not grows or growth <= case.parameters.creeping * rate:
            return ()
        minutes = (now_s - since_s) / 60
        sentence = f"the lag has grown by {growth:.4g} records/s for {minutes:.3g} minutes"
        numbers = {"growth": growth, "rate": rate, "lag": now}
        return (Symptom(LASTING_GROWTH, None, sentence, numbers),)
