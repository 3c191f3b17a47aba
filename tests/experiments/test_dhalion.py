"""Dhalion's experiments in short: random jobs are diagnosed, and variants can be run."""

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.experiments.sample_runs import sample_run
from trilithon.control.journal.rows import DecisionRow
from trilithon.experiments.dhalion import diagnoses, layered_run, part_versions, spark_health
from trilithon.experiments.dhalion.confusion import NONE
from trilithon.experiments.dhalion.dhalion_paper import PAPER
from trilithon.experiments.dhalion.examined_policy import ExaminedPolicy
from trilithon.experiments.dhalion.findings import BOTH, FINDINGS
from trilithon.experiments.dhalion.measures import (
    AS_PRINTED,
    RIGHT,
    first_diagnosis,
    healthy_after_minutes,
    right_diagnoses,
    wrong_cures,
)
from trilithon.experiments.dhalion.sick_jobs import Ailment, Examined, draw, examine
from trilithon.experiments.dhalion.simulated_health import SimulatedHealth
from trilithon.experiments.paper import PaperPart
from trilithon.experiments.provenance import part_fingerprint
from trilithon.experiments.runner import Runner
from trilithon.experiments.runs import Run, RunAction
from trilithon.experiments.scenario_builder import ScenarioBuilder
from trilithon.experiments.suite import chosen_numbers
from trilithon.model.change import ParallelismChange
from trilithon.model.layout import Layout
from trilithon.model.series import Series
from trilithon.model.snapshot import Snapshot
from trilithon.policies.decision import Decision
from trilithon.policies.dhalion.dhalion_policy import DhalionPolicy
from trilithon.policies.policy import State, Verdict, decision_id
from trilithon.policies.scene import Scene
from trilithon.scenarios.chosen import load_chosen


def test_random_jobs_are_diagnosed_and_an_interrupted_run_goes_on() -> None:
    """Twelve jobs, two of each ailment, with seeds of development."""
    progress: list[str] = []
    first = list(diagnoses.run_diagnoses({}, progress.append, count=8, first_seed=0))[-1]
    both = list(diagnoses.run_diagnoses(first, progress.append, count=12, first_seed=0))[-1]
    assert len(progress) == 12
    assert [each["seed"] for each in both["examined"]] == list(range(12))
    assert both["right"] >= 11 / 12
    assert both["healthy_cured"] == 0
    page = diagnoses.page(both)
    assert "| slow instance |" in page
    # Every two minutes from the fifth on, for an hour, in each of the two.
    assert both["healthy_examinations"] == 2 * 28
    assert "0.0 % of 2 healthy jobs are changed in 56 examinations; the goal is at most 1%." in page
    assert list(diagnoses.run_diagnoses(both, progress.append, count=12, first_seed=0)) == [both]


class ChangesLate(DhalionPolicy):
    """Asks for another instance twenty minutes after the start, whatever the job has."""

    def decide(self, scene: Scene, state: State) -> Verdict:
        verdict = super().decide(scene, state)
        if scene.now_s < 1200:
            return verdict
        (job,) = scene.statuses
        change = ParallelismChange(job, {"count": 12})
        decision = Decision(decision_id(scene, job), job, (change,), "SCALE_UP", "It is late.")
        return replace(verdict, decisions=(decision,))


def test_a_healthy_job_that_is_changed_at_a_later_examination_counts_as_changed() -> None:
    """Healthy jobs were examined once, after five minutes: what came later was not counted."""
    sick = draw(4)
    assert sick.ailment is Ailment.HEALTHY
    examined = examine(sick, acting=ExaminedPolicy(ChangesLate(), sick.job.id))
    assert examined.changed
    assert 1 < examined.examinations < 28
    share = diagnoses.summary([examined, replace(examined, changed=False)])["healthy_cured"]
    assert share == 0.5


