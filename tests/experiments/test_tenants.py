"""Five tenants, their loads and the result of a run on Spark: all that needs no Spark."""

import importlib.util
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from trilithon.errors import InvalidLoad
from trilithon.experiments import diurnal_loads, sim_vs_spark, spark_diurnal, tenants
from trilithon.experiments.henge.henge_paper import PAPER
from trilithon.experiments.paper import SparkComparison
from trilithon.experiments.spark_results import SparkRunResult, by_policy
from trilithon.experiments.tenants import TenantLoad, UtilitySample
from trilithon.model.mode import Mode
from trilithon.workloads import trace

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "tools" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_five_tenants_have_different_intents_and_every_slot_is_in_use() -> None:
    jobs = tenants.jobs()
    assert len({job.tenant for job in jobs}) == len(jobs) == 5
    assert len({repr(job.intent) for job in jobs}) == 5
    first = sum(o.parallelism.initial for job in jobs for o in job.operators)
    assert tenants.slots() == first
    assert tenants.max_utility() == sum(job.intent.max_utility for job in jobs)
    assert [tenant.name for tenant in tenants.TENANTS if tenant.computes] == ["science"]
    # Who computes does so with an expression that takes CPU, the others with one that waits.
    for tenant in tenants.TENANTS:
        text = repr(tenant.job)
        assert ("work(" in text) is tenant.computes
        assert ("wait(" in text) is not tenant.computes


@pytest.mark.parametrize("policy", ["henge", "threshold"])
def test_rules_of_a_small_machine_are_valid(policy: str) -> None:
    assert PAPER.spark is not None
    rules = tenants.rules(policy, PAPER.spark.parameters[policy], Mode.OFF)
    assert (rules.policy, rules.mode, rules.limits.down_delay_s) == (policy, Mode.OFF, 0.0)


def test_a_job_that_writes_nothing_is_worth_nothing() -> None:
    sample = UtilitySample.of(3.0, [{"utility": 30.0}, {"utility": None}, {}], 60.0)
    assert (sample.utility, sample.satisfaction) == (30.0, 0.5)


def test_load_generators_that_die_are_noticed_and_none_is_left() -> None:
    loads = [TenantLoad(tenants.TENANTS[0], {"rate": 0})]  # which is refused

    def offer() -> None:
        with tenants.load_generators("127.0.0.1:1", loads, 30) as running:
            started.extend(running)
            for process in running:
                assert process.wait(240) != 0

    started: list[Any] = []
    with pytest.raises(InvalidLoad, match="ads"):
        offer()
    assert [process.poll() is None for process in started] == [False]


def test_load_generators_end_with_whoever_asked_for_them() -> None:
    started: list[Any] = []

    def offer() -> None:
        with tenants.load_generators(
            "127.0.0.1:1", [TenantLoad(tenants.TENANTS[0], {})], 30
        ) as running:
            started.extend(running)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        offer()
    assert [process.poll() is None for process in started] == [False]


def test_a_day_of_a_trace_comes_to_each_tenant_in_ten_minutes() -> None:
    loads = spark_diurnal.trace_loads(spark_diurnal.LENGTH_S)
    assert spark_diurnal.LENGTH_S == 600
    assert [load.tenant for load in loads] == list(tenants.TENANTS)
    assert {load.options["period"] for load in loads} == {"25s"}  # an hour of 24
    # An hour is longer than the windows of the policies.
    comparison = PAPER.spark
    assert comparison is not None
    assert all(p["window_s"] < 25 for p in comparison.parameters.values())
    assert {load.options["trace"] for load in loads} == set(trace.names())
    assert all(a.options["trace"] != b.options["trace"] for a, b in pairwise(loads))


def test_at_the_peak_the_jobs_need_more_slots_than_there_are_by_the_rule() -> None:
    rates = diurnal_loads.mean_rates()
    slots = diurnal_loads.scarce_slots()
    assert slots >= tenants.slots()
    assert diurnal_loads.peak_need(rates) / slots == pytest.approx(1.2, abs=0.04)
    for i, tenant in enumerate(tenants.TENANTS):
        values = trace.load(diurnal_loads.trace_of(i))
        peak = rates[tenant.file] * max(values) * len(values) / sum(values)
        slowest = max(diurnal_loads.busy_s(tenant.job).values())
        assert tenant.computes or peak * slowest == pytest.approx(4.0, rel=0.01)
    linear = next(tenant.job for tenant in tenants.TENANTS if tenant.file == "linear")
    assert [diurnal_loads.service_ms(operator) for operator in linear.operators] == [
        2.0,
        2.0,
        2.0,
        0.0,
    ]
    assert diurnal_loads.needed(linear, 1000.0) == 3 * 2 + 1
    assert diurnal_loads.needed(linear, 1.0) == 4
    assert 4 < diurnal_loads.words_per_record() < 12


