"""Defines the parameters of the policy `stela`: the paper's, and those that it leaves open."""

from dataclasses import dataclass
from typing import Final

from trilithon.measures.capacity import CONGESTION_RATE
from trilithon.policies.parameters import Parameters, choice, parameter

BY_DEFINITION: Final = "definition"
AS_PRINTED: Final = "printed"
FOLLOWED: Final = "followed"
PROJECTED: Final = "projected"
NO_REFINEMENT: Final = "none"
# How instances and machines are chosen: Stela, a fair rival, and the alternatives of section III-C.
STELA: Final = "stela"
ROUND_ROBIN: Final = "round_robin"
DEFAULT: Final = "default"
LEAST_LINK_LOAD: Final = "least_link_load"
MOST_LINK_LOAD: Final = "most_link_load"
NEAR_SOURCE: Final = "distance_from_source"
NEAR_SINK: Final = "distance_to_sink"
DESCENDANTS: Final = "descendants"
CENTRALITY: Final = "centrality"
STRATEGIES: Final = (
    STELA,
    ROUND_ROBIN,
    DEFAULT,
    LEAST_LINK_LOAD,
    MOST_LINK_LOAD,
    NEAR_SOURCE,
    NEAR_SINK,
    DESCENDANTS,
    CENTRALITY,
)


@dataclass(frozen=True)
class StelaParameters(Parameters):
    strategy: str = choice(
        STELA, STRATEGIES, "who gets new machines; all but `stela` are for comparison (III-C)"
    )
    congestion_rate: float = parameter(
        CONGESTION_RATE, "ratio", "input to processing rate above which one is congested", least=1
    )
    etp: str = choice(
        BY_DEFINITION,
        (BY_DEFINITION, AS_PRINTED),
        "each sink once, or once per path as algorithm 1 prints it",
    )
    projection: str = choice(
        FOLLOWED,
        (FOLLOWED, AS_PRINTED),
        "whether the rates of an operator's children follow, or stay as the paper prints it",
    )
    refine: str = choice(
        PROJECTED,
        (PROJECTED, NO_REFINEMENT),
        "chosen: whether instances, or machines, are exchanged as long as the projection gains",
    )
    group: int = parameter(
        0, "1", "of all strategies but `stela`: which random group of machines a scale-in removes"
    )
    window_s: float = parameter(
        60.0, "s", "chosen: of measurements that a plan is made of", least=1
    )
    calm_s: float = parameter(
        0.0,
        "s",
        "chosen: after new machines are seen, before they get instances; `window_s` where the start"
        " of a machine slows the others",
        least=0,
    )
    patience_s: float = parameter(
        600.0, "s", "chosen: for which a request waits for measurements, jobs or machines", least=1
    )
    settle_s: float = parameter(
        180.0, "s", "chosen: after an action, before its throughput is compared", least=1
    )
