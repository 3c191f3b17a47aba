"""The throughput SLO: what the sources emit is a metric of its own, and what follows if it is too
little (section 5.2).
"""

from dataclasses import replace

import pytest

from tests.policies.dhalion.clinic import treated, words
from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.engines.simulated.character import heron
from trilithon.measures.slo import emission
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Job
from trilithon.policies.dhalion.detectors import EMISSION, EmissionDetector
from trilithon.policies.dhalion.diagnosers import NO_DATA, SLO_MISSED
from trilithon.policies.dhalion.health import Diagnosis, JobCase
from trilithon.policies.dhalion.health_policies import ThroughputSloPolicy

SLO_PER_S = 1200.0
HERON = heron(queue=2000, low_mark=0.5, transit_s=0.01, outage_s=10.0, restart_s=10.0)


def with_slo(job: Job, per_s: float = SLO_PER_S) -> Job:
    return replace(job, intent=Intent((Threshold(Metric.EMISSION, per_s),), priority=10.0))


ARRIVING_PER_S = 2000.0


def case(
    emitted: float | None,
    busy: float = 1.0,
    held_back: float = 0.0,
    arriving: float = ARRIVING_PER_S,
) -> JobCase:
    """A job whose sources should emit 1200 records/s."""
    view = operator_view("count", [instance_view(busy=busy)] * 2, held_back, at_source=True)
    plain = case_of(view, emission=emitted, arriving=arriving)
    return replace(plain, view=replace(plain.view, job=with_slo(plain.view.job)))


def of_the_slo(of: JobCase) -> list[Diagnosis]:
    policy = ThroughputSloPolicy()
    symptoms = [symptom for detector in policy.detectors for symptom in detector.detect(of)]
    diagnoses = [d for each in policy.diagnosers for d in each.diagnose(of, symptoms)]
    return [diagnosis for diagnosis in diagnoses if diagnosis.kind in {SLO_MISSED, NO_DATA}]


def test_the_detector_tells_what_the_sources_emit_and_what_arrives() -> None:
    [symptom] = EmissionDetector().detect(case(400.0))
    assert (symptom.kind, symptom.operator) == (EMISSION, None)
    assert symptom.numbers == {"emission": 400.0, "arriving": ARRIVING_PER_S}
    assert not EmissionDetector().detect(case(None))


def test_sources_that_emit_too_little_get_as_many_times_more_instances() -> None:
    [diagnosis] = of_the_slo(case(400.0))
    assert (diagnosis.kind, diagnosis.operator) == (SLO_MISSED, "count")
    assert diagnosis.number("factor") == pytest.approx(3.0)
    assert diagnosis.number("slo") == SLO_PER_S
    assert "emit 400 records/s, the SLO is 1200" in diagnosis.sentence


def test_under_back_pressure_the_diagnoser_is_silent() -> None:
    """Whoever holds the sources back is cured first."""
    assert of_the_slo(case(400.0, held_back=0.3)) == []


def test_sources_with_time_to_spare_lack_records_not_instances() -> None:
    [diagnosis] = of_the_slo(case(400.0, busy=0.2))
    assert (diagnosis.kind, diagnosis.operator) == (NO_DATA, None)
    assert "no more records arrive" in diagnosis.sentence


def test_an_slo_above_what_arrives_lacks_records_however_busy_the_operators_are() -> None:
    """They would be given instances that have nothing to do."""
    [diagnosis] = of_the_slo(case(800.0, busy=0.8, arriving=800.0))
    assert diagnosis.kind == NO_DATA
    assert diagnosis.numbers["arriving"] == 800.0


def test_sources_that_are_always_at_work_may_be_the_limit_of_what_arrives() -> None:
    [diagnosis] = of_the_slo(case(800.0, busy=0.98, arriving=800.0))
    assert diagnosis.kind == SLO_MISSED


def test_a_backlog_can_be_emitted_although_no_more_arrives() -> None:
    behind = case(800.0, busy=0.8, arriving=800.0)
    behind = replace(behind, view=replace(behind.view, lag=5000.0))
    [diagnosis] = of_the_slo(behind)
    assert diagnosis.kind == SLO_MISSED


@pytest.mark.parametrize("emitted", [SLO_PER_S, 1300.0, None])
def test_an_slo_that_is_met_or_not_measured_is_no_diagnosis(emitted: float | None) -> None:
    assert of_the_slo(case(emitted)) == []


def test_a_job_without_a_threshold_on_emission_has_no_such_diagnosis() -> None:
    of = case(400.0)
    assert of_the_slo(replace(of, view=replace(of.view, job=words()))) == []


def test_from_one_instance_each_a_job_grows_until_its_sources_emit_the_slo() -> None:
    """Back-pressure and the SLO take turns, as in figure 8."""
    clinic = treated(with_slo(words(split=1, count=1)), 3000.0, minutes=50, character=HERON)
    actions = clinic.reasons()
    assert set(actions) == {"SCALE_UP", "SOURCE_SCALE_UP"}
    assert "EMISSION_BELOW_SLO" in clinic.diagnoses()
    assert clinic.parallelism["split"] >= 3
    window = clinic.series.window(300.0)
    assert window is not None
    assert emission(window)[0] >= SLO_PER_S
    evaluated = [d.sentence for d in clinic.decisions if d.reason == "EVALUATED"]
    assert "source scale up for emission below slo helped." in evaluated


def test_without_the_threshold_nobody_asks_for_more_at_the_sources() -> None:
    clinic = treated(words(split=1, count=1), 3000.0, minutes=25, character=HERON)
    assert "SOURCE_SCALE_UP" not in clinic.reasons()
    assert clinic.parallelism["split"] == 1
