"""Owns the slope of a quantity over a series: whether a queue grows, and how fast."""

import numpy as np

from trilithon.model.columns import Floats


def slope(times_s: Floats, values: Floats) -> Floats:
    """Least-squares slope per second of each column of `values` (times × things).

    What is missing is left out; with fewer than two times left the slope is missing.
    """
    result = np.full(values.shape[1], np.nan)
    if not len(times_s):
        return result
    gaps = np.isnan(values).any(axis=0)
    result[gaps] = _with_gaps(times_s - times_s[0], values[:, gaps])
    centred = times_s - times_s.mean()
    if (spread := centred @ centred) > 0:
        result[~gaps] = centred @ (values[:, ~gaps] if gaps.any() else values) / spread
    return result


def _with_gaps(times_s: Floats, values: Floats) -> Floats:
    """The same where each column has its own times."""
    present = ~np.isnan(values)
    count = np.maximum(1, present.sum(axis=0))
    time = np.where(present, times_s[:, None], 0.0)
    value = np.where(present, values, 0.0)
    centred = np.where(present, time - time.sum(axis=0) / count, 0.0)
    spread = (centred**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes: Floats = (centred * (value - value.sum(axis=0) / count)).sum(axis=0) / spread
    return np.where(spread > 0, slopes, np.nan)
