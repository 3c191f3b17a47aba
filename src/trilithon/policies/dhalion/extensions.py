"""Registers health policies by name: those of the paper, and those of users.

A health policy is a class with the parts and methods of `health.HealthPolicy`. Packages name theirs
under the entry point `trilithon.health_policies`; `trilithon.plugins` loads and registers them. A
health policy may also name built-in parts: they are listed here by name.
"""

from collections.abc import Mapping
from typing import Final

from trilithon.errors import InvalidPolicy, NotFound
from trilithon.policies.dhalion.dhalion_parameters import HEALTH_POLICY_NAMES
from trilithon.policies.dhalion.health import HealthPolicy
from trilithon.policies.dhalion.health_policies import ProvisioningPolicy, ThroughputSloPolicy

_POLICIES: Final[dict[str, HealthPolicy]] = {}
_PARTS: Final = {"detectors": "detect", "diagnosers": "diagnose", "resolvers": "resolve"}


def register(policy: HealthPolicy) -> None:
    """Adds a health policy; refuses one that lacks a part, or whose name is taken."""
    name = getattr(policy, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidPolicy(f"A health policy is named {name!r}.", "Use a name like my_policy.")
    if name in _POLICIES:
        raise InvalidPolicy(f"There are two health policies named {name!r}.", "Rename one.")
    for part, method in _PARTS.items():
        for each in getattr(policy, part, (None,)):
            if not callable(getattr(each, method, None)):
                raise InvalidPolicy(
                    f"{name}: one of its {part} has no method `{method}`.",
                    f"Give `{part}` as a tuple of objects with `name` and `{method}`.",
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
    if name not in _POLICIES:
        raise NotFound(
            f"No health policy is named {name!r}.", f"There are: {', '.join(_POLICIES)}."
        )
    return _POLICIES[name]


def health_policies() -> Mapping[str, HealthPolicy]:
    return dict(_POLICIES)


register(ProvisioningPolicy())
register(ThroughputSloPolicy())
