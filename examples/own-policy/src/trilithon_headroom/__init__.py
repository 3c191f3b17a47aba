"""A health policy that keeps headroom: more instances before anybody is held back."""

from collections.abc import Sequence

from trilithon.policies.dhalion.health import (
    Detector,
    Diagnoser,
    Diagnosis,
    JobCase,
    LogEntry,
    Resolution,
    Resolver,
    Symptom,
)
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy
from trilithon.policies.dhalion.resolvers import ScaleUpResolver

BUSY = 0.8
SYMPTOM, DIAGNOSIS, ACTION = "busy", "little_headroom", "add_headroom"


class BusyDetector:
    """Finds operators with an instance that is nearly always at work."""

    name = SYMPTOM

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        return [
            Symptom(
                SYMPTOM,
                operator.name,
                f"an instance of {operator.name} is at work for {busiest:.0%} of the time",
                {"busiest": busiest},
            )
            for operator in case.view.operators
            if (busiest := operator.busiest) is not None and busiest > BUSY
        ]


class HeadroomDiagnoser:
    """Blames the busiest operator, unless somebody is held back: that has causes of its own."""

    name = DIAGNOSIS

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:
        busy = [symptom for symptom in symptoms if symptom.kind == SYMPTOM]
        if not busy or case.view.origins:
            return ()
        worst = max(busy, key=lambda symptom: symptom.numbers["busiest"] or 0.0)
        sentence = f"{worst.operator} has little headroom: {worst.sentence}"
        return [Diagnosis(DIAGNOSIS, worst.operator, sentence, (worst,), worst.numbers)]


class AddHeadroomResolver:
    """One more instance, within the bounds of the job: what the built-in resolver proposes for an
    operator that lacks nothing.
    """

    name = ACTION

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None:
        return ScaleUpResolver().resolve(case, diagnosis)


class HeadroomPolicy(ProvisioningPolicy):
    name = "headroom"
    summary = "as provisioning, and one more instance for operators that are nearly always busy"
    detectors: tuple[Detector, ...] = (*ProvisioningPolicy.detectors, BusyDetector())
    diagnosers: tuple[Diagnoser, ...] = (HeadroomDiagnoser(), *ProvisioningPolicy.diagnosers)
    resolvers: tuple[Resolver, ...] = (*ProvisioningPolicy.resolvers, AddHeadroomResolver())

    def candidates(self, case: JobCase, diagnosis: Diagnosis) -> Sequence[str]:
        """Which resolvers may cure a diagnosis, the best first."""
        if diagnosis.kind == DIAGNOSIS:
            return (ACTION,)
        return super().candidates(case, diagnosis)

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:
        """Whether an action has helped; one that did not is not repeated."""
        if entry.kind == DIAGNOSIS:
            operator = next(o for o in case.view.operators if o.name == entry.operator)
            return operator.busiest is not None and operator.busiest <= BUSY
        return super().helped(case, entry)
