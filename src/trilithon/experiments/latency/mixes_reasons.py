"""Says of the random jobs why goals are missed: which jobs count against them."""

from collections.abc import Sequence

import numpy as np

from trilithon.experiments.latency.catalogue import LATENCY, THRESHOLD
from trilithon.experiments.latency.random_jobs import (
    FEWEST,
    MOST_OF_FEWEST,
    as_good_with_no_more,
    mixes_text,
)
from trilithon.experiments.mixes import MixResult

_SAME = 1e-9


def mixes_with_reasons(mixes: Sequence[MixResult]) -> str:
    """What the random jobs show, and what the jobs that count against a goal have in common."""
    return " ".join((mixes_text(mixes), *_beside_threshold(mixes), *_beside_fewest(mixes)))


def _kept(mix: MixResult, rival: str) -> float:
    """By how much more of the intervals the policy keeps."""
    return mix.satisfaction[LATENCY] - mix.satisfaction[rival]


def _hours(mix: MixResult, rival: str) -> float:
    """The policy's instance-hours, times the rival's."""
    return mix.instance_hours[LATENCY] / mix.instance_hours[rival]


def _points(share: float) -> str:
    return f"{100 * abs(share):.1f} points"


def _beside_threshold(mixes: Sequence[MixResult]) -> list[str]:
    against = [mix for mix in mixes if not as_good_with_no_more(mix, THRESHOLD)]
    if not against:
        return []
    dearer = [mix for mix in against if _kept(mix, THRESHOLD) > _SAME]
    fewer = [m for m in against if _kept(m, THRESHOLD) < -_SAME and _hours(m, THRESHOLD) < 1]
    parts = []
    if dearer:
        parts.append(
            f"in {len(dearer)} the policy keeps more intervals with more instance-hours (in the "
            f"median {_points(np.median([_kept(m, THRESHOLD) for m in dearer]))} more with "
            f"{np.median([_hours(m, THRESHOLD) for m in dearer]) - 1:.0%} more hours)"
        )
    if fewer:
        parts.append(
            f"in {len(fewer)} it keeps fewer with fewer hours (in the median "
            f"{_points(np.median([_kept(m, THRESHOLD) for m in fewer]))} fewer)"
        )
    rest = len(against) - len(dearer) - len(fewer)
    parts.append(f"in {rest} {THRESHOLD} is at least as good in both")
    return [f"Of the {len(against)} jobs that count against the goal, {', '.join(parts)}."]


def _beside_fewest(mixes: Sequence[MixResult]) -> list[str]:
    above = [mix for mix in mixes if _hours(mix, FEWEST) > MOST_OF_FEWEST]
    if not above:
        return []
    more = sum(_kept(mix, FEWEST) > _SAME for mix in above)
    sentence = (
        f"Of the {len(above)} jobs with more than {MOST_OF_FEWEST} times the fewest instance-hours "
        f"({np.median([_hours(mix, FEWEST) for mix in above]):.2f} times in the median), the "
        f"policy keeps more intervals than the fewest instances in {more}, which are sized for "
        "91 % with knowledge of the load."
    )
    return [sentence]
