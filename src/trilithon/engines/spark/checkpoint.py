"""Reads Spark's checkpoints: the last committed batch and the sources' offsets at its end.

Spark writes `offsets/N` and `commits/N` for a batch N, and the first offsets of source I to
`sources/I/0`.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from trilithon.engines.spark.file_path import CheckpointPath, FilePath, LocalPath
from trilithon.engines.spark.hadoop_path import HadoopPath
from trilithon.model.job import Job

# Spark's setting for the checkpoints of all queries: a URI of one of Hadoop's file systems.
CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
_FAULT: Final = "fault.json"


def checkpoint_root(spark: SparkSession, folder: Path) -> CheckpointPath:
    """Where checkpoints are: in the engine's folder, or in the file system that Spark's own setting
    names.
    """
    uri = spark.conf.get(CHECKPOINTS, "")
    return HadoopPath(spark, uri) if uri else LocalPath(folder / "checkpoints")


def last_committed(checkpoint: FilePath) -> int | None:
    """The number of the last committed batch; None before the first."""
    return max(_numbers(_files(checkpoint / "commits")), default=None)


def clear_leftovers(checkpoint: FilePath) -> None:
    """Deletes what a batch left that could not write its offsets: on a full disk, or in a JVM that
    was ending. Spark writes them in the background, and then the commit, even if they failed. It
    would refuse to begin, since both folders must be empty before batch 0, or run the batch before
    again and fail because it is there. A commit without its offsets stands for nothing: the batch
    comes again.
    """
    offsets, commits = _files(checkpoint / "offsets"), _files(checkpoint / "commits")
    lacking = max(_numbers(offsets), default=-1) + 1
    if lacking == 0 and _numbers(commits) <= {0}:
        left = [*offsets, *commits]
    else:
        left = [file for file in commits if file.name in {f"{lacking}", f".{lacking}.crc"}]
    for file in left:
        file.unlink(missing_ok=True)


def offsets_at(checkpoint: FilePath, batch: int | None, sources: int) -> list[int] | None:
    """The offset of each source at the end of a batch, or its first one: the sum over its
    partitions. None if the files are missing or unreadable.
    """
    try:
        if batch is None:
            texts = [
                (checkpoint / "sources" / str(i) / "0").read_text("utf-8") for i in range(sources)
            ]
        else:
            # A line with the version, one about the batch, then one per source.
            texts = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()[2:]
        return [_sum(text) for text in texts[:sources]] if len(texts) >= sources else None
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def partition_offsets(checkpoint: FilePath, batch: int, sources: int) -> dict[tuple[str, int], int]:
    """The offset of each partition at the end of a batch; empty if the file is unreadable."""
    offsets: dict[tuple[str, int], int] = {}
    try:
        for text in (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()[2:]:
            for topic, partitions in _topics(text).items() if sources else ():
                offsets |= {(topic, int(number)): int(at) for number, at in partitions.items()}
            sources -= 1
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
    return offsets


def is_committed(checkpoint: FilePath, batch: int) -> bool:
    """Whether a batch is committed: Spark's last step is to rename a file to this name. Without its
    offsets a commit stands for nothing.
    """
    name = str(batch)
    return (checkpoint / "commits" / name).exists() and (checkpoint / "offsets" / name).exists()


def delete_checkpoints(root: CheckpointPath, job: str, only: str = "") -> None:
    """Deletes all checkpoints of a job, or only one of them. The name comes from a caller: nothing
    outside of the root is ever deleted.
    """
    tenant, _, name = job.partition("/")
    if any(part in {"", ".", ".."} or "/" in part for part in (tenant, name)):
        return
    folder = root / tenant / name
    if root.holds(folder):
        (folder / only if only else folder).delete_tree()


def write_fault(folder: FilePath, job: Job, reason: str) -> None:
    """Remembers beside a job's checkpoints why this version of it was stopped for good."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"version": _fingerprint(job), "reason": reason}
    (folder / _FAULT).write_text(json.dumps(data), "utf-8")


def read_fault(folder: FilePath, job: Job) -> str:
    """Why this version of the job was stopped for good; empty if it was not."""
    try:
        data = json.loads((folder / _FAULT).read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    return str(data["reason"]) if data.get("version") == _fingerprint(job) else ""


def clear_fault(folder: FilePath) -> None:
    (folder / _FAULT).unlink(missing_ok=True)


def _files(folder: FilePath) -> list[FilePath]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _numbers(files: Iterable[FilePath]) -> set[int]:
    return {int(file.name) for file in files if file.name.isdigit()}


def _fingerprint(job: Job) -> str:
    return hashlib.sha256(repr(job).encode()).hexdigest()


def _sum(text: str) -> int:
    topics = _topics(text)
    return sum(int(offset) for partitions in topics.values() for offset in partitions.values())


def _topics(text: str) -> dict[str, dict[str, int]]:
    """The offsets in {"topic": {"partition": offset}}; text before it is skipped."""
    topics: dict[str, dict[str, int]] = json.loads(text[text.index("{") :])
    return topics
