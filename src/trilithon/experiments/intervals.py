"""Computes the mean of a few runs with different seeds, and how far it may be off."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import stats

CONFIDENCE: Final = 0.95


def half_width(values: Sequence[float]) -> float | None:
    """Half of the interval of Student's t around the mean; None for a single value."""
    if len(values) < 2:
        return None
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * np.std(values, ddof=1) / math.sqrt(len(values)))
