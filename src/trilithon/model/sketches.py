"""Owns the latency histograms of a snapshot: one row per sink, sparse, mergeable without loss.

Buckets grow by a constant ratio, as in DDSketch (Masson, Rim and Lee, VLDB 2019): bucket k holds
the values in (γᵏ⁻¹, γᵏ] milliseconds with γ = (1 + α) / (1 − α), so that every quantile is right
within a share α of itself. Merging adds counts: the result does not depend on the order, which is
what makes decisions from merged latencies repeatable.
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
# A latency below a microsecond is one of a microsecond: clocks do not tell them apart.
SMALLEST_MS: Final = 1e-3
# One above twelve days is one of twelve days.
LARGEST_MS: Final = 1e9
# Buckets lie within ±1,100: with this stride, row and bucket make one number to sort by.
_STRIDE: Final = 1 << 20


def bucket_of(values_ms: npt.ArrayLike) -> Ints:
    """The bucket of each value. A value that is missing has none: ValueError."""
    values = np.asarray(values_ms, float)
    if np.isnan(values).any():
        raise ValueError("a missing latency has no bucket")
    clipped = np.clip(values, SMALLEST_MS, LARGEST_MS)
    buckets: Ints = np.ceil(np.log(clipped) / LOG_GAMMA).astype(np.int64)
    return buckets


def value_of(buckets: npt.ArrayLike) -> Floats:
    """The value that stands for a bucket: within α of every value in it."""
    values: Floats = 2 * np.exp(np.asarray(buckets, float) * LOG_GAMMA) / (GAMMA + 1)
    return values


@dataclass(frozen=True, eq=False)
class Sketches:
    """Histograms in compressed rows: row i has the entries offsets[i] to offsets[i + 1], with
    rising buckets. `known` tells a sink that wrote nothing from one that nobody measured.
    """

    offsets: Ints
    buckets: Ints
    counts: Floats
    known: Bools

    @classmethod
    def missing(cls, rows: int) -> "Sketches":
        nothing = np.zeros(0)
        return cls(
            np.zeros(rows + 1, np.int64), nothing.astype(np.int64), nothing, np.zeros(rows, bool)
        )

    @classmethod
    def of(cls, rows: Iterable[Mapping[int, float] | None]) -> "Sketches":
        """From a mapping of bucket to count per row; None where nobody measured."""
        listed = list(rows)
        known = np.array([row is not None for row in listed], dtype=bool)
        entries = [
            (i, bucket, count)
            for i, row in enumerate(listed)
            for bucket, count in (row or {}).items()
        ]
        columns = np.array(entries, dtype=float).reshape(-1, 3)
        if not (columns[:, 2] >= 0).all():
            raise ValueError("a histogram counts from 0 upwards")
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
        """Other rows of the same sketches; a row of −1 is missing."""
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
    """Sketches from loose entries: those of one row and bucket are added, empty ones dropped."""
    return _compressed(*_added(row, bucket, count), known)


def _added(row: Ints, bucket: Ints, count: Floats) -> tuple[Ints, Ints, Floats]:
    key = row * _STRIDE + bucket
    if (np.diff(key) > 0).all():
        return row, bucket, count
    # Stable: entries come in runs that are sorted already, and merging those is cheap.
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


def difference(before: Sketches, after: Sketches, anew: Bools, broken: Bools) -> Sketches:
    """What came in between two states of the same cumulative histograms.

    Rows that began anew count from zero. Not known is a row that was not known before, one of which
    it cannot be told whether it began anew, and one in which a bucket fell.
    """
    old = before.entry_row
    kept = ~anew[old]
    row, bucket, count = _added(
        np.concatenate([after.entry_row, old[kept]]),
        np.concatenate([after.buckets, before.buckets[kept]]),
        np.concatenate([after.counts, -before.counts[kept]]),
    )
    fell = np.bincount(row[count < 0], minlength=len(after)) > 0
    known = after.known & (before.known | anew) & ~broken & ~fell
    return _compressed(row, bucket, count, known)
