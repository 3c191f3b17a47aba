"""Single records against the textbook: where there is a formula, it
lies in the confidence interval.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tests.engines.simulated.worlds import line, mean_latency_s, operator
from trilithon.model.job import Job
from trilithon.model.profile import Distribution

SEEDS = range(20)
SERVICE_S = 0.001
UTILISATIONS = (0.5, 0.8, 0.95)
# How many records are needed grows with the utilisation and with the
# variation of the service times.
RECORDS = {0.5: 60_000, 0.8: 150_000, 0.95: 200_000}
WIDEST = {0.5: 0.03, 0.8: 0.03, 0.95: 0.10}


def mg1(cv: float) -> Callable[[float], float]:
    """Pollaczek and Khinchine: W = ρ·S·(1 + c²) / (2·(1 − ρ)), plus the service itself."""
    return lambda rho: SERVICE_S * (1 + rho * (1 + cv**2) / (2 * (1 - rho)))


def mmc(servers: int) -> Callable[[float], float]:
    """Erlang C: the chance of waiting, times S / (c·(1 − ρ)), plus the service itself."""

    def sojourn(rho: float) -> float:
        offered = servers * rho
        last = offered**servers / math.factorial(servers) / (1 - rho)
        others = sum(offered**k / math.factorial(k) for k in range(servers))
        return SERVICE_S * (1 + last / (others + last) / (servers * (1 - rho)))

    return sojourn


def tandem(rho: float) -> float:
    """Burke: what leaves an M/M/1 is Poisson again, so the second is one, too."""
    return 2 * SERVICE_S / (1 - rho)


EXPONENTIAL = operator("a", distribution=Distribution.EXPONENTIAL)
CASES: dict[str, tuple[Job, int, Callable[[float], float]]] = {
    "M/M/1": (line(EXPONENTIAL), 1, mg1(1.0)),
    "M/M/3": (line(operator("a", 3, distribution=Distribution.EXPONENTIAL)), 3, mmc(3)),
    "M/D/1": (line(operator("a", distribution=Distribution.DETERMINISTIC)), 1, mg1(0.0)),
    "M/G/1 gamma": (
        line(operator("a", distribution=Distribution.GAMMA, service_cv=0.5)),
        1,
        mg1(0.5),
    ),
    "M/G/1 lognormal": (
        line(operator("a", distribution=Distribution.LOGNORMAL, service_cv=1.5)),
        1,
        mg1(1.5),
    ),
    "tandem": (
        line(EXPONENTIAL, operator("b", distribution=Distribution.EXPONENTIAL)),
        1,
        tandem,
    ),
}


@pytest.mark.parametrize("utilisation", UTILISATIONS)
@pytest.mark.parametrize("name", CASES)
def test_the_formula_lies_in_the_confidence_interval(name: str, utilisation: float) -> None:
    job, servers, formula = CASES[name]
    rate = utilisation * servers / SERVICE_S
    records = RECORDS[utilisation] * (3 if "lognormal" in name else 1)
    found = np.array([mean_latency_s(job, rate, records, seed) for seed in SEEDS])
    t = stats.t.ppf(0.995, len(found) - 1)
    half_width = t * found.std(ddof=1) / math.sqrt(len(found))
    assert half_width / found.mean() <= WIDEST[utilisation]
    assert abs(found.mean() - formula(utilisation)) <= half_width
