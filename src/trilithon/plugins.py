"""Loads policies of other packages, by their entry points.

    trilithon.policies           a `PolicyEntry`, under the name by which users select it
    trilithon.health_policies    a class of a health policy of `dhalion`
    trilithon.detectors          a class of a part of health policies, by kind
    trilithon.diagnosers
    trilithon.resolvers

Only installed packages can add a policy: no file names an import path. A package that cannot be
loaded is left out, and `trilithon policy list` says why.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from trilithon.errors import NotFound
from trilithon.policies import registry
from trilithon.policies.dhalion import extensions, parts
from trilithon.policies.policy import Policy

POLICIES: Final = "trilithon.policies"
HEALTH_POLICIES: Final = "trilithon.health_policies"
# Parts first: health policies may name them.
PART_GROUPS: Final = {f"trilithon.{kind}": kind for kind in parts.METHODS}


@cache
def load() -> Mapping[str, str]:
    """Registers what is installed, once. Returns what could not be loaded: its name and why."""
    problems: dict[str, str] = {}
    for group in (*PART_GROUPS, HEALTH_POLICIES, POLICIES):
        for point in sorted(entry_points(group=group), key=lambda point: point.name):
            if (problem := register(group, point)) is not None:
                problems[f"{point.name} ({point.value})"] = problem
    return problems


def register(group: str, point: EntryPoint) -> str | None:
    """Registers one entry point; returns why it cannot be, if so."""
    try:
        loaded = point.load()
        if group in PART_GROUPS:
            parts.register_part(PART_GROUPS[group], loaded())
        elif group == HEALTH_POLICIES:
            extensions.register(loaded())
        elif point.name in registry.POLICIES:
            return f"There is a policy {point.name!r} already."
        elif not isinstance(loaded, registry.PolicyEntry):
            return "It is not a PolicyEntry."
        else:
            registry.POLICIES[point.name] = loaded
    except Exception as error:  # noqa: BLE001 - another package must not end the program
        return f"{type(error).__name__}: {error}"
    return None


def policy(name: str | Sequence[str], given: Mapping[str, Any] | None = None) -> Policy:
    """Makes a policy by its name, those of other packages included."""
    problems = load()
    try:
        return registry.policy(name, given)
    except NotFound as error:
        if not problems:
            raise
        hint = f"{error.hint} Not loaded: {'; '.join(f'{n}: {why}' for n, why in problems.items())}"
        raise NotFound(error.message, hint) from error
