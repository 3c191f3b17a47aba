"""Lists the policies by name, with their parameters and the reports that they offer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.errors import InvalidPolicy, NotFound
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.dhalion_policy import DhalionPolicy
from trilithon.policies.ds2 import Ds2Parameters, Ds2Policy
from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.henge_policy import HengePolicy
from trilithon.policies.henge.status import crunch_report, hungry_report
from trilithon.policies.latency.latency_parameters import LatencyParameters
from trilithon.policies.latency.latency_policy import LatencyPolicy
from trilithon.policies.layered import LayeredPolicy
from trilithon.policies.parameters import Parameters
from trilithon.policies.policy import Policy, State
from trilithon.policies.scene import Scene
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.policies.stela.stela_policy import StelaPolicy
from trilithon.policies.threshold import ThresholdParameters, ThresholdPolicy

# A report on the cluster as JSON data; None while too little is measured. State and parameters are
# those of the policy that offers the report, or None where that policy does not decide.
Report = Callable[[Scene, State | None, Any], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy that users can select: its parameters, its factory, and its reports by name."""

    parameters: type[Parameters]
    make: Callable[[Any], Policy]
    summary: str
    reports: Mapping[str, Report] = field(default_factory=dict)


POLICIES: Final[dict[str, PolicyEntry]] = {
    "henge": PolicyEntry(
        HengeParameters,
        HengePolicy,
        "the whole cluster: more instances for jobs that miss intents, the best sum of utilities",
        {"crunch": crunch_report, "hungry": hungry_report},
    ),
    "latency": PolicyEntry(
        LatencyParameters,
        LatencyPolicy,
        "the fewest instances with which a queueing model says that constraints on paths are kept",
    ),
    "dhalion": PolicyEntry(
        DhalionParameters,
        DhalionPolicy,
        "diagnoses each job and heals it: too few or too many instances, slow ones, skewed keys",
    ),
    "stela": PolicyEntry(
        StelaParameters,
        StelaPolicy,
        "machines that people add or take away, used where throughput gains the most (on demand)",
    ),
    "threshold": PolicyEntry(
        ThresholdParameters,
        ThresholdPolicy,
        "more instances for the busiest operator on a missed latency, fewer where there is room",
    ),
    "ds2": PolicyEntry(
        Ds2Parameters,
        Ds2Policy,
        "as many instances as the sources' rates need, for all operators of a job at once (DS2)",
    ),
}


def policy(name: str | Sequence[str], given: Mapping[str, Any] | None = None) -> Policy:
    """Makes the policy of this name with these parameters. Several names are layers, the first with
    precedence, and their parameters stand under their names. Users can give names only: no policy
    is loaded from an import path.
    """
    if isinstance(name, str):
        return _single(name, given or {})
    if not name or len(set(name)) < len(name):
        raise InvalidPolicy("`policy` is empty or names a policy twice.", "Name each layer once.")
    if len(name) == 1:
        return _single(name[0], given or {})
    parameters = given or {}
    if unknown := sorted(set(parameters) - set(name)):
        raise InvalidPolicy(
            f"Parameters name {', '.join(unknown)}, which `policy` does not list.",
            f"With several policies, write parameters under their names: {', '.join(name)}.",
        )
    for layer, values in parameters.items():
        if not isinstance(values, Mapping):
            raise InvalidPolicy(
                f"The parameters of {layer!r} are {values!r}.", "Write `name: value` under it."
            )
    return LayeredPolicy(tuple(_single(layer, parameters.get(layer, {})) for layer in name))


def _single(name: str, given: Mapping[str, Any]) -> Policy:
    if (entry := POLICIES.get(name)) is None:
        raise NotFound(f"No policy is named {name!r}.", f"Use one of: {', '.join(POLICIES)}.")
    return entry.make(entry.parameters.of(given))


def report(name: str, scene: Scene, deciding: Policy, state: State) -> Mapping[str, Any] | None:
    """Computes a report by its name, whichever policy decides."""
    for owner, entry in POLICIES.items():
        if name in entry.reports:
            owning, own_state = _deciding_layer(owner, deciding, state)
            parameters = None if owning is None else owning.parameters
            return entry.reports[name](scene, own_state, parameters)
    known = [report_name for entry in POLICIES.values() for report_name in entry.reports]
    raise NotFound(f"No report is named {name!r}.", f"Use one of: {', '.join(known)}.")


def _deciding_layer(
    owner: str, deciding: Policy, state: State
) -> tuple[Policy | None, State | None]:
    """The policy of this name among those that decide, and its state."""
    if deciding.name == owner:
        return deciding, state
    if isinstance(deciding, LayeredPolicy):
        for layer in deciding.layers:
            if layer.name == owner:
                return layer, deciding.state_of(layer, state)
    return None, None
