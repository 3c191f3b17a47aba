"""Owns the policies that there are, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trilithon.errors import NotFound
from trilithon.policies.henge.parameters import HengeParameters
from trilithon.policies.henge.policy import HengePolicy
from trilithon.policies.parameters import Parameters
from trilithon.policies.policy import Policy
from trilithon.policies.threshold import ThresholdParameters, ThresholdPolicy


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that can be asked for: its parameters, and how it is made of them."""

    parameters: type[Parameters]
    make: Callable[[Any], Policy]
    summary: str


POLICIES: Final[dict[str, PolicyEntry]] = {
    "henge": PolicyEntry(
        HengeParameters,
        HengePolicy,
        "the whole cluster: instances for who misses its intent, the best sum of utilities",
    ),
    "threshold": PolicyEntry(
        ThresholdParameters,
        ThresholdPolicy,
        "more instances for the busiest operator on a missed latency, fewer where there is room",
    ),
}


def policy(name: str, given: Mapping[str, Any] | None = None) -> Policy:
    """The policy of this name, with these parameters. A name is all that a user can give: no policy is
    loaded from a path in a file.
    """
    if (known := POLICIES.get(name)) is None:
        raise NotFound(f"There is no policy named {name!r}.", f"Use one of: {', '.join(POLICIES)}.")
    return known.make(known.parameters.of(given or {}))
