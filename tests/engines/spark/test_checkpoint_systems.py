"""Checkpoints in Hadoop's file systems: a job ends and goes on from what it finds there, and its
state is divided there.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines.spark.conftest import Topics, until
from tests.engines.spark.flow import Flow, job_named, read_all
from tests.engines.spark.test_state import COUNTED, KEYS, PARTITIONS, job_with, record
from tests.engines.spark.test_state_limits import Session, fit, real_time_checkpoint
from trilithon.contract.engine import RestartJob, Status
from trilithon.engines.spark.application import create_topics
from trilithon.engines.spark.checkpoint import (
    CHECKPOINTS,
    clear_fault,
    delete_checkpoints,
    last_committed,
    read_fault,
    write_fault,
)
from trilithon.engines.spark.engine import SparkEngine
from trilithon.engines.spark.hadoop_path import HadoopPath
from trilithon.engines.spark.jars import CONNECTOR, fetch_jars
from trilithon.engines.spark.kafka import Kafka
from trilithon.engines.spark.masters import max_tasks
from trilithon.engines.spark.session import session
from trilithon.errors import EngineFailed
from trilithon.model.allocation import initial
from trilithon.model.job import Job, Parallelism

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


def root_in(scheme: str, disk: Path) -> str:
    """A folder of the disk by a file system."""
    return {"file": f"file://{disk}/{scheme}", "viewfs": f"viewfs://shared/jobs/{scheme}"}[scheme]


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_a_job_goes_on_from_a_checkpoint_in_another_file_system(
    spark: SparkSession, broker: Kafka, disk: Path, tmp_path: Path, scheme: str
) -> None:
    job = job_named(f"at-{scheme}")
    create_topics(broker, [job])
    spark.conf.set(CHECKPOINTS, root_in(scheme, disk))

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


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_state_goes_on_and_is_divided_anew_in_another_file_system(
    spark: SparkSession, broker: Kafka, topics: Topics, disk: Path, tmp_path: Path, scheme: str
) -> None:
    job = job_with(f"counted-{scheme}", COUNTED, f"counted-{scheme}-in")
    create_topics(broker, [job])
    spark.conf.set(CHECKPOINTS, root_in(scheme, disk))
    engine = SparkEngine(spark, broker, tmp_path, tasks=lambda: max_tasks(spark), slots=20)
    sent = 0

    def send_more() -> None:
        nonlocal sent
        topics.write(f"counted-{scheme}-in", [record(v) for v in range(sent, sent + 70)])
        sent += 70

    def stop_in_the_middle_of_a_batch() -> None:
        """Behind the engine's back: its records are replayed on the state of the last commit."""
        managed = engine.managed[job.id]
        assert managed.running is not None
        send_more()
        until(lambda: len(ids(broker, job)) >= sent)
        managed.running.query.stop()

    try:
        assert engine.submit(job, initial(job)).status is Status.DONE
        send_more()
        expect_counts(broker, job, sent)
        assert engine.apply(RestartJob("commits", job.id)).status is Status.DONE
        stop_in_the_middle_of_a_batch()
        until(lambda: engine.reports() is not None and runs(engine, job))
        send_more()
        expect_counts(broker, job, sent)
        # Divided with records in the source that are read and not committed.
        stop_in_the_middle_of_a_batch()
        assert engine.cancel(job.id, keep=True).status is Status.DONE
        divided = with_tasks(job, 8)
        outcome = engine.submit(divided, initial(divided))
        assert outcome.status is Status.DONE, outcome
        kept = disk / scheme / job.tenant / job.name
        stores = {path.name for path in (kept / "first" / "state" / "0").iterdir()}
        assert {str(i) for i in range(8)} <= stores
        send_more()
        expect_counts(broker, job, sent)
        # And by a restart of the job that runs.
        outcome = engine.apply(RestartJob("by 3", job.id, with_tasks(job, 3)))
        assert outcome.status is Status.DONE, outcome
        send_more()
        expect_counts(broker, job, sent)
        assert engine.jobs()[job.id].allocation.parallelism["state"] == 3
        assert [path.name for path in kept.iterdir() if path.is_dir()] == ["first"]
        assert not (tmp_path / "checkpoints").exists()
    finally:
        engine.cancel(job.id)
        spark.conf.unset(CHECKPOINTS)


def runs(engine: SparkEngine, job: Job) -> bool:
    running = engine.managed[job.id].running
    return running is not None and running.active


def with_tasks(job: Job, tasks: int) -> Job:
    change, state = job.operators
    assert state.tasks == PARTITIONS
    return replace(
        job, operators=(change, replace(state, parallelism=Parallelism(tasks, 1, tasks)))
    )


def ids(kafka: Kafka, job: Job) -> set[str]:
    return {row.id for row in read_all(kafka, f"{job.name}-out")}


def expect_counts(kafka: Kafka, job: Job, records: int) -> None:
    """Waits until each record has its row, and expects the right counts."""
    until(lambda: len(ids(kafka, job)) >= records)
    last, largest = dict[int, int](), Counter[int]()
    for row in read_all(kafka, f"{job.name}-out"):
        last[row.value["k"]] = row.value["n"]
        largest[row.value["k"]] = max(largest[row.value["k"]], row.value["n"])
    assert last == largest == Counter(v % KEYS for v in range(records))


def data(folder: Path) -> dict[str, str]:
    """The content of the files in a folder, without the checksums that Hadoop keeps beside them."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".crc")
    return {str(file.relative_to(folder)): file.read_text() for file in files}


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
def test_a_repartitioning_that_fails_or_is_interrupted_is_undone_in_another_file_system(
    spark: SparkSession, disk: Path, scheme: str
) -> None:
    local = real_time_checkpoint(disk / scheme / "undone")
    checkpoint = HadoopPath(spark, root_in(scheme, disk)) / "undone" / "first"
    (local / "state/0/_metadata/v2/.0.crc").unlink()
    before = data(local)
    with pytest.raises(EngineFailed, match="into 8 partitions instead of 4"):
        fit(Session(fails=True), checkpoint, 8)
    assert data(local) == before
    assert [folder.name for folder in local.parent.iterdir()] == ["first"]
    local.rename(local.with_name("first.before"))
    (local / "offsets").mkdir(parents=True)
    (local / "offsets" / "1").write_text("half of it")
    fit(Session(), checkpoint, 4)
    assert data(local) == before
    assert [folder.name for folder in local.parent.iterdir()] == ["first"]
    # Hadoop would move a folder into one that is there, and copy it into it.
    other = checkpoint.with_name("other")
    other.mkdir(parents=True, exist_ok=True)
    for change in (checkpoint.rename, checkpoint.copy_tree):
        with pytest.raises(FileExistsError):
            change(other)
    with pytest.raises(OSError, match="none"):
        checkpoint.with_name("none").rename(checkpoint.with_name("there"))
