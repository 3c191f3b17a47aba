"""The jobs that ship with the product are good ones, and Spark can run them."""

from importlib import resources
from pathlib import Path

import pytest

from trilithon.cli.job_files import jobs_in
from trilithon.engines.spark.compiler import check_supported, plan_chain
from trilithon.engines.spark.cuts import cut_into_parts, part_job
from trilithon.model.job import Job
from trilithon.spec.job_file import load_job
from trilithon.workloads.paper_jobs import load_topology

FOLDER = Path(str(resources.files("trilithon.workloads") / "jobs"))
FILES = sorted([*FOLDER.glob("*.yaml"), *FOLDER.glob("*.py")])
NEXMARK = {f"nexmark-q{number}" for number in (1, 2, 12, 13, 14, 17, 21, 22)}


def load(file: Path) -> Job:
    (loaded,) = jobs_in(file)
    return loaded.job


def test_the_papers_and_the_benchmarks_jobs_are_there() -> None:
    assert {load(file).name for file in FILES} >= NEXMARK | {
        "ysb",
        "linear",
        "pageload",
        "wordcount",
        "processing",
        "primetester",
        "diamond",
        "star",
        "network",
        "twittersentiment",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_job_has_its_name_and_an_intent(file: Path) -> None:
    job = load(file)
    assert job.name == file.stem.replace("_", "-")
    assert job.intent.thresholds


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_job_is_one_that_spark_can_run(file: Path) -> None:
    job = load(file)
    check_supported(job)
    graph = cut_into_parts(job)
    chains = [plan_chain(part_job(graph, p, lambda c: c.name, {})) for p in graph.parts]
    if len(chains) == 1:
        chains = [plan_chain(job)]
    stages = {stage.name: stage.tasks for chain in chains for stage in chain.stages[1:]}
    assert stages == {o.name: o.tasks for o in job.operators}
    assert sum(sum(chain.tasks_per_stage) for chain in chains) == graph.tasks


@pytest.mark.parametrize("name", ["diamond", "star", "network", "twittersentiment"])
def test_a_graph_on_spark_has_the_papers_edges(name: str) -> None:
    job, paper = load_job(FOLDER / f"{name}.yaml"), load_topology(name)
    assert {edge.name for edge in job.edges} == {edge.name for edge in paper.edges}
