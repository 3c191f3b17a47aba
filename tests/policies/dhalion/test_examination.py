"""One examination: when it takes place, which diagnosis is believed, and how it is explained."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.policies.dhalion.clinic import ROUND_S, Clinic, treated, words
from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.control.explain import explain
from trilithon.control.journal import FILE, Journal
from trilithon.model.change import Alert
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.policies.dhalion import extensions
from trilithon.policies.dhalion.action_log import ActionLog
from trilithon.policies.dhalion.detectors import PENDING
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.dhalion_policy import Examination
from trilithon.policies.dhalion.diagnosers import OVER, UNDER
from trilithon.policies.dhalion.health import Detector, Diagnoser, Diagnosis, JobCase, Symptom
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy
from trilithon.scenarios.run import simulate
from trilithon.scenarios.scenario import load_scenario
from trilithon.workloads.shapes import StepChange


class OpinionatedDiagnoser:
    """Says the same about `count` whatever the symptoms are, and how sure it is."""

    def __init__(self, kind: str, confidence: float) -> None:
        self.name = self._kind = kind
        self._confidence = confidence

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]:  # noqa: ARG002 - whatever they are
        used = tuple(s for s in symptoms if (s.kind, s.operator) == (PENDING, "count"))
        sentence = f"count is {self._kind}"
        numbers = {"lacking": 0.25}
        return (
            Diagnosis(self._kind, "count", sentence, used, numbers, confidence=self._confidence),
        )


class TwoMindsPolicy(ProvisioningPolicy):
    """The first diagnoser is less sure than the second."""

    name = "two_minds"
    diagnosers: tuple[Diagnoser, ...] = (
        OpinionatedDiagnoser(OVER, 0.6),
        OpinionatedDiagnoser(UNDER, 0.9),
    )


@pytest.fixture
def two_minds() -> Iterator[str]:
    extensions.register(TwoMindsPolicy())
    yield TwoMindsPolicy.name
    extensions.unregister(TwoMindsPolicy.name)


def test_of_two_diagnoses_the_surer_is_acted_upon_and_its_confidence_is_shown(
    two_minds: str,
) -> None:
    """Both ask for another number of instances; one action at a time is taken."""
    clinic = treated(words(), 400.0, minutes=6, health=two_minds)
    assert clinic.reasons() == ["SCALE_UP"]
    [diagnosis] = [d for d in clinic.decisions if d.reason.startswith("DIAGNOSIS_")]
    assert diagnosis.reason == "DIAGNOSIS_UNDER_PROVISIONED"
    assert diagnosis.numbers["confidence"] == 0.9
    assert clinic.parallelism["count"] == 5


def test_a_diagnosis_that_is_certain_shows_no_confidence() -> None:
    clinic = treated(words(split=3, count=2), 800.0, minutes=6)
    [diagnosis] = [d for d in clinic.decisions if d.reason.startswith("DIAGNOSIS_")]
    assert "confidence" not in diagnosis.numbers


def test_an_examination_may_act_and_alert_beside_it() -> None:
    """Too many instances, and too few records for the SLO: the former is changed, people are told
    the latter.
    """
    job = words(split=8, count=8)
    job = replace(job, intent=Intent((Threshold(Metric.EMISSION, 1200.0),)))
    clinic = treated(job, 300.0, minutes=6)
    times = {result.time_s for result in clinic.results}
    assert len(times) == 1
    [told] = [d for d in clinic.decisions if d.reason == "TELL"]
    [alert] = told.changes
    assert isinstance(alert, Alert)
    assert alert.code == "NOT_ENOUGH_DATA"
    [action] = [d for d in clinic.decisions if d.reason == "SCALE_DOWN"]
    [result] = [r for r in clinic.results if r.decision == action]
    assert [outcome.changed for outcome in result.outcomes] == [True]


def test_the_times_are_those_of_the_paper_by_default() -> None:
    parameters = DhalionParameters()
    assert (parameters.period_s, parameters.window_s, parameters.wait_s) == (120.0, 300.0, 180.0)


@pytest.mark.parametrize(
    ("times", "wait_s", "window_s"),
    [({}, 180.0, 300.0), ({"period_s": 40.0, "window_s": 100.0, "wait_s": 60.0}, 60.0, 100.0)],
)
def test_nothing_is_decided_before_the_wait_and_a_whole_window_after_a_change(
    times: dict[str, Any], wait_s: float, window_s: float
) -> None:
    """Too few counters, then too few splitters: a job with several actions."""
    clinic = treated(words(split=1, count=1), 1200.0, minutes=30, **times)
    changed = [r.time_s for r in clinic.results if any(o.changed for o in r.outcomes)]
    decided = sorted({result.time_s for result in clinic.results})
    assert len(changed) >= 2
    assert window_s <= decided[0] <= window_s + 2 * ROUND_S
    for at_s in changed:
        later = [time_s for time_s in decided if time_s > at_s]
        assert all(time_s >= at_s + wait_s + window_s - 1e-6 for time_s in later)
        if later:
            assert later[0] <= at_s + wait_s + window_s + 2 * ROUND_S


class LookingDetector:
    """Finds nothing, and notes when it was asked."""

    name = "looking"

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def detect(self, case: JobCase) -> Sequence[Symptom]:
        self.times_s.append(case.scene.now_s)
        return ()


@pytest.fixture
def looking() -> Iterator[LookingDetector]:
    detector = LookingDetector()

    class LookingPolicy(ProvisioningPolicy):
        name = "looking"
        detectors: tuple[Detector, ...] = (detector,)

    extensions.register(LookingPolicy())
    yield detector
    extensions.unregister(LookingPolicy.name)


@pytest.mark.parametrize(("period", "apart_s"), [({}, 120.0), ({"period_s": 200.0}, 200.0)])
def test_a_job_that_is_not_changed_is_looked_at_once_a_period(
    looking: LookingDetector, period: dict[str, Any], apart_s: float
) -> None:
    treated(words(), 300.0, minutes=18, health=LookingDetector.name, **period)
    assert len(looking.times_s) >= 4
    assert {b - a for a, b in pairwise(looking.times_s)} == {apart_s}


# 1150 records/s, of which four instances of `third` with 6 ms each can take 667.
TOO_FEW = """\
name: few
engine: spark-rtm
machines: {count: 4, cores: 16}
length: 16 minutes
round: 20 s
policy: {name: dhalion}
jobs:
  - file: linear
    parallelism: {first: 2, second: 7, third: 4, fourth: 2}
    load: {rate: 1150}
