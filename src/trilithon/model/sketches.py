"""Defines the latency histograms of a snapshot: one per sink, sparse, mergeable without loss.

Buckets grow by a constant ratio, as in DDSketch (Masson, Rim and Lee, VLDB 2019): bucket k holds
the values in (γᵏ⁻¹, γᵏ] milliseconds with γ = (1 + α) / (1 − α), so that every quantile has a
relative error of at most α. Merging adds counts: the result does not depend on the order, so that
decisions from merged latencies are reproducible.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from trilithon.model.columns import Bools, Floats, Ints

ALPHA: Final = 0.01
GAMMA: Final = (1 + ALPHA) / (1 - ALPHA)
LOG_GAMMA: Final = float(np.log(GAMMA))
# Latencies are clipped to a microsecond (clocks do not resolve less) and to twelve days.
SMALLEST_MS: Final = 1e-3
LARGEST_MS: Final = 1e9
# Buckets lie within ±1,100: with this stride, a row and a bucket combine into one sort key.
_STRIDE: Final = 1 << 20


def bucket_of(values_ms: npt.ArrayLike) -> Ints:
    """The bucket of each value. Raises ValueError for a missing value."""
    values = np.asarray(values_ms, float)
    if np.isnan(values).any():
        raise ValueError("a missing latency has no bucket")
    clipped = np.clip(values, SMALLEST_MS, LARGEST_MS)
    buckets: Ints = np.ceil(np.log(clipped) / LOG_GAMMA).astype(np.int64)
    return buckets


def value_of(buckets: npt.ArrayLike) -> Floats:
    """The value that represents a bucket: within a relative error α of every value in it."""
    values: Floats = 2 * np.exp(np.asarray(buckets, float) * LOG_GAMMA) / (GAMMA + 1)
    return values


@dataclass(frozen=True, eq=False)
class Sketches:
    """Histograms as compressed sparse rows: row i has the entries offsets[i] to offsets[i + 1],
    with increasing buckets. `known` is False for rows without measurements; a row that is known
    and empty belongs to a sink that wrote nothing.
    """

    offsets: Ints
    buckets: Ints
    counts: Floats
    known: Bools

    @classmethod
    def missing(cls, rows: int) -> "Sketches":
        return cls(
            offsets=np.zeros(rows + 1, np.int64),
            buckets=np.zeros(0, np.int64),
            counts=np.zeros(0),
            known=np.zeros(rows, bool),
        )

    @classmethod
    def of(cls, rows: Iterable[Mapping[int, float] | None]) -> "Sketches":
        """From a mapping of bucket to count per row; None for rows without measurements."""
        histograms = list(rows)
        known = np.array([row is not None for row in histograms], dtype=bool)
        entries = [
            (i, bucket, count)
            for i, row in enumerate(histograms)
            for bucket, count in (row or {}).items()
        ]
        columns = np.array(entries, dtype=float).reshape(-1, 3)
        if not (columns[:, 2] >= 0).all():
            raise ValueError("a count of a histogram must not be negative")
        return summed(
            columns[:, 0].astype(np.int64), columns[:, 1].astype(np.int64), columns[:, 2], known
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> dict[int, float] | None:
        if not self.known[i]:
            return None
        entries = slice(self.offsets[i], self.offsets[i + 1])
        pairs = zip(self.buckets[entries], self.counts[entries], strict=True)
        return {int(bucket): float(count) for bucket, count in pairs}

    @property
    def entry_row(self) -> Ints:
        """The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, rows: Ints) -> "Sketches":
        """The given rows, in that order; for −1 a row that is not known."""
        sizes = np.where(rows < 0, 0, np.diff(self.offsets)[rows]) if len(self) else 0 * rows
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        # Entry j of new row i is entry j of the old row.
        starts = np.where(rows < 0, 0, self.offsets[:-1][rows]) if len(self) else 0 * rows
        entries = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, sizes)
        known = (
            np.where(rows < 0, False, self.known[rows]) if len(self) else np.zeros(len(rows), bool)
        )
        return Sketches(offsets, self.buckets[entries], self.counts[entries], known)

    def equals(self, other: "Sketches") -> bool:
        return all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("offsets", "buckets", "counts", "known")
        )


def summed(row: Ints, bucket: Ints, count: Floats, known: Bools) -> Sketches:
    """Sketches from unsorted entries: counts of a row and bucket add up, zeros are dropped."""
    return _compressed(*_added(row, bucket, count), known)


def _added(row: Ints, bucket: Ints, count: Floats) -> tuple[Ints, Ints, Floats]:
    key = row * _STRIDE + bucket
    if (np.diff(key) > 0).all():
        return row, bucket, count
    # A stable sort merges runs that are already sorted, which is cheap.
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(key) != 0]))
    first = order[starts]
    return row[first], bucket[first], np.add.reduceat(count[order], starts)


def _compressed(row: Ints, bucket: Ints, count: Floats, known: Bools) -> Sketches:
    keep = (count > 0) & known[row]
    row, bucket, count = row[keep], bucket[keep], count[keep]
    offsets = np.searchsorted(row, np.arange(len(known) + 1)).astype(np.int64)
    return Sketches(offsets, bucket, count, known)


def difference(before: Sketches, after: Sketches, restarted: Bools, unknown: Bools) -> Sketches:
    """The growth of cumulative histograms between two snapshots.

    A row that restarted counts from zero. A row is not known if it was not known before, if it is
    unknown whether it restarted, or if a bucket fell.
    """
    old_row = before.entry_row
    continued = ~restarted[old_row]
    row, bucket, count = _added(
        np.concatenate([after.entry_row, old_row[continued]]),
        np.concatenate([after.buckets, before.buckets[continued]]),
        np.concatenate([after.counts, -before.counts[continued]]),
    )
    fell = np.bincount(row[count < 0], minlength=len(after)) > 0
    known = after.known & (before.known | restarted) & ~unknown & ~fell
    return _compressed(row, bucket, count, known)
