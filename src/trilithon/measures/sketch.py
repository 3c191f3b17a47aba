"""Owns what latency histograms say: quantiles and shares, of single sketches or merged ones."""

import numpy as np
import numpy.typing as npt

from trilithon.measures.group import ratio, sum_by
from trilithon.model.columns import Floats, Ints
from trilithon.model.sketches import Sketches, bucket_of, summed, value_of


def of_values(values_ms: npt.ArrayLike) -> Sketches:
    """One sketch of some latencies."""
    values = np.asarray(values_ms, float)
    buckets, counts = np.unique(bucket_of(values[~np.isnan(values)]), return_counts=True)
    zeros = np.zeros(len(buckets), np.int64)
    return summed(zeros, buckets, counts.astype(float), np.array([True]))


def merge(sketches: Sketches, group: Ints, groups: int, weight: Floats | None = None) -> Sketches:
    """Sketches of the same group added up, each times its weight.

    Weights shift the balance between the parts, not the number of records. A group with a part that
    was not measured is unknown: its tail might be in that part, unless that part weighs nothing.
    """
    row = sketches.entry_row
    counts, needed = sketches.counts, np.ones(len(sketches), bool)
    if weight is not None:
        needed = weight > 0
        raw = sum_by(group[row], counts, groups)
        counts = counts * weight[row]
        counts = counts * ratio(raw, sum_by(group[row], counts, groups), nothing=0.0)[group[row]]
    unknown = np.bincount(group, weights=needed & ~sketches.known, minlength=groups) > 0
    some = np.bincount(group, minlength=groups) > 0
    return summed(group[row], sketches.buckets, counts, some & ~unknown)


def quantile(sketches: Sketches, q: float) -> Floats:
    """The smallest latency in ms that a share q of the records does not exceed, right within 1 %.

    That is the promise as it is given: p95 ≤ 200 ms means 95 % of the records within 200 ms.
    Missing without latencies.
    """
    rows = len(sketches)
    if not len(sketches.counts):
        return np.full(rows, np.nan)
    running = np.concatenate([[0.0], np.cumsum(sketches.counts)])
    before, total = running[sketches.offsets[:-1]], np.diff(running[sketches.offsets])
    # The first entry of the row up to which that many were counted; sums may be a hair off.
    wanted = before + q * total
    entry = np.searchsorted(running[1:], wanted - 1e-9 * np.maximum(1.0, wanted))
    entry = np.clip(entry, sketches.offsets[:-1], np.maximum(sketches.offsets[1:] - 1, 0))
    entry = np.minimum(entry, len(sketches.counts) - 1)
    return np.where(sketches.known & (total > 0), value_of(sketches.buckets[entry]), np.nan)


def share_below(sketches: Sketches, bound_ms: float) -> Floats:
    """The share of the latencies of each row that are at most `bound_ms`."""
    row = sketches.entry_row
    total = np.bincount(row, weights=sketches.counts, minlength=len(sketches))
    inside = sketches.counts * (sketches.buckets <= bucket_of(bound_ms))
    below = np.bincount(row, weights=inside, minlength=len(sketches))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sketches.known & (total > 0), below / total, np.nan)