"""


def recorded(clinic: Clinic) -> list[str]:
    return [decision.reason for decision in clinic.decisions]


def test_a_diagnosis_that_nothing_is_done_about_is_recorded_once() -> None:
    """Two counters are too few for the whole time, and another policy is to scale."""
    clinic = treated(words(split=3, count=2), 800.0, minutes=25, scale="off")
    assert clinic.reasons() == []
    assert clinic.diagnoses() == ["UNDER_PROVISIONED"]
    assert "SYMPTOM_BACK_PRESSURE" in recorded(clinic)
    [diagnosis] = [d for d in clinic.decisions if d.reason == "DIAGNOSIS_UNDER_PROVISIONED"]
    assert diagnosis.sentence == (
        "Count has too few instances: all of them fare alike. Nothing is done: no resolver "
        "proposes anything."
    )
    symptoms = {d.id for d in clinic.decisions if d.reason.startswith("SYMPTOM_")}
    assert set(diagnosis.causes) == symptoms


def test_another_diagnosis_is_recorded_when_it_begins() -> None:
    """Too many counters for 300 records/s, too few for 1,400."""
    load = StepChange(300.0, 1400.0, 1800.0)
    clinic = treated(words(split=6, count=4), load, minutes=50, scale="off")
    about_count = [d.reason for d in clinic.decisions if d.sentence.startswith("Count has")]
    assert about_count == ["DIAGNOSIS_OVER_PROVISIONED", "DIAGNOSIS_UNDER_PROVISIONED"]


def test_a_diagnosis_that_was_gone_is_recorded_again() -> None:
    parameters = DhalionParameters(scale="off")

    def examined(busy: float, unresolved: Sequence[str]) -> Examination:
        views = [instance_view(busy=busy) for _ in range(4)]
        case = case_of(operator_view("count", views, 0.0), parameters=parameters)
        examination = Examination((ProvisioningPolicy(),), case, ActionLog(), 0, {}, unresolved)
        examination.run()
        return examination

    first = examined(0.1, ())
    assert first.decisions
    assert first.unresolved == ["over_provisioned count"]
    assert examined(0.1, first.unresolved).decisions == []
    between = examined(0.8, first.unresolved)
    assert between.unresolved == []
    assert examined(0.1, between.unresolved).decisions == first.decisions


def test_of_what_failed_before_that_is_said() -> None:
    log = ActionLog(tries={"over_provisioned/count/scale_down.to_3": (1, 1, 1000.0)})
    idle = [instance_view(busy=0.1) for _ in range(4)]
    case = case_of(operator_view("count", idle, 0.0))
    examination = Examination((ProvisioningPolicy(),), case, log, 0)
    examination.run()
    assert examination.unresolved == ["over_provisioned count"]
    assert examination.decisions[-1].sentence.endswith(
        "Nothing is done: what could be done has failed before."
    )


def test_explain_shows_the_chain_from_symptom_to_outcome(tmp_path: Path) -> None:
    """Each entry names those that it follows from, and they are entries, too."""
    scenario = tmp_path / "few.yaml"
    scenario.write_text(TOO_FEW, encoding="utf-8")
    result = simulate(load_scenario(scenario), tmp_path / "run")
    [job] = result.engine.jobs()
    journal = Journal(tmp_path / "run" / FILE)
    entries = explain(journal, job, 100)
    journal.close()
    by_id = {entry["id"]: entry for entry in entries}
    evaluated = next(entry for entry in entries if entry["reason"] == "EVALUATED")
    [action] = [by_id[cause] for cause in evaluated["causes"]]
    [diagnosis] = [by_id[cause] for cause in action["causes"]]
    symptoms = [by_id[cause] for cause in diagnosis["causes"]]
    assert action["reason"] == "SCALE_UP"
    assert diagnosis["reason"] == "DIAGNOSIS_UNDER_PROVISIONED"
    assert "SYMPTOM_BACK_PRESSURE" in {symptom["reason"] for symptom in symptoms}
    assert not any(symptom["causes"] for symptom in symptoms)
    for entry in (evaluated, action, diagnosis):
        assert f"It follows from {' and '.join(entry['causes'])}." in entry["sentences"]
    assert any(sentence.startswith("Done in") for sentence in action["sentences"])
    assert any("scale up for under provisioned helped" in s for s in evaluated["sentences"])
