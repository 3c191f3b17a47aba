"""Scaling on Spark, without Spark: the jobs, turns that go on after an interruption, the page."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from tests.experiments.stela.test_live_scaling import PaperCluster
from trilithon.engines.spark.cuts import cut_into_parts
from trilithon.experiments.stela import spark_scaling
from trilithon.experiments.stela.live_scaling import LiveTurn, turn_keys
from trilithon.experiments.stela.spark_cluster import (
    DIAMOND,
    INSTANCES,
    JOBS,
    LINEAR,
    MOST,
    SLOTS,
    STAR,
    WAIT_MS,
    WORKERS,
    ScalingJob,
    cores_per_worker,
)

GAINS = {"stela": 10, "round_robin": 5, "default": 0}


@pytest.mark.parametrize("case", JOBS.values(), ids=JOBS)
def test_one_operator_of_a_job_is_its_bottleneck(case: ScalingJob) -> None:
    job = case.job(f"{case.name}-7")
    waits = {o.name: o for o in job.operators if f"wait({WAIT_MS})" in " ".join(o.work.select)}
    assert set(waits) == {case.bottleneck}
    assert all(
        (o.parallelism.initial, o.parallelism.max) == (INSTANCES, MOST) for o in job.operators
    )
    # Topics of its own, read from the start.
    assert all(t.startswith(f"{case.name}-7-") for s in job.sources for t in s.topics)
    assert all(dict(s.options)["startingOffsets"] == "earliest" for s in job.sources)
    # The workers of the start have a task for each of its own, and slots for what is given.
    assert cut_into_parts(job).tasks <= WORKERS * cores_per_worker()
    assert job.instances + job.instances / WORKERS <= SLOTS


def test_a_record_arrives_once_in_every_branch() -> None:
    assert [STAR.branches(n) for n in (0, 1)] == [("out1", "out2"), ("out2",)]
    assert (STAR.copies, DIAMOND.copies, LINEAR.copies) == (1.5, 3, 1)


class PaperClusters:
    """Clusters that exist on paper."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []

    @contextmanager
    def __call__(self, _tell: Callable[[str], None]) -> Iterator["PaperClusters"]:
        yield self

    @contextmanager
    def start(self, job: str, strategy: str) -> Iterator[PaperCluster]:
        self.begun.append((job, strategy))
        yield PaperCluster(GAINS[strategy], gap_s=0.5, lost=0, doubled=1)


def test_turns_go_on_where_they_were_interrupted() -> None:
    clusters, lines = PaperClusters(), list[str]()
    first = next(spark_scaling.run_scaling({}, lines.append, 2, clusters))
    *_, done = spark_scaling.run_scaling(first, lines.append, 2, clusters)
    assert [(job, strategy) for _, job, strategy in turn_keys(list(JOBS), 2)] == clusters.begun
    assert [LiveTurn(**each).key for each in done["turns"]] == turn_keys(list(JOBS), 2)
    assert lines[0].startswith("star, Stela, turn 1 of 2: 10 → 20 → 10/s, gaps 0.5")
    # What is done is not run again, and needs no cluster.
    again = list(spark_scaling.run_scaling(done, lines.append, 2, clusters))
    assert again == [done]
    assert len(clusters.begun) == len(done["turns"])


def test_the_page_has_medians_and_goals() -> None:
    *_, done = spark_scaling.run_scaling({}, lambda _: None, 3, PaperClusters())
    done["turns"][0]["lost"] = 2
    text = spark_scaling.page(done)
    assert "| diamond | Stela | 3 | 10 (10 to 10) | 20 (20 to 20) |" in text
    assert "| diamond | round robin | 3 | 10 (10 to 10) | 15 (15 to 15) |" in text
    assert "- gap at most 1.5 s: met" in text
    assert "- nothing lost: missed" in text
    assert "- above the fair rival in 2 jobs: met" in text


def test_goals_are_not_judged_before_all_were_run() -> None:
    first = next(spark_scaling.run_scaling({}, lambda _: None, 3, PaperClusters()))
    text = spark_scaling.page(first)
    assert "Not all jobs were run yet" in text
    assert "met" not in text
    assert asdict(LiveTurn(**first["turns"][0])) == first["turns"][0]
