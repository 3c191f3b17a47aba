"""Checkpoints in Hadoop's file systems: a job ends and goes on from what it finds there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import until
from tests.engines.spark.flow import Flow, job_named
from trilithon.contract.engine import RestartJob, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.checkpoint import (
    clear_fault,
    delete_checkpoints,
    last_committed,
    read_fault,
    write_fault,
)
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.hadoop_path import CHECKPOINTS, HadoopPath
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import session
from trilithon.model.allocation import initial

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

# Hadoop's own file system of mounts: its paths are not those of the disk below.
MOUNT = "spark.hadoop.fs.viewfs.mounttable.shared.link./jobs"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def spark(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder, jars = tmp_path_factory.mktemp("spark"), fetch_jars(CONNECTOR)
    settings = {MOUNT: f"file://{disk}"}
    with session("local[20]", folder, jars, settings=settings, log_level="OFF") as spark:
        yield spark


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_a_job_goes_on_from_a_checkpoint_in_another_file_system(
    spark: SparkSession, broker: Kafka, disk: Path, tmp_path: Path, scheme: str
) -> None:
    root = {"file": f"file://{disk}/{scheme}", "viewfs": f"viewfs://shared/jobs/{scheme}"}[scheme]
    job = job_named(f"at-{scheme}")
    create_topics(broker, [job])
    spark.conf.set(CHECKPOINTS, root)

    def engine() -> SparkEngine:
        return SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20)

    first = engine()
    flow = Flow(broker, job.name, 100.0)
    try:
        assert first.submit(job, initial(job)).status is Status.DONE
        until(lambda: first.reports() and flow.arrived > 100)
        # Between two batches: the commit is seen in that file system, and nothing is replayed.
        outcome = first.apply(RestartJob("again", job.id))
        assert (outcome.status, outcome.code) == (Status.DONE, "")
        assert first.cancel(job.id, keep=True).status is Status.DONE
        kept = disk / scheme / job.tenant / job.name / "first"
        assert last_committed(kept) is not None
        assert not (tmp_path / "checkpoints").exists()
        second = engine()
        assert second.submit(job, initial(job)).status is Status.DONE
        at = flow.arrived
        until(lambda: second.reports() and flow.arrived > at + 100)
        flow.stop_sending()
        flow.await_all()
        assert flow.doubled == 0
        assert second.cancel(job.id).status is Status.DONE
        assert not kept.parent.exists()
    finally:
        flow.end()
        spark.conf.unset(CHECKPOINTS)


def test_a_path_reads_writes_and_deletes_and_raises_what_files_raise(
    spark: SparkSession, disk: Path
) -> None:
    root = HadoopPath(spark, "viewfs://shared/jobs/paths")
    job = job_named("faulty")
    folder = root / job.tenant / job.name
    assert read_fault(folder, job) == ""
    assert last_committed(folder) is None
    write_fault(folder, job, "Ärger")
    assert read_fault(folder, job) == "Ärger"
    assert [path.name for path in folder.iterdir()] == ["fault.json"]
    assert (disk / "paths" / job.tenant / job.name / "fault.json").is_file()
    clear_fault(folder)
    clear_fault(folder)
    with pytest.raises(FileNotFoundError):
        (folder / "fault.json").unlink(missing_ok=False)
    with pytest.raises(FileNotFoundError):
        (folder / "none").read_text("utf-8")
    for outside in ("..", "../../x", "tenant/..", "tenant", "tenant/a/b"):
        delete_checkpoints(root, outside)
    assert folder.exists()
    delete_checkpoints(root, job.id)
    assert not folder.exists()
    with pytest.raises(OSError, match="nowhere"):
        HadoopPath(spark, "nowhere://host/x")
