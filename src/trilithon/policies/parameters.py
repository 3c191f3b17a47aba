"""Owns the parameters of policies: each has a default, a unit, a meaning and a range, and is checked."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self

from trilithon.errors import InvalidPolicy


def choice(default: str, options: Collection[str], meaning: str) -> Any:
    """A parameter that is one of a few words. Words may come later, as keys of a registry."""
    return field(
        default=default,
        metadata={
            "unit": "word",
            "meaning": meaning,
            "least": 0.0,
            "most": 0.0,
            "options": options,
        },
    )


def parameter(
    default: float, unit: str, meaning: str, *, least: float = 0.0, most: float = math.inf
) -> Any:
    """A number that a policy can be given. A default that is whole takes whole numbers only."""
    return field(
        default=default, metadata={"unit": unit, "meaning": meaning, "least": least, "most": most}
    )


@dataclass(frozen=True, slots=True)
class Described:
    """What a parameter is: a number in a range, or one of some words."""

    name: str
    default: float | str
    unit: str
    meaning: str
    least: float
    most: float
    options: Collection[str] = ()


@dataclass(frozen=True)
class Parameters:
    """The parameters of one policy. Subclasses name them with `parameter` and `choice`."""

    @classmethod
    @cache
    def describe(cls) -> tuple[Described, ...]:
        return tuple(
            Described(f.name, f.default, **f.metadata)  # type: ignore[arg-type]
            for f in fields(cls)
        )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Parameters from data: what is not given has its default, what is not known is refused."""
        known = [described.name for described in cls.describe()]
        if unknown := sorted(set(given) - set(known)):
            raise InvalidPolicy(
                f"There is no parameter {', '.join(map(repr, unknown))}.",
                f"There are: {', '.join(known) or 'none'}.",
            )
        return cls(**given)

    def __post_init__(self) -> None:
        for one in self.describe():
            value = getattr(self, one.name)
            if one.options:
                if value not in one.options:
                    raise InvalidPolicy(
                        f"The parameter {one.name!r} is {value!r}.",
                        f"It is one of: {', '.join(one.options)}.",
                    )
                continue
            whole = isinstance(one.default, int)
            number = isinstance(value, int if whole else int | float)
            if isinstance(value, bool) or not number or not one.least <= value <= one.most:
                kind = "a whole number" if whole else "a number"
                upto = "" if math.isinf(one.most) else f" to {one.most:g}"
                raise InvalidPolicy(
                    f"The parameter {one.name!r} is {value!r}.",
                    f"It is {kind} ({one.unit}) from {one.least:g}{upto}{' on' if not upto else ''}.",
                )

    def given(self) -> dict[str, float | str]:
        """As data."""
        return {described.name: getattr(self, described.name) for described in self.describe()}
