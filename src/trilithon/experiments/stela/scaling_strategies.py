"""Lists the strategies that Stela's experiments compare."""

from typing import Final

from trilithon.experiments.stela import catalogue as names
from trilithon.experiments.strategies import Strategy, differing, under
from trilithon.policies.stela import stela_parameters as parameters


def _other(name: str, strategy: str, difference: str) -> Strategy:
    return differing(name, "stela", {"strategy": strategy}, difference)


STRATEGIES: Final = (
    under(names.STELA),
    differing(
        names.PRINTED,
        "stela",
        {
            "etp": parameters.AS_PRINTED,
            "projection": parameters.AS_PRINTED,
            "refine": parameters.NO_REFINEMENT,
        },
        "algorithm 1, which counts a sink once per path, a projection in which children keep their "
        "rates, and no exchange of instances or machines after it",
    ),
    _other(
        names.FAIR, parameters.ROUND_ROBIN, "as many instances as Stela, in turn, for all operators"
    ),
    _other(
        names.DEFAULT,
        parameters.DEFAULT,
        "every instance is placed again in turn on all machines; none is created",
    ),
    _other(
        names.LEAST_LINK,
        parameters.LEAST_LINK_LOAD,
        "instances with the least traffic move to the new machine, beside their neighbours",
    ),
    _other(names.MOST_LINK, parameters.MOST_LINK_LOAD, "the same with the most traffic"),
    _other(
        names.NEAR_SOURCE,
        parameters.NEAR_SOURCE,
        "instances of the operators nearest to a source move",
    ),
    _other(
        names.NEAR_SINK, parameters.NEAR_SINK, "instances of the operators nearest to a sink move"
    ),
    _other(
        names.DESCENDANTS,
        parameters.DESCENDANTS,
        "instances of the operators with the most descendants move",
    ),
    _other(
        names.CENTRALITY,
        parameters.CENTRALITY,
        "instances of the operators with the most edges move",
    ),
    *(
        differing(
            name,
            "stela",
            {"strategy": parameters.DEFAULT, "group": group},
            "a scale-in removes random machines, and places their instances in turn on the others",
        )
        for name, group in ((names.GROUP_1, 1), (names.GROUP_2, 2))
    ),
)