def test_the_rows_of_a_confusion_matrix_add_up_to_the_runs() -> None:
    """One of 84 jobs was in no column: it got a diagnosis that has none of its own."""
    kinds = ("none", "under_provisioned", "emission_below_slo", "sources_at_their_limit")
    examined = [
        Examined(seed, "healthy", (), kind, 0.06, changed=False) for seed, kind in enumerate(kinds)
    ]
    simulated = diagnoses.page({"examined": [each.plain() for each in examined]})
    assert "| over provisioned | other | right |" in simulated
    assert "| healthy | 1 | 1 |  |  |  | 2 | 1 of 4 |" in simulated
    runs = [
        spark_health.HealthRun("healthy", number, kind, (), (), 1.0, 1.0)
        for number, kind in enumerate(kinds)
    ]
    on_spark = spark_health.page({"runs": [asdict(run) for run in runs]})
    assert "| over provisioned | other | right |" in on_spark
    assert "| healthy | 1 | 1 |  |  |  | 2 | 1 of 4 | 4 |" in on_spark


def test_every_ailment_is_drawn_with_its_fault() -> None:
    for seed in range(60):
        sick = draw(seed)
        assert sick == draw(seed)
        hot = [o.profile.hot_key for o in sick.job.operators if o.profile and o.profile.hot_key]
        assert bool(sick.slow) == ("slow_instance" in sick.right)
        assert bool(hot) == ("data_skew" in sick.right)
        assert all(1.2 <= fault.factor <= 10 for fault in sick.slow)
        assert all(0.05 <= share <= 0.6 for share in hot)
        assert len(sick.right) == {Ailment.TWO: 2, Ailment.HEALTHY: 0}.get(sick.ailment, 1)


@pytest.mark.parametrize(
    ("right", "diagnosis", "pressed", "correct"),
    [
        (("slow_instance",), "none", 0.01, True),
        (("slow_instance",), "slow_instance", 0.01, False),
        (("slow_instance",), "slow_instance", 0.5, True),
        (("slow_instance", "data_skew"), "data_skew", 0.5, True),
        ((), "none", 0.06, True),
        ((), "under_provisioned", 0.06, False),
        (("over_provisioned",), "none", 0.0, False),
    ],
)
def test_what_counts_as_right(
    right: tuple[str, ...], diagnosis: str, pressed: float, correct: bool
) -> None:
    assert Examined(1, "", right, diagnosis, pressed, changed=False).correct is correct


def test_the_smallest_slow_instance_and_the_largest_skew_are_diagnosed_right_on_heron() -> None:
    experiment = replace(PAPER.by_name["diagnosis"], duration_s=1200.0)
    runner = Runner(ScenarioBuilder(chosen_numbers(PAPER, None), "dhalion"), PAPER.policy)
    names = ("slow-25", "skew-25")
    runs = {
        name: {PAPER.policy.name: runner.run(experiment, experiment.variant(name), PAPER.policy)[0]}
        for name in names
    }
    assert right_diagnoses(runs, PAPER.policy.name) == len(names)


def test_with_dhalion_first_a_job_with_a_hot_word_keeps_the_slots_that_it_has() -> None:
    begun: dict[str, Any] = {layered_run.ALONE: {}}
    done = list(layered_run.run_layered(begun, lambda _: None, duration_s=1500.0))[-1]
    hot = "of the jobs with a hot word"
    alone, layered = done[layered_run.HENGE], done[layered_run.LAYERED]
    assert layered[hot] < alone[hot]
    assert layered["of those that lack instances"] > alone["of those that lack instances"]
    assert layered["satisfaction at the end"] > alone["satisfaction at the end"]
    done.pop(layered_run.ALONE)
    page = layered_run.page(done)
    assert "| satisfaction |" in page
    assert f"jobs with a hot word have {layered[hot] - alone[hot]:+g}, " in page


def test_a_cure_that_does_not_fit_the_ailment_is_wrong() -> None:
    def run(*actions: tuple[float, str]) -> Run:
        done = tuple(RunAction(60 * at, "papers/words", why, True, 0.0) for at, why in actions)
        return sample_run([[1.0, 1.0]], done)

    relieved = run((10, "RELIEVE_INSTANCE"), (20, "SCALE_DOWN"))
    assert wrong_cures("diagnosis", "slow-25", relieved) == 1
    assert wrong_cures("diagnosis", "skew-25", relieved) == 2
    assert wrong_cures("mixed", "slow-25", run((10, "SCALE_UP"), (20, "RELIEVE_INSTANCE"))) == 0
    # The load falls after 10 minutes and rises after 40.
    scaled = run((5, "SCALE_DOWN"), (20, "SCALE_DOWN"), (30, "SCALE_UP"), (50, "SCALE_UP"))
    assert wrong_cures("load-change", "spouts", scaled) == 2


