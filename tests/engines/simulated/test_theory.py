"""Single records against the textbook: where there is a formula, it
lies in the confidence interval.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, stats

from tests.engines.simulated.worlds import line, mean_latency_s, operator, rates_of, world_of
from trilithon.engines.simulated.arrivals import lognormal_cv2
from trilithon.engines.simulated.character import storm
from trilithon.engines.simulated.event_run import EventRun
from trilithon.engines.simulated.fluid_run import FluidRun
from trilithon.engines.simulated.world_tables import Floats
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


def lies_in_the_interval(found: Floats, formula_s: float, utilisation: float) -> bool:
    """Whether the formula lies in the 99 % confidence interval, which must not be wide."""
    t = stats.t.ppf(0.995, len(found) - 1)
    half_width = t * found.std(ddof=1) / math.sqrt(len(found))
    assert half_width / found.mean() <= WIDEST[utilisation]
    return bool(abs(found.mean() - formula_s) <= half_width)


@pytest.mark.parametrize("utilisation", UTILISATIONS)
@pytest.mark.parametrize("name", CASES)
def test_the_formula_lies_in_the_confidence_interval(name: str, utilisation: float) -> None:
    job, servers, formula = CASES[name]
    rate = utilisation * servers / SERVICE_S
    records = RECORDS[utilisation] * (3 if "lognormal" in name else 1)
    found = np.array([mean_latency_s(job, rate, records, seed) for seed in SEEDS])
    assert lies_in_the_interval(found, formula(utilisation), utilisation)


def gm1(rho: float, shape: float) -> float:
    """G/M/1: S / (1 − σ), where σ is the root below 1 of σ = E[exp(−(1 − σ)·A / S)] and A is the
    time between two records, here lognormal.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(120)
    gaps = np.exp(shape * points - shape**2 / 2) / rho  # in units of the service time

    def beyond(sigma: float) -> float:
        transform = (weights * np.exp(-(1 - sigma) * gaps)).sum() / weights.sum()
        return float(transform - sigma)

    return SERVICE_S / (1 - float(optimize.brentq(beyond, 0.0, 1 - 1e-6)))


@pytest.mark.parametrize("utilisation", UTILISATIONS)
def test_bursty_arrivals_wait_as_long_as_the_textbook_says(utilisation: float) -> None:
    job, rate = line(EXPONENTIAL), utilisation / SERVICE_S
    records, cv2 = 2 * RECORDS[utilisation], lognormal_cv2(1.0)
    assert cv2 == pytest.approx(math.e - 1)
    found = np.array([mean_latency_s(job, rate, records, seed, cv2) for seed in SEEDS])
    assert lies_in_the_interval(found, gm1(utilisation, 1.0), utilisation)
    assert found.mean() > mg1(1.0)(utilisation)  # longer than with Poisson's


@pytest.mark.parametrize("kind", ["events", "fluid"])
def test_every_hop_adds_its_transport_and_no_instances_remove_it(kind: str) -> None:
    """Hardly anything waits, so that service times and transport are left: three hops, with the
    one from the log.
    """
    steady = Distribution.DETERMINISTIC
    job = line(*(operator(name, 4, distribution=steady) for name in "abc"))
    world, rows = world_of(job, storm(transit_s=0.010, outage_s=0.0, restart_s=0.0))
    run = EventRun(world, 1) if kind == "events" else FluidRun(world)
    rates = rates_of(world, rows, **{"in": 20.0})
    for second in range(1, 101):
        run.advance(float(second), rates)
    sink = run.world.nodes[rows.nodes["out"]]
    assert sink["latency_s"] / sink["written"] == pytest.approx(3 * (0.010 + SERVICE_S), rel=0.01)
