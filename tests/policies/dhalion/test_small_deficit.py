"""A lag that grows slowly for long: too little for one examination, and never worked off."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.policies.dhalion.clinic import treated, words
from tests.policies.dhalion.test_lag_growth import PULLING
from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.policies.dhalion.detectors import GROWTH, LastingGrowthDetector
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.diagnosers import OverProvisionedDiagnoser, SmallDeficitDiagnoser
from trilithon.policies.dhalion.health import JobCase, Symptom
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy


def test_a_small_deficit_that_lasts_is_told_and_nothing_is_changed() -> None:
    """Two splitters are good for 1000 records/s, and 1020 arrive: 2 %, for ever."""
    job = words(split=2, count=8)
    clinic = treated(job, 1020.0, minutes=30, character=PULLING, full=0.05)
    assert clinic.alerts() == {"LAG_GROWS"}
    assert set(clinic.reasons()) == {"TELL"}
    assert clinic.diagnoses() == ["SMALL_DEFICIT"] * len(clinic.reasons())
    alert = next(decision for decision in clinic.decisions if decision.reason == "TELL")
    assert "split is the busiest operator" in alert.sentence
    silent = treated(job, 1020.0, minutes=30, character=PULLING, full=0.05, growth="off")
    assert silent.decisions == []


def test_a_job_that_keeps_up_has_no_such_deficit() -> None:
    clinic = treated(words(split=3), 800.0, minutes=60)
    assert clinic.decisions == []


def case_with(lags: Sequence[float], **parameters: Any) -> JobCase:
    """A job that emits 1,000 records/s and had such lags, two minutes apart."""
    views = [instance_view(busy=0.2) for _ in range(4)]
    case = case_of(operator_view("count", views, 0.0), parameters=DhalionParameters(**parameters))
    return replace(case, lags=tuple((120.0 * i, lag) for i, lag in enumerate(lags)))


def test_it_must_grow_each_time_and_by_enough() -> None:
    """Five examinations are 600 s, in which 600,000 records are emitted: 0.5 % are 3,000."""
    detect = LastingGrowthDetector().detect
    [symptom] = detect(case_with([0, 900, 1800, 2700, 3600, 4500]))
    assert symptom.sentence == "the lag has grown by 7.5 records/s for 10 minutes"
    assert detect(case_with([0, 900, 1800, 2700, 3600])) == ()
    assert detect(case_with([0, 900, 1800, 1700, 3600, 4500])) == ()
    assert detect(case_with([0, 500, 1000, 1500, 2000, 2500])) == ()
    assert detect(case_with([0, 500, 1000, 1500, 2000, 2500], creeping=0.004))
    assert detect(case_with([0, 900, 1800], lasting=2))


def test_back_pressure_or_growth_say_more() -> None:
    case = case_with([0, 900, 1800, 2700, 3600, 4500])
    lasting = LastingGrowthDetector().detect(case)
    assert SmallDeficitDiagnoser().diagnose(case, lasting)
    more = [*lasting, Symptom(GROWTH, None, "the lag grows")]
    assert SmallDeficitDiagnoser().diagnose(case, more) == ()


def test_nothing_is_removed_while_the_lag_grows() -> None:
    """Its instances are idle for 80 % of the time."""
    case = case_with([0, 900, 1800, 2700, 3600, 4500])
    symptoms = [s for d in ProvisioningPolicy.detectors for s in d.detect(case)]
    assert OverProvisionedDiagnoser().diagnose(case, symptoms) == ()
    calm = replace(case, lags=())
    symptoms = [s for d in ProvisioningPolicy.detectors for s in d.detect(calm)]
    assert OverProvisionedDiagnoser().diagnose(calm, symptoms)