def test_a_run_is_healthy_after_its_last_round_below_the_bound() -> None:
    def after(*shares: float) -> float | None:
        return healthy_after_minutes(sample_run([shares], round_s=60.0))

    assert after(0.5, 1.0, 0.8, 0.995, 1.0) == 3.0
    assert after(1.0, 1.0) == 0.0
    assert after(1.0, 0.9) is None


def test_the_finding_of_the_diagnoses_names_the_wrong_ones_and_their_cures() -> None:
    finding = FINDINGS["diagnosis"]
    actions = (
        RunAction(300, "papers/words", "DIAGNOSIS_SLOW_INSTANCE", False, 0.0),
        RunAction(300, "papers/words", "RELIEVE_INSTANCE", True, 0.0),
    )
    run = sample_run([[0.5, 1.0]], actions, round_s=300.0)
    runs = {name: dict.fromkeys(BOTH, run) for name in RIGHT}
    text = finding.sentence(finding.measure(runs))
    assert "3 of 6 first diagnoses are right, as printed 3." in text
    assert "| slow-25 | slow instance | slow instance | slow instance |" in text
    assert "| skew-25 | data skew | **slow instance** | **slow instance** |" in text
    assert "| slow-25 | Dhalion | 1 | 0 | 5 minutes |" in text
    assert "| skew-25 | as printed | 1 | 1 | 5 minutes |" in text


def test_every_figure_of_table_two_has_a_reason_why_it_may_differ() -> None:
    figures = [figure.name for figure in PAPER.by_name["diagnosis"].figures]
    table_two = {name for name in figures if name.startswith(("rates in B", "back-pressure"))}
    reasons = {figure for experiment, figure in PAPER.reasons if experiment == "diagnosis"}
    void = {figure for experiment, figure in PAPER.void_reasons if experiment == "diagnosis"}
    assert len(table_two) == 12
    assert reasons == table_two
    assert void == {name for name in table_two if "slow" in name}


def test_the_ratio_of_rates_under_skew_is_the_one_that_its_reason_states() -> None:
    """On Heron with the settings as printed, at the first diagnosis."""
    experiment = replace(PAPER.by_name["diagnosis"], duration_s=400.0)
    runner = Runner(ScenarioBuilder(chosen_numbers(PAPER, None), "dhalion"), PAPER.policy)
    (printed,) = (each for each in PAPER.strategies if each.name == AS_PRINTED)
    run, *_ = runner.run(experiment, experiment.variant("skew-25"), printed)
    first = first_diagnosis(run)
    assert first is not None
    assert first.numbers["rate_ratio"] == pytest.approx(1 + 11 * 0.25 / 0.75, rel=0.02)


def test_results_of_an_earlier_version_have_no_tables() -> None:
    assert FINDINGS["load-change"].sentence({"actions": 0, "printed": 10}) == ""


def test_runs_on_spark_go_on_where_they_were_interrupted() -> None:
    begun: list[int] = []

    def run(number: int, _: object) -> list[spark_health.HealthRun]:
        begun.append(number)
        return [
            spark_health.HealthRun(case.name, number, case.right, ("CURE",), (), 0.5, 1.0)
            for case in spark_health.CASES
        ]

    first = next(spark_health.run_health({}, lambda _: None, 2, run))
    done = list(spark_health.run_health(first, lambda _: None, 2, run))[-1]
    assert begun == [0, 1]
    page = spark_health.page(done)
    assert "| slow instance |  |  | 2 |  |  |  | 2 of 2 | 0 | 2 | 2 | 2 | 0 | 0 |" in page
    right = "hot key: 2 of 2 are diagnosed right, the goal is at least 9 of 10: met."
    assert right in page
    assert "healthy: 2 of 2 are changed, the goal is none: missed." in page
    assert "they are at work for 75 % of the time, and 3 would be for 100 %." in page
    assert "is a spare task of the same machine here" in page
    assert all(case.job.instances <= 2 + spark_health.MOST for case in spark_health.CASES)


