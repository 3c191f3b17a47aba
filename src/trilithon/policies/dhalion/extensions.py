"""Registers health policies by name, those of the paper and those of users, and assembles them.

A health policy is a class with the parts and methods of `health.HealthPolicy`. Packages name theirs
under the entry point `trilithon.health_policies`; `trilithon.plugins` loads and registers them. Its
parts are objects, or names of registered parts (`parts.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trilithon.errors import InvalidPolicy, NotFound
from trilithon.policies.dhalion.dhalion_parameters import HEALTH_POLICY_NAMES, DhalionParameters
from trilithon.policies.dhalion.health import (
    Detector,
    Diagnoser,
    Diagnosis,
    HealthPolicy,
    JobCase,
    LogEntry,
    Resolver,
)
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy, ThroughputSloPolicy
from trilithon.policies.dhalion.parts import METHODS, part
from trilithon.policies.parameters import separate

_POLICIES: Final[dict[str, HealthPolicy]] = {}


@dataclass(slots=True)
class AssembledPolicy:
    """A health policy with its named parts looked up, and parts that parameters add. An added
    resolver comes first for the kinds of diagnoses in its `cures`.
    """

    base: HealthPolicy
    name: str
    summary: str
    detectors: tuple[Detector, ...]
    diagnosers: tuple[Diagnoser, ...]
    resolvers: tuple[Resolver, ...]
    added: tuple[str, ...] = ()

    def candidates(self, case: JobCase, diagnosis: Diagnosis) -> Sequence[str]:
        cure = {r.name for r in self.resolvers if diagnosis.kind in getattr(r, "cures", ())}
        first = [name for name in self.added if name in cure]
        rest = [name for name in self.base.candidates(case, diagnosis) if name not in first]
        return (*first, *rest)

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:
        return self.base.helped(case, entry)


def register(policy: HealthPolicy) -> None:
    """Adds a health policy; refuses one that lacks a part, or whose name is taken."""
    name = getattr(policy, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidPolicy(f"A health policy is named {name!r}.", "Use a name like my_policy.")
    if name in _POLICIES:
        raise InvalidPolicy(f"There are two health policies named {name!r}.", "Rename one.")
    for kind, method in METHODS.items():
        for each in getattr(policy, kind, (None,)):
            if not callable(getattr(part(kind, each), method, None)):
                raise InvalidPolicy(
                    f"{name}: one of its {kind} has no method `{method}`.",
                    f"Give `{kind}` as a tuple of names, or of objects with `name` and `{method}`.",
                )
    for method in ("candidates", "helped"):
        if not callable(getattr(policy, method, None)):
            raise InvalidPolicy(f"{name} has no method `{method}`.", "Write it.")
    _POLICIES[name] = policy
    HEALTH_POLICY_NAMES[name] = getattr(policy, "summary", "")


def unregister(name: str) -> None:
    """Removes a health policy."""
    _POLICIES.pop(name, None)
    HEALTH_POLICY_NAMES.pop(name, None)


def health_policy(name: str) -> HealthPolicy:
    """A health policy with its parts."""
    if name not in _POLICIES:
        raise NotFound(
            f"No health policy is named {name!r}.", f"There are: {', '.join(_POLICIES)}."
        )
    return _assembled(_POLICIES[name], {})


def chosen_policies(parameters: DhalionParameters) -> tuple[HealthPolicy, ...]:
    """The health policies that parameters choose, the first with the parts that they add."""
    first, *others = dict.fromkeys(separate(parameters.health))
    added = {kind: separate(getattr(parameters, kind)) for kind in METHODS}
    return (_assembled(health_policy(first), added), *map(health_policy, others))


def _assembled(policy: HealthPolicy, added: Mapping[str, Sequence[str]]) -> HealthPolicy:
    chosen = {}
    for kind in METHODS:
        own = [part(kind, each) for each in getattr(policy, kind)]
        names = {each.name for each in own}
        more = [part(kind, name) for name in added.get(kind, ()) if name not in names]
        chosen[kind] = (*own, *more)
    return AssembledPolicy(
        policy,
        policy.name,
        getattr(policy, "summary", ""),
        **chosen,
        added=tuple(added.get("resolvers", ())),
    )


def health_policies() -> Mapping[str, HealthPolicy]:
    return {name: health_policy(name) for name in _POLICIES}


register(ProvisioningPolicy())
register(ThroughputSloPolicy())
