"""Defines the paper's two health policies: dynamic resource provisioning, and throughput SLO."""

from collections.abc import Sequence
from typing import Final

from trilithon.policies.dhalion.detectors import (
    BackPressureDetector,
    EmissionDetector,
    GrowthDetector,
    LastingGrowthDetector,
    PendingDetector,
    RateSkewDetector,
)
from trilithon.policies.dhalion.diagnosers import (
    DATA_SKEW,
    OVER,
    SKEW,
    SLO_MISSED,
    SLOW,
    SLOW_INSTANCE,
    UNDER,
    UNDER_PROVISIONED,
    EmissionDiagnoser,
    GrowthDiagnoser,
    OverProvisionedDiagnoser,
    SmallDeficitDiagnoser,
)
from trilithon.policies.dhalion.health import (
    Detector,
    Diagnoser,
    Diagnosis,
    JobCase,
    LogEntry,
    Resolver,
    figures,
)
from trilithon.policies.dhalion.resolvers import (
    MOVE_KEYS,
    RELIEVE,
    SCALE_DOWN,
    SCALE_UP,
    SOURCE_SCALE_UP,
    TELL,
    MoveKeysResolver,
    RelieveInstanceResolver,
    ScaleDownResolver,
    ScaleUpResolver,
    SourceScaleUpResolver,
    TellResolver,
)

# Section 5.1: if the resolver of a diagnosis is blacklisted, one of the other two is drawn.
_AGAINST_BACK_PRESSURE: Final = (SCALE_UP, RELIEVE, MOVE_KEYS)
_FIRST: Final = {UNDER: SCALE_UP, SLOW: RELIEVE, SKEW: MOVE_KEYS}


class ProvisioningPolicy:
    """Dynamic resource provisioning (section 5.1): no back-pressure, and no idle instances."""

    name = "provisioning"
    summary = "as many instances as the load needs; slow instances and skew are cured"
    detectors: tuple[Detector, ...] = (
        BackPressureDetector(),
        PendingDetector(),
        RateSkewDetector(),
        GrowthDetector(),
        LastingGrowthDetector(),
    )
    diagnosers: tuple[Diagnoser, ...] = (
        UNDER_PROVISIONED,
        SLOW_INSTANCE,
        DATA_SKEW,
        GrowthDiagnoser(),
        SmallDeficitDiagnoser(),
        OverProvisionedDiagnoser(),
    )
    resolvers: tuple[Resolver, ...] = (
        ScaleUpResolver(),
        RelieveInstanceResolver(),
        MoveKeysResolver(),
        ScaleDownResolver(),
        TellResolver(),
    )

    def candidates(self, case: JobCase, diagnosis: Diagnosis) -> Sequence[str]:  # noqa: ARG002 - all alike
        if diagnosis.kind in _FIRST:
            first = _FIRST[diagnosis.kind]
            return (first, *(name for name in _AGAINST_BACK_PRESSURE if name != first))
        return (SCALE_DOWN,) if diagnosis.kind == OVER else (TELL,)

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:
        """A scale-down helped if it caused no back-pressure. Anything else helped if there is less
        back-pressure at its operator than before, or the sources emit more.
        """
        now, least = figures(case, entry.operator), case.parameters.improvement
        if entry.kind == OVER:
            return now["back_pressure"] == 0
        before, after = entry.before["operator_back_pressure"], now["operator_back_pressure"]
        if before is None or after is None:
            return None
        emitted, emits = entry.before["emission"], now["emission"]
        if before > 0:
            more = bool(emitted and emits and emits > (1 + least) * emitted)
            return after < (1 - least) * before or more
        # It was diagnosed by growth: then nothing may be held back by it now.
        return after <= case.parameters.back_pressure


class ThroughputSloPolicy(ProvisioningPolicy):
    """Throughput SLO (section 5.2): as above, and instances at the sources until they emit what the
    threshold on `emission` asks for.
    """

    name = "throughput_slo"
    summary = "as provisioning, and more instances at the sources until they emit the SLO"
    detectors: tuple[Detector, ...] = (*ProvisioningPolicy.detectors, EmissionDetector())
    diagnosers: tuple[Diagnoser, ...] = (
        UNDER_PROVISIONED,
        SLOW_INSTANCE,
        DATA_SKEW,
        GrowthDiagnoser(),
        SmallDeficitDiagnoser(),
        EmissionDiagnoser(),
        OverProvisionedDiagnoser(),
    )
    resolvers: tuple[Resolver, ...] = (*ProvisioningPolicy.resolvers, SourceScaleUpResolver())

    def candidates(self, case: JobCase, diagnosis: Diagnosis) -> Sequence[str]:
        if diagnosis.kind == SLO_MISSED:
            return (SOURCE_SCALE_UP,)
        return super().candidates(case, diagnosis)

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:
        """More instances at the sources helped if these emit more, or bring others to their limit:
        back-pressure is the next problem, not a failure.
        """
        if entry.kind == SLO_MISSED:
            now = figures(case, entry.operator)
            emitted, emits = entry.before["emission"], now["emission"]
            if emitted is None or emits is None:
                return None
            more = emits > (1 + case.parameters.improvement) * emitted
            return more or (now["back_pressure"] or 0.0) > 0
        return super().helped(case, entry)
