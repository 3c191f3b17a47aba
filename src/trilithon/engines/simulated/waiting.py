"""Owns the queueing formulas of the run of flows.

Records in a station of c servers at utilisation ρ, waiting by Kingman's formula
(`measures/queueing.py`; Latency guarantees, equation 3) in the form for several servers (Sakasegawa
1977), with Kraemer and Langenbach-Belz's correction g for arrivals that are more regular than
Poisson, and with those that came in one batch and stand before a record:

    L(ρ) = c·ρ + ρ^√(2(c+1)) / (1 − ρ) · (c²_A + c²_S)/2 · g + ρ·ahead / (2·(1 − ρ))
    g = exp(−2·(1 − ρ)/(3·ρ) · (1 − c²_A)² / (c²_A + c²_S))  for c²_A < 1, else 1

How regular arrivals are follows from how regular departures are (Whitt, The Queueing
Network Analyzer, 1983): departures of a station, a stream split at random or in
turn, several streams put together.
"""

import numpy as np

from trilithon.engines.simulated.compiled import part
from trilithon.engines.simulated.sharing import taking_turns

# How fast variation passes from within steps to between them (`within_step`).
BETWEEN_STEPS = 0.66


@part
def in_station(
    rho: float, arrival_cv2: float, service_cv2: float, ahead: float, servers: float
) -> float:
    """L: records waiting and in service."""
    variation = arrival_cv2 + service_cv2
    factor = variation / 2
    if arrival_cv2 < 1.0 and variation > 0.0 and rho > 0.0:
        irregular = (1.0 - arrival_cv2) ** 2 / variation
        factor *= np.exp(-2.0 * (1.0 - rho) / (3.0 * rho) * irregular)
    power = rho * rho if servers == 1.0 else rho ** np.sqrt(2.0 * (servers + 1.0))
    return float(servers * rho + (power * factor + rho * ahead / 2) / (1.0 - rho))


@part
def utilisation(
    records: float,
    possible: float,
    arrival_cv2: float,
    service_cv2: float,
    ahead: float,
    servers: float,
) -> float:
    """ρ such that what is left in the station and what went through it are all the
    records there were: L(ρ) + possible·ρ = records. Both grow with ρ, so there is
    one; found by the Illinois method.

    With this the number in the station comes to L(ρ) when load is steady and grows or shrinks as a
    flow when it is not (the pointwise stationary fluid flow approximation).
    """
    if records <= 0.0 or possible <= 0.0:
        return 0.0
    low, high = 0.0, min(1.0 - 1e-9, records / possible)
    at_low = -records
    at_high = in_station(high, arrival_cv2, service_cv2, ahead, servers) + possible * high - records
    if at_high <= 0.0:
        return float(high)
    rho = high
    side = 0
    for _ in range(60):
        rho = (low * at_high - high * at_low) / (at_high - at_low)
        off = in_station(rho, arrival_cv2, service_cv2, ahead, servers) + possible * rho - records
        if abs(off) <= 1e-9 * records or high - low < 1e-13:
            break
        if off > 0.0:
            high, at_high = rho, off
            if side == 1:
                at_low /= 2
            side = 1
        else:
            low, at_low = rho, off
            if side == -1:
                at_high /= 2
            side = -1
    return float(rho)


@part
def share_of_time_full(rho: float, room: float) -> float:
    """How often a station with room for so many records is full: that of M/M/1/K. It makes no
    difference for large rooms: then only a station that cannot keep up is ever full.
    """
    if rho <= 0.0:
        return 0.0
    if abs(1.0 - rho) * room < 1e-6:
        return 1.0 / (room + 1.0)
    if rho > 1.0:
        return float((1.0 - 1.0 / rho) / (1.0 - rho ** -(room + 1.0)))
    power = rho**room
    return float((1.0 - rho) * power / (1.0 - power * rho))


@part
def within_step(
    rho: float, arrival_cv2: float, service_cv2: float, service_s: float, span_s: float
) -> float:
    """The part of the arrivals' variation that happens within a step, where the number of arrivals
    in each step is drawn: the rest is in the numbers already.

    A queue averages over about its relaxation time τ = S·(c²_A + c²_S) / (2·(1 − ρ)²). The longer
    that is, the more of the variation that it feels lies between steps. The form and its constant
    were fitted once to single records.
    """
    idle = max(0.01, 1.0 - rho)
    relaxes_s = service_s * (arrival_cv2 + service_cv2) / (2.0 * idle * idle)
    return float(1.0 / (1.0 + BETWEEN_STEPS * np.sqrt(relaxes_s / span_s)))


@part
def departure_cv2(rho: float, arrival_cv2: float, service_cv2: float, servers: float) -> float:
    """Whitt, equation 38: an idle station lets arrivals through as
    they are, a busy one shapes them.
    """
    shaped = rho * rho * (max(service_cv2, 0.2) - 1.0) / np.sqrt(servers)
    return float(max(0.0, 1.0 + (1.0 - rho * rho) * (arrival_cv2 - 1.0) + shaped))


@part
def together_cv2(mean_cv2: float, streams: float, rho: float) -> float:
    """Whitt, equation 29: of many independent streams the sum is nearly Poisson."""
    if streams <= 1.0:
        return float(mean_cv2)
    weight = 1.0 / (1.0 + 4.0 * (1.0 - rho) ** 2 * (streams - 1.0))
    return float(weight * mean_cv2 + 1.0 - weight)


@part
def stretch(threads: float, runnable: float, other: float, cores: float, switch_s: float) -> float:
    """How much longer computing takes on a machine: the mean of `taking_turns` with 1 + K + other
    threads over the number K of other threads that run, binomial with `runnable` of `threads`
    running on average.
    """
    if threads <= 1.0:
        return taking_turns(1.0 + other, cores, switch_s)
    share = min(1.0, runnable / threads)
    peers = int(threads) - 1
    if share <= 0.0 or 1.0 + peers + other <= cores:
        return taking_turns(1.0 + other, cores, switch_s)
    if share >= 1.0:
        return taking_turns(1.0 + peers + other, cores, switch_s)
    chance = (1.0 - share) ** peers
    if chance < 1e-290:
        return taking_turns(1.0 + peers * share + other, cores, switch_s)
    mean = 0.0
    for running in range(peers + 1):
        mean += chance * taking_turns(1.0 + running + other, cores, switch_s)
        chance *= (peers - running) / (running + 1.0) * share / (1.0 - share)
    # The chances add up to 1 but for rounding.
    return float(max(1.0, mean))
