"""Reads Spark's checkpoints: the last committed batch and the sources' offsets at its end.

Spark writes `offsets/N` and `commits/N` for a batch N, and the first offsets of source I to
`sources/I/0`.
"""

import json
from pathlib import Path


def last_committed(checkpoint: Path) -> int | None:
    """The number of the last committed batch; None before the first."""
    folder = checkpoint / "commits"
    batches = [int(file.name) for file in folder.glob("*") if file.name.isdigit()]
    return max(batches, default=None)


def offsets_at(checkpoint: Path, batch: int | None, sources: int) -> list[int] | None:
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


def _sum(text: str) -> int:
    """The sum of the offsets in {"topic": {"partition": offset}}; text before it is skipped."""
    topics = json.loads(text[text.index("{") :])
    return sum(int(offset) for partitions in topics.values() for offset in partitions.values())
