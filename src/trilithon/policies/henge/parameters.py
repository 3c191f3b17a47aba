"""Owns what Henge can be told: the paper's five parameters, and those that its text leaves open."""

from dataclasses import dataclass
from typing import Final

from trilithon.policies.henge.congestion import CAPACITY, MEASURES
from trilithon.policies.parameters import Parameters, choice, parameter

MAX_TOTAL: Final = "max_total"
MAX_MIN: Final = "max_min"


@dataclass(frozen=True)
class HengeParameters(Parameters):
    """The first five are those of SoCC'18, section 5.5, with the paper's values."""

    capacity_threshold: float = parameter(
        0.3, "ratio", "above this capacity an operator is congested (5.1)", least=0.01, most=1
    )
    stable_rounds: int = parameter(
        4, "rounds", "for which everything stays met before the cluster is Converged (5.1)", least=1
    )
    improvement: float = parameter(
        0.05,
        "ratio",
        "Δ: a job that gains less from a Reconfiguration is blacklisted (5.1)",
        most=1,
    )
    reduction: float = parameter(
        0.8, "ratio", "of its instances that a Reduction takes from an operator (5.2)", most=1
    )
    drop: float = parameter(
        0.05, "ratio", "of utility lost after which a Converged cluster starts again (5.3)", most=1
    )

    goal: str = choice(
        MAX_TOTAL, (MAX_TOTAL, MAX_MIN), "the most utility in all, or for who has the least (2)"
    )
    congestion: str = choice(
        CAPACITY, MEASURES.keys(), "by what an operator is called congested (5.1)"
    )
    queue_threshold: float = parameter(
        100.0, "records", "above this queue of an instance, with `queue`", least=1
    )
    rate_threshold: float = parameter(
        1.2, "ratio", "above this input over processing rate, with `etp`", least=1, most=100
    )
    blacklist_s: float = parameter(3600.0, "s", "for which a job is skipped (5.1)", least=1)
    round_s: float = parameter(10.0, "s", "between rounds (5.1)", least=1, most=3600)
    window_s: float = parameter(60.0, "s", "over which utility is measured (6)", least=1, most=3600)
    part_s: float = parameter(10.0, "s", "a part of the window, for juice (6)", least=1, most=3600)
    recover_s: float = parameter(300.0, "s", "of data after some were missing (8.4.2)")

    settle_s: float = parameter(60.0, "s", "chosen: the least wait after an action")
    settle_most_s: float = parameter(300.0, "s", "chosen: the longest wait for steady utility")
    steady: float = parameter(0.05, "ratio", "chosen: spread of utility that is steady", most=1)
    noise: float = parameter(0.01, "ratio", "chosen: a fall by less is none", most=1)
    least_fall: float = parameter(
        0.001, "ratio", "chosen: of the maximum; a fall by less is none, however little there is", most=1
    )  # fmt: skip
    missed: float = parameter(
        0.005,
        "ratio",
        "chosen: a job this close to its utility's maximum has met its intent",
        most=1,
    )
    warm_up_s: float = parameter(60.0, "s", "chosen: for which a new job is left alone")
    step_most: int = parameter(24, "instances", "chosen: the most for an operator at once", least=1)
    least_capacity: float = parameter(
        0.3, "ratio", "chosen: no more than bring an operator down to this; 0 for no bound", most=1
    )
    reduced_capacity: float = parameter(
        0.8, "ratio", "chosen: a Reduction leaves an operator at most this busy; 10 for any", most=10,
        least=0.01,
    )  # fmt: skip
    memory_full: float = parameter(
        0.9, "ratio", "chosen: above this use of memory a machine is congested", most=1
    )
    load_change: float = parameter(
        0.25, "ratio", "chosen: by which a job's load moves to count as another load", least=0.01, most=1
    )  # fmt: skip
    history: int = parameter(8, "configurations", "chosen: remembered, the best ones", least=1)

    @property
    def stable_s(self) -> float:
        return self.stable_rounds * self.round_s