def test_goals_that_are_missed_are_told() -> None:
    runs = [
        spark_health.HealthRun("healthy", number, diagnosis, actions, (), 0.99, 0.9)
        for number, diagnosis, actions in ((0, "none", ()), (1, "data_skew", ("MOVE_KEYS",)))
    ]
    page = spark_health.page({"runs": [asdict(run) for run in runs]})
    assert "| healthy | 1 |  |  | 1 |  |  | 1 of 2 | 2 | 1 | 0 | 0 | 0 | 0 |" in page
    assert "healthy: 1 of 2 are diagnosed right, the goal is at least 9 of 10: missed." in page
    assert "healthy: 1 of 2 are changed, the goal is none: missed." in page
    assert "hot key: 0 of 0 are diagnosed right, the goal is at least 9 of 10: missed." in page


@pytest.mark.parametrize(
    ("case", "actions", "besides"),
    [
        ("slow instance", ("RELIEVE_INSTANCE", "SCALE_UP"), True),
        ("slow instance", ("RELIEVE_INSTANCE",), False),
        ("hot key", ("MOVE_KEYS", "SCALE_UP"), True),
        ("too few instances", ("SCALE_UP",), False),
    ],
)
def test_instances_that_were_added_to_the_right_cure_are_counted(
    case: str, actions: tuple[str, ...], besides: bool
) -> None:
    run = spark_health.HealthRun(case, 0, "", actions, (), 0.5, 1.0)
    assert spark_health.scaled_up_besides(run) is besides


def test_seeds_of_an_earlier_version_are_not_counted() -> None:
    old = examine(draw(3), None).plain()
    (done,) = diagnoses.run_diagnoses({"examined": [old]}, lambda _: None, count=1, first_seed=4)
    assert [each["seed"] for each in done["examined"]] == [4]


def test_runs_of_an_earlier_version_are_run_again() -> None:
    """They told alerts and changes as one, and did not measure what was read before and after."""
    old = {"case": "healthy", "number": 0, "diagnosis": "none", "actions": [], "healed": False}
    begun: list[int] = []

    def run(number: int, _: object) -> list[spark_health.HealthRun]:
        begun.append(number)
        return []

    list(spark_health.run_health({"runs": [old]}, lambda _: None, 1, run))
    assert begun == [0]
    assert "| healthy |  |  |  |  |  |  | 0 of 0 | 0 |" in spark_health.page({"runs": [old]})


def decision(reason: str, *changes: str) -> DecisionRow:
    granted = [{"change": change} for change in changes]
    named = {"id": reason, "time_s": 1.0, "last_s": 1.0, "reason": reason, "granted": granted}
    return cast("DecisionRow", SimpleNamespace(**named))


def test_alerts_are_no_changes() -> None:
    rows = [
        decision("SYMPTOM_BACK_PRESSURE"),
        decision("DIAGNOSIS_DATA_SKEW"),
        decision("MOVE_KEYS", "key_groups"),
        decision("TELL", "alert"),
    ]
    run = spark_health.health_run("hot key", 0, rows, 0.7, 0.96)
    assert (run.actions, run.alerts) == (("MOVE_KEYS",), ("TELL",))
    assert run.right
    assert run.cured


@pytest.mark.parametrize(
    ("actions", "before", "after", "cured"),
    [
        (("SCALE_UP",), 0.5, 0.95, True),
        (("SCALE_UP",), 0.5, 0.94, False),
        (("SCALE_DOWN",), 0.99, 0.99, False),
        ((), 0.5, 0.99, False),
        (("SCALE_UP",), None, 0.99, False),
        (("SCALE_UP",), 0.5, None, False),
    ],
)
def test_a_cure_counts_if_changes_brought_the_slo_back(
    actions: tuple[str, ...], before: float | None, after: float | None, cured: bool
) -> None:
    run = spark_health.HealthRun("hot key", 0, "data_skew", actions, (), before, after)
    assert run.cured is cured


def decide_nothing(_policy: DhalionPolicy, _scene: Scene, state: State) -> Verdict:
    return Verdict((), {**state, "jobs": {}})


