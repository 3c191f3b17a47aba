"""The policy on simulated jobs: each fault gets its own cure, and what failed is not repeated."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.policies.dhalion.clinic import JOB, Clinic, treated, words
from tests.policies.dhalion.views import case_of, instance_view, operator_view
from trilithon.engines.simulated.character import SPARK_RTM, heron
from trilithon.engines.simulated.faults import SlowInstance
from trilithon.model.change import Alert, ParallelismChange
from trilithon.model.groups import SPREAD
from trilithon.model.intent import Intent, Metric, Threshold
from trilithon.model.job import Bounds, Job
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.dhalion_policy import DhalionPolicy
from trilithon.policies.scene import Cluster, JobStatus, Scene
from trilithon.workloads.shapes import StepChange


def test_a_healthy_job_is_left_alone() -> None:
    """With one instance fewer, either operator would be above the bound."""
    assert treated(words(split=3), 800.0, minutes=30).reasons() == []


def test_too_few_instances_get_more() -> None:
    clinic = treated(words(split=3, count=2), 800.0, minutes=20)
    assert clinic.diagnoses()[0] == "UNDER_PROVISIONED"
    assert clinic.parallelism["count"] >= 4


def test_a_slow_instance_gets_less_and_the_operator_no_more_instances() -> None:
    slow = SlowInstance(0.0, None, JOB, "split", 1, 5.0)
    clinic = treated(words(split=5), 800.0, minutes=30, faults=[slow])
    assert clinic.reasons()[0] == "RELIEVE_INSTANCE"
    assert set(clinic.reasons()) <= {"RELIEVE_INSTANCE", "SCALE_DOWN"}
    assert clinic.reasons().count("RELIEVE_INSTANCE") == 1
    assert clinic.engine.jobs()[JOB].allocation.weights["split"][1] < 0.4


def test_where_a_lower_weight_is_not_enough_its_work_goes_to_a_spare_task() -> None:
    """A hundred times slower, it cannot take what the least weight leaves it."""
    slow = SlowInstance(0.0, None, JOB, "split", 1, 100.0)
    clinic = treated(words(split=5), 800.0, minutes=40, faults=[slow], scale="off")
    assert clinic.reasons() == ["RELIEVE_INSTANCE", "RELIEVE_INSTANCE"]
    allocation = clinic.engine.jobs()[JOB].allocation
    assert allocation.avoided["split"] == (1,)
    assert set(allocation.weights["split"]) == {1.0}
    window = clinic.series.window(300.0)
    assert window is not None
    assert window.sources.taken.sum() / window.span_s > 799


def test_a_slow_instance_of_a_fixed_operator_is_told_and_nothing_is_asked_in_vain() -> None:
    slow = SlowInstance(0.0, None, JOB, "split", 1, 5.0)
    job = replace(words(split=5), bounds=Bounds(fixed=("split",)))
    clinic = treated(job, 800.0, minutes=20, faults=[slow])
    assert clinic.alerts() == {"SLOW_INSTANCE"}
    assert set(clinic.reasons()) == {"TELL"}


def test_a_hot_key_makes_others_move_away() -> None:
    clinic = treated(words(split=3, hot_key=0.2), 800.0, minutes=30)
    assert set(clinic.reasons()) == {"MOVE_KEYS"}
    assert clinic.engine.jobs()[JOB].allocation.groups["count"].count(0) < 200


def test_more_instances_leave_a_hot_key_with_the_few_groups_that_were_left_to_it() -> None:
    """An equal share of groups for each of five instances brought the skew back: it took two more
    moves where one is enough.
    """
    load = StepChange(800.0, 1050.0, 1800.0)
    clinic = treated(words(split=5, hot_key=0.15), load, minutes=80)
    changes = [reason for reason in clinic.reasons() if reason != "SCALE_DOWN"]
    assert changes == ["MOVE_KEYS", "SCALE_UP", "MOVE_KEYS"]
    groups = clinic.engine.jobs()[JOB].allocation.groups["count"]
    assert [groups.count(i) for i in range(5)] == [64, 240, 240, 240, 240]


def test_a_key_that_is_too_much_for_an_instance_is_spread_and_the_sources_are_freed() -> None:
    """Of 800 records/s one key has 400, and an instance can take 250."""
    clinic = treated(words(split=3, count=5, hot_key=0.5), 800.0, minutes=30)
    assert clinic.reasons()[0] == "MOVE_KEYS"
    assert SPREAD in clinic.engine.jobs()[JOB].allocation.groups["count"]
    assert "SCALE_UP" not in clinic.reasons()
    window = clinic.series.window(300.0)
    assert window is not None
    assert window.sources.taken.sum() / window.span_s > 799  # more while the backlog shrinks


def test_instances_that_are_not_needed_are_removed_one_operator_at_a_time() -> None:
    clinic = treated(words(split=8, count=8), 500.0, minutes=40)
    assert set(clinic.reasons()) == {"SCALE_DOWN"}
    for decision in clinic.decisions:
        for change in decision.changes:
            assert isinstance(change, ParallelismChange)
            assert len(change.parallelism) == 1
    assert clinic.parallelism["split"] + clinic.parallelism["count"] < 13


def test_a_decision_names_its_causes_from_symptom_to_outcome() -> None:
    clinic = treated(words(split=3, count=2), 800.0, minutes=20)
    by_id = {decision.id: decision for decision in clinic.decisions}
    evaluated = next(d for d in clinic.decisions if d.reason == "EVALUATED")
    resolution = by_id[evaluated.causes[0]]
    diagnosis = by_id[resolution.causes[0]]
    symptoms = [by_id[cause].reason for cause in diagnosis.causes]
    assert resolution.reason == "SCALE_UP"
    assert diagnosis.reason == "DIAGNOSIS_UNDER_PROVISIONED"
    assert "SYMPTOM_BACK_PRESSURE" in symptoms


def with_slo(job: Job, per_s: float) -> Job:
    return replace(job, intent=Intent((Threshold(Metric.EMISSION, per_s),)))


def test_readers_that_are_the_limit_are_told_and_nothing_is_scaled() -> None:
    """Two readers take 500 records/s each, 1,500 arrive, and the operators have room."""
    slow_readers = replace(SPARK_RTM, reader_s=0.002)
    job = with_slo(words(split=8, count=12), 1400.0)
    clinic = treated(job, 1500.0, minutes=15, character=slow_readers)
    assert set(clinic.reasons()) == {"TELL"}
    assert clinic.alerts() == {"ADD_PARTITIONS"}
    assert clinic.parallelism == {"split": 8, "count": 12}


def raised(again_s: float) -> list[float]:
    """When people were told that no more records arrive, in half an hour."""
    job = with_slo(words(split=2, count=3), 1000.0)
    clinic = treated(job, 400.0, minutes=30, alert_again_s=again_s)
    assert clinic.reasons() == ["TELL"] * len(clinic.reasons())
    return [
        result.time_s
        for result in clinic.results
        if any(isinstance(change, Alert) for change in result.decision.changes)
    ]


def test_an_alert_is_raised_again_after_its_time_only() -> None:
    """The job is examined every two minutes, when it has run for five."""
    assert raised(120.0) == [320.0 + 120.0 * i for i in range(13)]
    assert raised(600.0) == [320.0, 920.0, 1520.0]
    assert raised(86400.0) == [320.0]


@pytest.mark.parametrize(("load", "count"), [(400.0, 3), (600.0, 4), (800.0, 5)])
def test_an_slo_above_what_arrives_is_told_and_nothing_is_scaled(load: float, count: int) -> None:
    """At 800 records/s the first operator is busy for 80 % of the time: it got an instance."""
    job = with_slo(words(split=2, count=count), 1000.0)
    clinic = treated(job, load, minutes=30)
    assert set(clinic.reasons()) == {"TELL"}
    assert clinic.alerts() == {"NOT_ENOUGH_DATA"}
    assert clinic.parallelism == {"split": 2, "count": count}


def lowered(clinic: Clinic, operator: str) -> list[int]:
    """The numbers of instances that an operator was lowered to."""
    return [
        change.parallelism[operator]
        for result in clinic.results
        if result.decision.reason == "SCALE_DOWN" and result.outcomes
        for change in result.decision.changes
        if isinstance(change, ParallelismChange) and operator in change.parallelism
    ]


def by_the_papers_rule(blacklist: str, count: int = 4, minutes: float = 80) -> Clinic:
    return treated(
        words(split=3, count=count),
        900.0,
        minutes=minutes,
        over="pending",
        empty_s=0.1,
        growth="off",
        blacklist=blacklist,
    )


def test_by_the_papers_rule_a_scale_down_that_failed_is_undone_and_not_repeated() -> None:
    clinic = by_the_papers_rule("on")
    assert any("did not help" in decision.sentence for decision in clinic.decisions)
    assert lowered(clinic, "count") == [3, 4]  # undone by a scale-up to 5
    assert clinic.parallelism["count"] == 4


def test_so_is_one_after_two_that_did_no_harm() -> None:
    """All of them counted as one action, which failed once in three times and was repeated."""
    clinic = by_the_papers_rule("on", count=6, minutes=150)
    assert lowered(clinic, "count") == [5, 4, 3, 4]  # undone by a scale-up to 5
    assert clinic.parallelism["count"] == 4
    evaluated = [d.sentence for d in clinic.decisions if d.reason == "EVALUATED"]
    assert "scale down to 3 for over provisioned did not help." in evaluated


def test_without_the_blacklist_it_is_repeated() -> None:
    assert lowered(by_the_papers_rule("off"), "count").count(3) > 1


def test_a_growing_queue_is_cured_before_the_spouts_are_stopped() -> None:
    """Queues of 200,000 records, and 200 too many each second: full after an hour."""
    character = heron(queue=200_000, low_mark=0.5, transit_s=0.01, outage_s=30.0, restart_s=30.0)
    load = StepChange(900.0, 1200.0, 600.0)
    clinic = treated(words(split=4, count=4), load, minutes=30, character=character)
    assert "SYMPTOM_GROWTH" in {decision.reason for decision in clinic.decisions}
    assert clinic.parallelism["count"] > 4
    waits = treated(words(split=4, count=4), load, minutes=30, character=character, growth="off")
    assert waits.parallelism["count"] == 4


def test_the_same_scenes_give_the_same_decisions() -> None:
    first, second = (
        treated(words(split=3, hot_key=0.2), 800.0, minutes=25).decisions for _ in range(2)
    )
    assert first == second


def shown(emission: float, **parameters: Any) -> Mapping[str, Any]:
    """The status of a job in which one action failed always, and another one half of the times."""
    tries = {"data_skew/count/move_keys.9": [2, 1, 900.0], "slow_instance/count/x": [1, 1, 900.0]}
    state = {"jobs": {JOB: {"tries": tries, "emission": emission}}}
    scene = case_of(operator_view("count", [instance_view()])).scene
    job: Mapping[str, Any] = DhalionPolicy(DhalionParameters(**parameters)).status(scene, state)[
        JOB
    ]
    assert job["failures"] == {"data_skew/count/move_keys.9": 1, "slow_instance/count/x": 1}
    return job


def test_the_status_shows_what_is_blacklisted_now() -> None:
    """Not all that ever failed."""
    assert shown(1000.0)["blacklisted"] == ["slow_instance/count/x"]
    assert shown(1000.0, blacklist="off")["blacklisted"] == []
    assert shown(2000.0)["blacklisted"] == []  # another load
    assert len(shown(1000.0, failure_ratio=0.4)["blacklisted"]) == 2


def test_the_load_of_the_last_examination_is_remembered_for_it() -> None:
    clinic = treated(words(split=3), 800.0, minutes=10)
    allocation = clinic.engine.jobs()[JOB].allocation
    status = JobStatus(JOB, "t", allocation, 0.0)
    scene = Scene(1, clinic.series, {JOB: status}, Cluster(clinic.engine.capabilities()))
    state = DhalionPolicy().decide(scene, {}).state
    assert state["jobs"][JOB]["emission"] == pytest.approx(800.0, rel=0.01)
