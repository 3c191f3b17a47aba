"""Owns what a checkpoint says: which batch was committed last, and how far the sources were read by then.

Spark writes `offsets/N` and `commits/N` for a batch N, and `sources/I/0` with where a source began.
"""

import json
from pathlib import Path


def last_committed(checkpoint: Path) -> int | None:
    """The number of the last batch that need not be done again; None before the first."""
    folder = checkpoint / "commits"
    found = [int(file.name) for file in folder.glob("*") if file.name.isdigit()]
    return max(found, default=None)


def read_until(checkpoint: Path, batch: int | None, sources: int) -> list[int] | None:
    """Up to where each source was read when a batch ended, or where it began: the sum over its
    partitions. None if the files do not say.
    """
    try:
        if batch is None:
            texts = [
                (checkpoint / "sources" / str(i) / "0").read_text("utf-8") for i in range(sources)
            ]
        else:
            # A version, a line about the batch, then a line per source.
            texts = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()[2:]
        return [_sum(text) for text in texts[:sources]] if len(texts) >= sources else None
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _sum(text: str) -> int:
    """Of {"topic": {"partition": offset}}, with what may stand before it."""
    topics = json.loads(text[text.index("{") :])
    return sum(int(offset) for partitions in topics.values() for offset in partitions.values())
