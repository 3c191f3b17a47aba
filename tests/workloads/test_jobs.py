"""The papers' jobs that ship with the product are good ones, and lines of operators."""

from importlib import resources
from pathlib import Path

import pytest

from trilithon.engines.spark.compiler import plan_chain
from trilithon.spec.job_file import load_job

FOLDER = Path(str(resources.files("trilithon.workloads") / "jobs"))
FILES = sorted(FOLDER.glob("*.yaml"))


def test_the_papers_jobs_are_there() -> None:
    assert {file.stem for file in FILES} >= {
        "linear",
        "pageload",
        "wordcount",
        "processing",
        "primetester",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_job_is_a_good_chain(file: Path) -> None:
    job = load_job(file)
    assert job.name == file.stem
    assert job.intent.thresholds
    for operator in job.operators:
        assert len(job.parents[operator.name]) == 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_job_is_one_that_spark_can_run(file: Path) -> None:
    job = load_job(file)
    chain = plan_chain(job)
    assert chain.names[1:] == tuple(operator.name for operator in job.operators)
    assert chain.tasks_per_stage[1:] == tuple(o.parallelism.max for o in job.operators)
