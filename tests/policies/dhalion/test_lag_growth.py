"""Growth of the lag on the Spark-like character: behind its gate queues cannot grow."""

from dataclasses import replace

from tests.engines.simulated.worlds import graph, operator
from tests.policies.dhalion.clinic import JOB, treated, words
from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.engines.simulated.character import SPARK_RTM
from trilithon.engines.simulated.faults import SlowInstance
from trilithon.model.change import Alert
from trilithon.policies.dhalion.detectors import GROWTH, GrowthDetector
from trilithon.policies.dhalion.diagnosers import SOURCE_BOUND, UNDER, GrowthDiagnoser
from trilithon.policies.dhalion.health import Diagnosis

# Instances of the first operator that take from the log themselves hold nobody back.
PULLING = replace(SPARK_RTM, pulls=True)


def test_readers_that_cannot_read_all_that_arrives_are_told() -> None:
    """A reader of 9 µs per record is good for 111,000 a second, and 300,000 arrive."""
    cheap = graph("words", [operator("split", 8, service_ms=0.01)], "in>split", "split>out")
    clinic = treated(cheap, 300_000.0, minutes=8)
    assert set(clinic.diagnoses()) == {"SOURCES_AT_THEIR_LIMIT"}
    changes = [change for decision in clinic.decisions for change in decision.changes]
    assert {alert.code for alert in changes if isinstance(alert, Alert)} == {"ADD_PARTITIONS"}
    symptoms = {d.reason for d in clinic.decisions if d.reason.startswith("SYMPTOM_")}
    assert symptoms == {"SYMPTOM_GROWTH"}


def test_a_first_operator_that_is_always_at_work_while_the_lag_grows_gets_more_instances() -> None:
    """Two splitters are good for 1000 records/s, and 1200 arrive."""
    clinic = treated(words(split=2, count=8), 1200.0, minutes=13, character=PULLING)
    assert clinic.diagnoses()[0] == "UNDER_PROVISIONED"
    assert "SYMPTOM_BACK_PRESSURE" not in {decision.reason for decision in clinic.decisions}
    assert clinic.parallelism["split"] == 3
    window = clinic.series.window(100.0)
    assert window is not None
    assert window.sources.taken.sum() >= window.sources.arrived.sum()


def test_without_a_look_at_growth_nothing_is_found() -> None:
    job = words(split=2, count=8)
    clinic = treated(job, 1200.0, minutes=8, character=PULLING, growth="off", full=0.05)
    assert clinic.decisions == []


def test_a_slow_first_instance_takes_less_from_the_log_and_nothing_grows() -> None:
    slow = SlowInstance(0.0, None, JOB, "split", 1, 5.0)
    clinic = treated(words(), 900.0, minutes=12, character=PULLING, faults=[slow])
    assert clinic.decisions == []


def of_lag(*busy: float) -> list[Diagnosis]:
    """A lag that grows by 100 records/s before instances that are at work for such shares."""
    views = [instance_view(busy=each) for each in busy]
    case = case_of(operator_view("count", views, 0.0, at_source=True))
    case = replace(case, view=replace(case.view, lag_growth_per_s=100.0))
    return list(GrowthDiagnoser().diagnose(case, GrowthDetector().detect(case)))


def test_with_one_idle_instance_the_first_operator_has_enough_of_them() -> None:
    """More instances would be idle, too: the readers are the limit."""
    [all_busy] = of_lag(1.0, 1.0, 1.0)
    assert (all_busy.kind, all_busy.operator) == (UNDER, "count")
    assert all_busy.number("lacking") == 0.1
    [one_idle] = of_lag(1.0, 1.0, 0.0)
    assert (one_idle.kind, one_idle.operator) == (SOURCE_BOUND, None)
    assert [symptom.kind for symptom in one_idle.symptoms] == [GROWTH]
