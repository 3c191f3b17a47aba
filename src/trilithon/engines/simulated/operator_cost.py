"""Owns what an operator costs in a simulated run: from its profile, from what its
expressions say, or as assumed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trilithon.engines.simulated.world_tables import (
    DETERMINISTIC,
    EXPONENTIAL,
    GAMMA,
    LOGNORMAL,
    Floats,
)
from trilithon.model.groups import KEY_GROUPS, SPREAD
from trilithon.model.job import Operator
from trilithon.model.profile import Distribution, Profile

_SHAPES: Final = {
    Distribution.DETERMINISTIC: DETERMINISTIC,
    Distribution.EXPONENTIAL: EXPONENTIAL,
    Distribution.GAMMA: GAMMA,
    Distribution.LOGNORMAL: LOGNORMAL,
}
# `wait(5)` waits and `work(5)` computes for five milliseconds, on Spark as here.
_SPELLED: Final = re.compile(r"\b(wait|work)\(\s*([0-9]+(?:\.[0-9]+)?)\s*\)")


@dataclass(frozen=True, slots=True)
class Assumed:
    """The costs to assume where neither a profile nor an expression declares them."""

    service_ms: float
    service_cv: float
    distribution: Distribution
    cpu_share: float
    selectivity: float
    zipf: float
    # Among how many keys the records of an edge by key are spread.
    keys: int
    record_bytes: float
    state_bytes_per_key: float


@dataclass(frozen=True, slots=True)
class Cost:
    """An operator in numbers."""

    service_s: float
    cv: float
    shape: int
    cpu: float
    selectivity: float
    zipf: float
    state_bytes_per_key: float
    # How long the windows are at whose ends it writes; 0 if it writes as records come.
    window_s: float
    hot_key: float = 0.0


def cost_of(operator: Operator, assumed: Assumed) -> Cost:
    profile = operator.profile or Profile()
    declared = _declared_work(operator)
    service_ms, cpu = profile.service_ms, profile.cpu_share
    if declared:
        declared_ms = sum(ms for _, ms in declared)
        service_ms = declared_ms + assumed.service_ms if service_ms is None else service_ms
        computed = sum(ms for kind, ms in declared if kind == "work")
        cpu = (
            (computed / declared_ms if declared_ms > 0 else assumed.cpu_share)
            if cpu is None
            else cpu
        )
    distribution = profile.distribution
    if distribution is None and declared and profile.service_cv is None:
        distribution = Distribution.DETERMINISTIC
    distribution = distribution or assumed.distribution
    cv = _or(profile.service_cv, assumed.service_cv)
    # A variation beside an exponential or constant time can only be meant for another shape.
    if profile.service_cv is not None and profile.distribution is None:
        distribution = Distribution.GAMMA
    if distribution is Distribution.DETERMINISTIC:
        cv = 0.0
    elif distribution is Distribution.EXPONENTIAL:
        cv = 1.0
    return Cost(
        service_s=_or(service_ms, assumed.service_ms) / 1000,
        cv=cv,
        shape=_SHAPES[distribution],
        cpu=_or(cpu, assumed.cpu_share),
        selectivity=_or(profile.selectivity, assumed.selectivity),
        zipf=_or(profile.zipf, assumed.zipf),
        hot_key=_or(profile.hot_key, 0.0),
        state_bytes_per_key=_or(profile.state_bytes_per_key, assumed.state_bytes_per_key),
        window_s=_window_s(operator),
    )


def _window_s(operator: Operator) -> float:
    work = operator.work
    if work.window is None or not work.aggregate:
        return 0.0
    return work.window.slide_s or work.window.duration_s


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _declared_work(operator: Operator) -> list[tuple[str, float]]:
    texts = [*operator.work.select, operator.work.where or ""]
    return [(kind, float(ms)) for text in texts for kind, ms in _SPELLED.findall(text)]


def key_shares(
    keys: int, zipf: float, groups: Sequence[int], weights: Floats, hot_key: float = 0.0
) -> Floats:
    """The part of the records that each instance gets when they are grouped by key.

    Key k = 1, 2 … has a part in proportion to k^−z; keys fall into groups, and `groups` says which
    instance has which, as in the routing tables of the Spark engine; what is spread is dealt
    over all, by weights. A hot key has a part of the records by itself; the others share the
    rest.
    """
    popularity = np.arange(1, keys + 1, dtype=float) ** -zipf
    popularity *= (1.0 - hot_key) / popularity.sum()
    popularity[0] += hot_key
    # A multiplier that scatters neighbouring keys over the groups, the same everywhere.
    group = (np.arange(keys, dtype=np.int64) * 2_654_435_761) % KEY_GROUPS
    owners = np.asarray(groups)[group]
    spread = owners == SPREAD
    part = np.bincount(owners[~spread], weights=popularity[~spread], minlength=len(weights))
    if spread.any():
        part += popularity[spread].sum() * weights / weights.sum()
    shares: Floats = part / part.sum()
    return shares
