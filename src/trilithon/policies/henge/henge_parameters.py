"""Defines Henge's parameters: the paper's five, and those that its text leaves open."""

from dataclasses import dataclass
from typing import Final

from trilithon.policies.henge.congestion import CAPACITY, MEASURES
from trilithon.policies.parameters import Parameters, choice, parameter

MAX_TOTAL: Final = "max_total"
MAX_MIN: Final = "max_min"
OWN: Final = "own"
ALL: Final = "all"


@dataclass(frozen=True)
class HengeParameters(Parameters):
    """The first five are those of SoCC'18, section 5.5, with the paper's values."""

    capacity_threshold: float = parameter(
        0.3, "ratio", "capacity above which an operator is congested (5.1)", least=0.01, most=1
    )
    stable_rounds: int = parameter(
        4, "rounds", "rounds in which all intents are met before Converged (5.1)", least=1
    )
    improvement: float = parameter(
        0.05,
        "ratio",
        "Δ: least gain from a Reconfiguration that avoids the blacklist (5.1)",
        most=1,
    )
    reduction: float = parameter(
        0.8, "ratio", "share of an operator's instances that a Reduction takes (5.2)", most=1
    )
    drop: float = parameter(
        0.05, "ratio", "share of utility lost that ends Converged (5.3)", most=1
    )

    goal: str = choice(
        MAX_TOTAL,
        (MAX_TOTAL, MAX_MIN),
        "maximise the sum of utilities, or the smallest share of its maximum that a job has (2)",
    )
    congestion: str = choice(
        CAPACITY, MEASURES.keys(), "measure by which an operator is congested (5.1)"
    )
    queue_threshold: float = parameter(
        100.0,
        "records",
        "with `queue`: an instance's queue length above which it is congested",
        least=1,
    )
    rate_threshold: float = parameter(
        1.2,
        "ratio",
        "with `etp`: input over processing rate above which it is congested",
        least=1,
        most=100,
    )
    blacklist_s: float = parameter(
        3600.0, "s", "how long a blacklisted job is skipped (5.1)", least=1
    )
    forget: str = choice(
        OWN,
        (OWN, ALL),
        "blacklistings that end when the load changes: the changed job's, or, as in the paper, all",
    )
    round_s: float = parameter(10.0, "s", "time between rounds (5.1)", least=1, most=3600)
    window_s: float = parameter(
        60.0, "s", "window over which utility is measured (6)", least=1, most=3600
    )
    part_s: float = parameter(
        10.0, "s", "part of the window over which juice is measured (6)", least=1, most=3600
    )
    recover_s: float = parameter(
        300.0, "s", "time with metrics required after some were missing (8.4.2)"
    )

    settle_s: float = parameter(60.0, "s", "chosen: shortest wait after an action")
    settle_most_s: float = parameter(300.0, "s", "chosen: longest wait for steady utility")
    steady: float = parameter(
        0.05, "ratio", "chosen: largest spread of utility that counts as steady", most=1
    )
    noise: float = parameter(
        0.01, "ratio", "chosen: share of utility by which it may fall unnoticed", most=1
    )
    least_fall: float = parameter(
        0.001, "ratio", "chosen: share of maximum utility by which it may fall unnoticed", most=1
    )
    swings: float = parameter(
        2.0,
        "standard deviations",
        "chosen: swings of utility between parts of a window by which it may fall unnoticed",
        most=10,
    )
    missed: float = parameter(
        0.005, "ratio", "chosen: distance to its maximum utility at which an intent is met", most=1
    )
    warm_up_s: float = parameter(60.0, "s", "chosen: time for which a new job is left alone")
    step_most: int = parameter(
        24, "instances", "chosen: most instances that an operator gets at once", least=1
    )
    least_capacity: float = parameter(
        0.3,
        "ratio",
        "chosen: a Reconfiguration lowers an operator's capacity no further; 0 for no bound",
        most=1,
    )
    reduced_capacity: float = parameter(
        0.8,
        "ratio",
        "chosen: highest capacity to which a Reduction may lead; 10 for no bound",
        least=0.01,
        most=10,
    )
    memory_full: float = parameter(
        0.9, "ratio", "chosen: share of memory in use above which a machine is congested", most=1
    )
    load_change: float = parameter(
        0.25,
        "ratio",
        "chosen: change of a job's input rate that counts as another load",
        least=0.01,
        most=1,
    )
    foreign_change: float = parameter(
        1.0,
        "threads per core",
        "chosen: change of other processes' load that counts as an external change",
        least=0.01,
        most=100,
    )
    history: int = parameter(
        8, "configurations", "chosen: number of best configurations remembered", least=1
    )

    @property
    def stable_s(self) -> float:
        return self.stable_rounds * self.round_s