@pytest.mark.parametrize("part", PAPER.pages, ids=lambda part: part.name)
def test_results_of_a_part_are_known_by_what_the_policy_decides_and_by_its_code(
    part: PaperPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of several versions of the policy were counted together after an interruption."""
    chosen = load_chosen()
    before = part_fingerprint(PAPER, part, chosen)
    assert part_fingerprint(PAPER, part, chosen) == before
    with monkeypatch.context() as patch:
        patch.setattr(DhalionPolicy, "decide", decide_nothing)
        assert part_fingerprint(PAPER, part, chosen) != before
    monkeypatch.setattr(part_versions, "code_of", lambda module: f"new code of {module.__name__}")
    assert part_fingerprint(PAPER, part, chosen) != before


@pytest.mark.parametrize("number", ["RATE_PER_S", "BEFORE_S", "END_S", "WARM_S"])
def test_runs_on_spark_of_another_set_up_are_made_by_something_else(
    number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_versions, "simulate_case", lambda _: SimulatedHealth((), ()))
    before = part_versions.spark_health_made_by(load_chosen())
    monkeypatch.setattr(spark_health, number, 2 * getattr(spark_health, number))
    assert part_versions.spark_health_made_by(load_chosen()) != before


def test_the_slow_instance_on_spark_is_a_task_not_a_set_of_keys() -> None:
    (slow,) = (case for case in spark_health.CASES if case.right == "slow_instance")
    (wait,) = (text for text in slow.job.operator("count").work.select if "wait" in text)
    assert "instance_number() = 0" in wait
    assert "word" not in wait


def test_what_is_read_of_what_arrives_decides_whether_a_job_keeps_up() -> None:
    """Of two jobs in a minute: one reads 99 % of what arrives, the other half of it."""
    jobs = {case.name: case.job for case in spark_health.CASES[:2]}
    layout = Layout.build(list(jobs.values()))
    by_id = {job.id: job for job in jobs.values()}

    def snapshot(time_s: float, *taken: float) -> Snapshot:
        empty = Snapshot.empty(time_s, layout, by_id)
        arrived = np.full(2, 100.0 * time_s)
        zero = empty.sources.of_block(np.zeros_like(empty.sources.block))
        return replace(empty, sources=replace(zero, arrived=arrived, taken=np.array(taken)))

    window = Series.of([snapshot(10, 900, 900), snapshot(70, 6840, 3900)]).window(60.0)
    shares = [spark_health.read_share(window, job.id) for job in jobs.values()]
    assert shares == pytest.approx([0.99, 0.5])
    assert spark_health.read_share(window, "no/job") is None
    assert spark_health.read_share(None, "no/job") is None


def test_a_run_waits_for_the_diagnoses_of_the_ill_jobs_only() -> None:
    jobs = {case.name: case.job.id for case in spark_health.CASES}

    def row(case: str, reason: str) -> DecisionRow:
        return cast("DecisionRow", SimpleNamespace(job=jobs[case], reason=reason))

    ill = ["slow instance", "hot key", "too few instances", "too many instances"]
    assert spark_health.undiagnosed([]) == ill
    rows = [row(case, "DIAGNOSIS_DATA_SKEW") for case in ill[1:]]
    assert spark_health.undiagnosed([row(ill[0], "SYMPTOM_BACK_PRESSURE"), *rows]) == ill[:1]
    assert spark_health.undiagnosed([row(ill[0], "DIAGNOSIS_SLOW_INSTANCE"), *rows]) == []


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow
def test_one_short_run_of_each_ailment_on_spark() -> None:
    """How often diagnoses are right is the experiment's figure: on a machine that others slow down
    one may be wrong. But every ill job is diagnosed, if one waits long enough, and the healthy one
    is left alone. A policy that does not see the jobs has one right, that of the healthy.
    """
    runs = spark_health.run_cases(0, lambda _: None, warm_s=20.0, run_s=75.0, patience_s=300.0)
    assert [run.case for run in runs] == [case.name for case in spark_health.CASES]
    *ill, healthy = runs
    assert healthy.case == "healthy"
    assert [run.case for run in ill if run.diagnosis == NONE] == [], runs
    assert sum(run.right for run in runs) >= 4, runs
    assert any(run.actions for run in runs), runs
    assert not healthy.actions, healthy