def test_runs_of_another_set_up_or_engine_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    before = spark_diurnal.comparison_made_by()
    assert spark_diurnal.comparison_made_by() == before
    monkeypatch.setattr(spark_diurnal, "WARM_S", 61.0)
    assert spark_diurnal.comparison_made_by() != before


def test_policies_run_in_turn_and_an_interrupted_comparison_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    def run_policy(policy: str, *_: object) -> SparkRunResult:
        ran.append(policy)
        return SparkRunResult(policy, 0.5 + 0.1 * len(ran), 0.1, 2, {"a/a": 1.0}, [0.5])

    monkeypatch.setattr(spark_diurnal, "run_policy", run_policy)
    comparison = SparkComparison(("henge", "none"), {"henge": {}})
    parts = spark_diurnal.run_comparison(comparison, lambda _: None, "x", runs=2)
    kept = [next(parts), next(parts), next(parts)][-1]
    assert ran == ["henge", "none", "henge"]
    (results,) = spark_diurnal.run_comparison(comparison, lambda _: None, "x", kept, runs=2)
    assert ran == ["henge", "none", "henge", "none"]
    assert [(run.policy, run.turn, run.made_by) for run in results] == [
        ("henge", 0, "x"),
        ("none", 0, "x"),
        ("henge", 1, "x"),
        ("none", 1, "x"),
    ]
    henge, none = by_policy(results)
    assert henge.runs == 2
    shares = [henge.satisfaction, none.satisfaction, henge.least, henge.most]
    assert shares == pytest.approx([0.7, 0.8, 0.6, 0.8])
    assert henge.spread == pytest.approx(0.2)


def test_satisfaction_is_reported_as_a_mean_a_worst_tenth_and_by_job() -> None:
    samples = [
        UtilitySample.of(
            i,
            [
                {"job": "a/a", "utility": 10.0 if i else 0.0, "max_utility": 10.0},
                {"job": "b/b", "utility": None, "max_utility": 30.0},
            ],
            40.0,
        )
        for i in range(10)
    ]
    result = spark_diurnal.spark_run_result("henge", samples, 3, 120.0)
    assert result.satisfaction == pytest.approx(0.225)
    assert result.worst_tenth == pytest.approx(0.225)
    assert result.by_job == {"a/a": pytest.approx(0.9), "b/b": 0.0}
    assert result.to_json()["actions"] == 3
    assert result.by_hour == pytest.approx([0.2, 0.25])


def test_only_the_load_of_one_job_doubles_in_the_demo(demo: ModuleType) -> None:
    loads = {tenant.job.id: demo.load_of(tenant) for tenant in tenants.TENANTS}
    stepped = {name: load for name, load in loads.items() if "shape" in load}
    assert set(stepped) == {demo.DOUBLES}
    (load,) = stepped.values()
    assert load["peak"] == 2 * load["rate"]
    assert load["period"] == f"{demo.WARM_S + demo.CALM_S}s"
    assert "usual" in demo.note(demo.WARM_S)
    assert "twice" in demo.note(demo.WARM_S + demo.CALM_S)


def test_the_demo_ends_with_utility_before_during_and_after(demo: ModuleType) -> None:
    def job(utility: float, instances: int) -> dict[str, Any]:
        operators = [{"operator": "o", "instances": instances, "parallelism": instances}]
        return {"job": "ads/x", "utility": utility, "max_utility": 35.0, "operators": operators}

    console = Console(record=True, width=120)
    phases = {"before": (job(35.0, 2),), "at worst": (job(3.5, 2),), "at the end": (job(34.0, 4),)}
    demo.summarise(console, phases, off=False)
    text = console.export_text()
    row = next(line for line in text.splitlines() if "ads/x" in line)
    assert row.split()[1:5] == ["35", "35", "3.50", "34"]
    assert "2 → 4" in row
    assert "Nobody acted" not in text


def test_the_runs_that_the_simulated_cluster_is_held_against_are_of_three_jobs() -> None:
    jobs = [sim_vs_spark.job_of(case) for case in sim_vs_spark.CASES]
    assert len({job.id for job in jobs}) == 3
    for case, job in zip(sim_vs_spark.CASES, jobs, strict=True):
        assert job.operator(case.operator).parallelism.initial == 1
        assert job.operator(case.operator).parallelism.max >= case.instances > 1
        assert all(operator.profile is None for operator in job.operators)  # nothing is known of it
    # One step is more than an instance can do, and the parts that are compared are the others.
    assert sum(share > 1 for share in sim_vs_spark.STEPS) == 1
    assert len(sim_vs_spark.PARTS) == len(sim_vs_spark.STEPS) - 1
    assert all(part.from_s < part.to_s for part in sim_vs_spark.PARTS)
