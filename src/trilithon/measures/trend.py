"""Owns the slope of a quantity over a series: whether a queue grows, and how fast."""

import numpy as np

from trilithon.model.columns import Floats


def slope(times_s: Floats, values: Floats) -> Floats:
    """Least-squares slope per second of each column of `values` (times × things).

    What is missing is left out; with fewer than two times left the slope is missing.
    """
    if not len(times_s):
        return np.full(values.shape[1], np.nan)
    present = ~np.isnan(values)
    count = present.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        time = np.where(present, times_s[:, None] - times_s[0], 0.0)
        value = np.where(present, values, 0.0)
        mean_time = time.sum(axis=0) / count
        mean_value = value.sum(axis=0) / count
        centred = np.where(present, time - mean_time, 0.0)
        spread = (centred**2).sum(axis=0)
        result: Floats = (centred * (value - mean_value)).sum(axis=0) / spread
    return np.where((count >= 2) & (spread > 0), result, np.nan)
