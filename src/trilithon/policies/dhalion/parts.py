"""Registers the parts of health policies by name: detectors, diagnosers and resolvers.

A part is a class with a name and one method (`health.py`). Packages name theirs under the entry
points `trilithon.detectors`, `trilithon.diagnosers` and `trilithon.resolvers`; `trilithon.plugins`
loads and registers them. A health policy may name its parts instead of making them, and the
parameters of `dhalion` add parts to a health policy.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Final

from trilithon.errors import InvalidPolicy, NotFound
from trilithon.policies.dhalion.dhalion_parameters import PART_NAMES
from trilithon.policies.dhalion.health import HealthPolicy
from trilithon.policies.dhalion.health_policies import ThroughputSloPolicy

# The method that makes an object a part of each kind.
METHODS: Final[Mapping[str, str]] = {
    "detectors": "detect",
    "diagnosers": "diagnose",
    "resolvers": "resolve",
}
_PARTS: Final[dict[str, dict[str, Any]]] = {kind: {} for kind in METHODS}


def register_part(kind: str, part: Any) -> None:
    """Adds a part; refuses one without its method, or whose name is taken."""
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidPolicy(f"One of the {kind} is named {name!r}.", "Use a name like my_part.")
    if name in _PARTS[kind]:
        raise InvalidPolicy(f"There are two {kind} named {name!r}.", "Rename one.")
    if not callable(getattr(part, METHODS[kind], None)):
        raise InvalidPolicy(f"{name} has no method `{METHODS[kind]}`.", "Write it.")
    _PARTS[kind][name] = part
    PART_NAMES[kind][name] = summary(part)


def unregister_part(kind: str, name: str) -> None:
    """Removes a part."""
    _PARTS[kind].pop(name, None)
    PART_NAMES[kind].pop(name, None)


def parts(kind: str) -> Mapping[str, Any]:
    """The parts of a kind, by name."""
    return dict(_PARTS[kind])


def part(kind: str, name_or_part: Any) -> Any:
    """The part of this name; a part itself stays as it is."""
    if not isinstance(name_or_part, str):
        return name_or_part
    if name_or_part not in _PARTS[kind]:
        known = ", ".join(_PARTS[kind])
        raise NotFound(f"None of the {kind} is named {name_or_part!r}.", f"There are: {known}.")
    return _PARTS[kind][name_or_part]


def summary(part: Any) -> str:
    """What a part says of itself: its `summary`, or the first sentence of its docstring."""
    if isinstance(said := getattr(part, "summary", None), str):
        return said
    first, _, _ = " ".join((inspect.getdoc(type(part)) or "").split()).partition(". ")
    return first.removesuffix(".")


def _register_built_in(policy: HealthPolicy) -> None:
    for kind in METHODS:
        for each in getattr(policy, kind):
            register_part(kind, each)


# It has all parts of the paper.
_register_built_in(ThroughputSloPolicy())
