"""A promise on Spark: what counts as kept, when a comparison is void, and a short run."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import broker, spark  # noqa: F401 - fixtures
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.experiments.latency import spark_primetester as promised
from trilithon.experiments.latency.promise_plot import draw_promises
from trilithon.experiments.latency.spark_primetester import (
    COMPUTING,
    INTERVAL_S,
    LATENCY,
    MEAN,
    PEAK,
    PROMISE_MS,
    WAITING,
    Interval,
    LoadPlan,
    PromisedRun,
)
from trilithon.service.system import controlled_system

GOOD = Interval(5.0, 40.0, read=True, instances=3)
LATE = replace(GOOD, mean_ms=PROMISE_MS + 1.0)


def run_of(strategy: str, kept: int, instances: int = 3, turn: int = 0) -> PromisedRun:
    """A run of 100 intervals, of which so many are kept."""
    intervals = (GOOD,) * kept + (LATE,) * (100 - kept)
    sized = tuple(replace(each, instances=instances) for each in intervals)
    return PromisedRun(WAITING, strategy, turn, sized, ((4.0, 5.0), (4.0, 8.0)))


def page_of(*runs: PromisedRun) -> str:
    done: dict[str, list[dict[str, object]]] = {"runs": []}
    by_key = {(each.work, each.strategy, each.turn): each for each in runs}

    def run(work: str, strategy: str, turn: int, _: object) -> PromisedRun:
        return by_key.get((work, strategy, turn)) or replace(runs[0], work=work, strategy=strategy)

    return promised.page(list(promised.run_promises(done, lambda _: None, 1, run))[-1])


@pytest.mark.parametrize(
    ("interval", "kept"),
    [
        (GOOD, True),
        (LATE, False),
        (replace(GOOD, mean_ms=None), False),
        # A promise must not be kept while the backlog grows.
        (replace(GOOD, read=False), False),
    ],
)
def test_what_counts_as_kept(interval: Interval, kept: bool) -> None:
    assert interval.kept is kept


def test_intervals_with_a_boundary_and_after_a_step_can_be_left_out() -> None:
    intervals = (GOOD, replace(LATE, boundary=True), replace(LATE, settling=True), LATE)
    run = PromisedRun(WAITING, LATENCY, 0, intervals)
    assert run.kept() == 1 / 4
    assert run.kept(boundaries=False) == run.kept(settling=False) == 1 / 3
    assert run.kept(boundaries=False, settling=False) == 1 / 2
    assert run.instance_s == 4 * 3 * INTERVAL_S
    assert PromisedRun(WAITING, LATENCY, 0, ()).kept() == 0


def test_fixed_numbers_follow_from_the_load() -> None:
    plan = LoadPlan()
    assert (plan.instances(PEAK), plan.instances(MEAN), plan.instances(LATENCY)) == (5, 3, 1)


def test_two_intervals_after_each_step_settle_and_the_plateau_is_no_step() -> None:
    """Intervals that end with a step were left out, too: three for each step."""
    plan = LoadPlan()
    ends = [INTERVAL_S * i for i in range(1, round(plan.length_s / INTERVAL_S) + 1)]
    settling = [end for end in ends if plan.settles(end)]
    assert settling[:4] == [35.0, 40.0, 65.0, 70.0]
    assert len(settling) == 2 * 12  # six steps up, six down
    assert not any(plan.settles(end) for end in (30.0, 60.0, 215.0, 220.0))


def test_goals_are_judged() -> None:
    text = page_of(run_of(LATENCY, 92), run_of(PEAK, 99, 5), run_of(MEAN, 60))
    assert "90 % of the intervals kept: met (92.0 %)" in text
    assert "95 % without the two after each step: missed (92.0 %)" in text
    assert "at most 75 % of the instance-seconds at the peak: met (60.0 %)" in text
    assert "2 predictions of waiting were checked, each recomputed for the load that came" in text


def test_a_load_that_is_too_easy_makes_the_comparison_void() -> None:
    text = page_of(run_of(LATENCY, 92), run_of(PEAK, 99, 5), run_of(MEAN, 81))
    assert "**Void**" in text
    assert "met (" not in text


def test_the_page_says_what_was_fixed_beforehand() -> None:
    text = page_of(run_of(LATENCY, 92), run_of(PEAK, 99, 5), run_of(MEAN, 60))
    assert "5 for the highest load and 3 for the mean load keep instances at most 85 % busy" in text
    assert "kept more than 80 % of the intervals" in text
    assert "the comparison void. It keeps 60.0 %." in text
    assert f"Spark runs as `{promised.MASTER}` on 2 cores" in text


def test_the_computing_run_is_told_by_its_work_and_its_intervals() -> None:
    late = (replace(GOOD, at_s=5.0), *(replace(LATE, at_s=5.0 * i) for i in (2, 3)))
    most = tuple(replace(LATE, at_s=5.0 * i, instances=promised.MOST) for i in (4, 5))
    text = promised.page({"runs": [asdict(PromisedRun(COMPUTING, LATENCY, 0, (*late, *most), ()))]})
    # 30 records/s of 20 ms times 1 to 7 and back, in 14 steps of 30 s.
    assert "1,008 s of work in 420 s, in which the cores have 840 s" in text
    assert "From 90 s on (120 records/s) more comes than they can do" in text
    # 12, 30, 48, 66, 66, 48, 30 and 12 s are added, and 6, 24 and 42 s made good.
    assert "240 s of work would be left at the end" in text
    assert "From 5 s on records wait to the end" in text
    assert "in all 4 intervals (61 ms in the median)" in text
    assert "The policy gives its maximum of 8 from 20 s on." in text
    assert "No prediction could be checked" in text


def test_the_first_runs_are_drawn_beside_the_page_once_all_strategies_were_run(
    tmp_path: Path,
) -> None:
    runs = [asdict(run_of(strategy, 90)) for strategy in (LATENCY, PEAK, MEAN)]
    draw_promises({"runs": runs[:2]}, tmp_path)
    assert not list(tmp_path.iterdir())
    assert promised.PLOT not in promised.page({"runs": runs[:2]})
    draw_promises({"runs": runs}, tmp_path)
    picture = (tmp_path / promised.PLOT).read_text(encoding="utf-8")
    assert all(f">{text}<" in picture for text in (LATENCY, PEAK, MEAN, "instances"))
    assert f"]({promised.PLOT})" in promised.page({"runs": runs})


def test_runs_go_on_where_they_were_interrupted() -> None:
    begun: list[tuple[str, str, int]] = []

    def run(work: str, strategy: str, turn: int, _: object) -> PromisedRun:
        begun.append((work, strategy, turn))
        return replace(run_of(strategy, 50, turn=turn), work=work)

    first = next(promised.run_promises({}, lambda _: None, 2, run))
    done = list(promised.run_promises(first, lambda _: None, 2, run))[-1]
    assert begun == promised.wanted_runs(2)
    assert begun[:3] == [(WAITING, name, 0) for name in (LATENCY, PEAK, MEAN)]
    assert begun[-1] == (COMPUTING, LATENCY, 0)
    assert [PromisedRun.of(each).turn for each in done["runs"]] == [turn for _, _, turn in begun]


@pytest.mark.spark
@pytest.mark.kafka
def test_on_spark_the_policy_gives_the_plateau_more_instances_and_measures_the_promise(
    spark: SparkSession,  # noqa: F811
    broker: Kafka,  # noqa: F811
    tmp_path: Path,
) -> None:
    plan = LoadPlan(steps=(1, 5, 5, 1), step_s=15.0)
    job = promised.job_of(WAITING, plan.instances(LATENCY))
    create_topics(broker, [job])
    engine = SparkEngine(
        spark, broker, tmp_path / "spark", tasks=lambda: max_tasks(spark), slots=promised.SLOTS
    )
    rules = promised.open_rules()
    with controlled_system(engine, [job], rules, tmp_path, lambda _: None) as system:
        intervals, predictions = promised.observed(system, job, LATENCY, tmp_path, plan, jvm_s=15.0)
        engine.cancel(job.id)
    measured = [each.mean_ms for each in intervals if each.mean_ms is not None]
    assert len(measured) >= len(intervals) / 2
    assert min(measured) > promised.SERVICE_MS
    assert max(each.instances for each in intervals) > intervals[0].instances
    assert predictions
