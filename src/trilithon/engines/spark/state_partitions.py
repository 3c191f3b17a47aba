"""Owns the number of partitions of a query's state.

Spark takes it from a setting of the session at the first start and writes it to the checkpoint.
Later starts use the number in the checkpoint, whatever the setting says. Where a version of a job
needs another number, the state in its checkpoint is divided anew before the start, while nothing
runs on it. A version that keeps another state needs a checkpoint of its own.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from trilithon import logs
from trilithon.engines.spark.file_path import CheckpointPath, FilePath, files_below
from trilithon.errors import EngineFailed, NeedsNewCheckpoint
from trilithon.model.job import Job, Operator, Work

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
# Spark's repartitioning takes the format of state from a setting whose default is 1; real-time mode
# writes 2 whatever it says.
_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_REAL_TIME_FORMAT: Final = "2"
# Real-time mode's aggregation, and that of micro-batches. Both keep the same state, but Spark's
# repartitioning knows only the second name.
_REAL_TIME_NAME: Final = "StatefulStreamlineAggregate"
_KNOWN_NAME: Final = "stateStoreSave"
# A query copies the session's settings when it is started: one start at a time may change them.
_lock = threading.Lock()
_log = logs.logger()


@contextmanager
def state_partitions(spark: SparkSession, operators: Iterable[Operator]) -> Iterator[None]:
    """Queries that are started inside divide their state as these operators need it."""
    if (tasks := _tasks(operators)) is None:
        yield
        return
    with _setting(spark, _PARTITIONS, str(tasks)):
        yield


def fit_state(
    spark: SparkSession, checkpoint: CheckpointPath, operators: Iterable[Operator]
) -> None:
    """Divides the state in a checkpoint anew if these operators need another number of partitions.
    No query may run on it.
    """
    if (tasks := _tasks(operators)) is None:
        return
    _undo_unfinished(checkpoint)
    before = _partitions(checkpoint)
    if before is not None and before != tasks:
        _divide(spark, checkpoint, before, tasks)


def _divide(spark: SparkSession, checkpoint: CheckpointPath, before: int, tasks: int) -> None:
    """A copy of the checkpoint is kept until it is done."""
    copy, partial = _copy_of(checkpoint), _partial_copy_of(checkpoint)
    checkpoint.copy_tree(partial)
    partial.rename(copy)
    manager: Any = spark._streamingCheckpointManager  # noqa: SLF001 - Spark has no public one yet
    try:
        _give_known_name(checkpoint)
        with _setting(spark, _FORMAT, _REAL_TIME_FORMAT):
            # Batches without a commit are skipped, and their records read again.
            manager.repartition(str(checkpoint), tasks, False)
    except Exception as error:
        _restore(checkpoint, copy)
        raise EngineFailed(
            f"The state in {checkpoint} could not be divided into {tasks} partitions instead of "
            f"{before}: {str(error).splitlines()[0]}",
            "Keep its number of instances, or apply it with --anew: it then starts without state.",
        ) from error
    # By its name at once: half a copy must never be put back.
    copy.rename(partial)
    partial.delete_tree()
    _log.info("state_divided", checkpoint=str(checkpoint), before=before, after=tasks)


def check_same_state(before: Job, after: Job) -> None:
    """Raises `NeedsNewCheckpoint` if a version of a job cannot go on with the state of the one
    before it.
    """
    old, new = _states(before), _states(after)
    if old == new:
        return
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    raise NeedsNewCheckpoint(
        f"{after.id} keeps another state than before in {', '.join(changed)}: other keys, windows "
        "or values. Its checkpoint does not fit.",
        "Apply it with --anew: it then starts without state.",
    )


def _states(job: Job) -> dict[str, tuple[int, Work]]:
    """Per stateful operator its place among those of the job, by which Spark finds its state, and
    what the state holds.
    """
    stateful = (operator for operator in job.operators if operator.work.stateful)
    return {operator.name: (place, operator.work) for place, operator in enumerate(stateful)}


def _tasks(operators: Iterable[Operator]) -> int | None:
    """The partitions that the state of a query needs; None if it keeps none."""
    return next((operator.tasks for operator in operators if operator.work.stateful), None)


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    with _lock:
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            yield
        finally:
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def _partitions(checkpoint: FilePath) -> int | None:
    """The partitions of the state in a checkpoint, by its last batch; None without state."""
    try:
        files = list((checkpoint / "offsets").iterdir())
    except FileNotFoundError:
        return None
    batches = [int(file.name) for file in files if file.name.isdigit()]
    if not batches or not (checkpoint / "state").exists():
        return None
    # A line with the version, then one about the batch.
    text = (checkpoint / "offsets" / str(max(batches))).read_text("utf-8").splitlines()[1]
    partitions = json.loads(text).get("conf", {}).get(_PARTITIONS)
    return None if partitions is None else int(partitions)


def _give_known_name(checkpoint: FilePath) -> None:
    for operator in (checkpoint / "state").iterdir():
        for file in files_below(operator / "_metadata"):
            if file.name.startswith("."):
                continue
            if _REAL_TIME_NAME in (text := file.read_text("utf-8")):
                file.write_text(text.replace(_REAL_TIME_NAME, _KNOWN_NAME), "utf-8")
                # The checksum that Hadoop's local file system keeps beside a file.
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _copy_of(checkpoint: CheckpointPath) -> CheckpointPath:
    return checkpoint.with_name(f"{checkpoint.name}.before")


def _partial_copy_of(checkpoint: CheckpointPath) -> CheckpointPath:
    """A copy that is being made or deleted."""
    return checkpoint.with_name(f"{checkpoint.name}.copying")


def _undo_unfinished(checkpoint: CheckpointPath) -> None:
    """A division that was interrupted left its copy."""
    _partial_copy_of(checkpoint).delete_tree()
    if (copy := _copy_of(checkpoint)).exists():
        _restore(checkpoint, copy)


def _restore(checkpoint: CheckpointPath, copy: CheckpointPath) -> None:
    """Puts the copy back. If this is interrupted the copy is still there, or back in its place."""
    checkpoint.delete_tree()
    copy.rename(checkpoint)
