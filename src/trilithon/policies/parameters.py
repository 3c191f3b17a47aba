"""Defines parameters of policies: each has a default, a unit, a meaning and a range."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self

from trilithon.errors import InvalidPolicy


def choice(default: str, options: Collection[str], meaning: str) -> Any:
    """A parameter that is one of a few words; `options` may be the keys of a growing registry."""
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


def choices(options: Collection[str], meaning: str, default: str = "") -> Any:
    """A parameter that is any number of words, with commas between them; by default none. With
    another default it is at least one word.
    """
    return field(
        default=default,
        metadata={
            "unit": "words",
            "meaning": meaning,
            "least": 0.0,
            "most": 0.0,
            "options": options,
            "several": True,
        },
    )


def parameter(
    default: float, unit: str, meaning: str, *, least: float = 0.0, most: float = math.inf
) -> Any:
    """A parameter that is a number. If its default is an int, it takes whole numbers only."""
    return field(
        default=default, metadata={"unit": unit, "meaning": meaning, "least": least, "most": most}
    )


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """Describes a parameter: a number in a range, or one of some words (`options`), or `several` of
    them.
    """

    name: str
    default: float | str
    unit: str
    meaning: str
    least: float
    most: float
    options: Collection[str] = ()
    several: bool = False


@dataclass(frozen=True)
class Parameters:
    """The parameters of one policy. Subclasses name them with `parameter` and `choice`."""

    @classmethod
    @cache
    def describe(cls) -> tuple[ParameterInfo, ...]:
        return tuple(
            ParameterInfo(f.name, f.default, **f.metadata)  # type: ignore[arg-type]
            for f in fields(cls)
        )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Parameters from data, with defaults for those that are absent; refuses unknown names."""
        known = [info.name for info in cls.describe()]
        if unknown := sorted(set(given) - set(known)):
            raise InvalidPolicy(
                f"No parameter is named {', '.join(map(repr, unknown))}.",
                f"Use one of: {', '.join(known) or 'none'}.",
            )
        return cls(**given)

    def __post_init__(self) -> None:
        for info in self.describe():
            value = getattr(self, info.name)
            if info.options or info.several:
                words = separate(value) if info.several else (value,)
                none = not words and bool(info.default)
                if none or any(word not in info.options for word in words):
                    raise InvalidPolicy(
                        f"The parameter {info.name!r} is {value!r}.",
                        f"Use one of: {', '.join(info.options)}.",
                    )
                continue
            whole = isinstance(info.default, int)
            number = isinstance(value, int if whole else int | float)
            if isinstance(value, bool) or not number or not info.least <= value <= info.most:
                kind = "a whole number" if whole else "a number"
                limits = (
                    f"of at least {info.least:g}"
                    if math.isinf(info.most)
                    else f"from {info.least:g} to {info.most:g}"
                )
                raise InvalidPolicy(
                    f"The parameter {info.name!r} is {value!r}.",
                    f"Use {kind} ({info.unit}) {limits}.",
                )

    def given(self) -> dict[str, float | str]:
        """The values by name, as JSON data."""
        return {info.name: getattr(self, info.name) for info in self.describe()}


def separate(words: object) -> tuple[str, ...]:
    """The words of a parameter that is several; anything else than text is one wrong word."""
    if not isinstance(words, str):
        return (repr(words),)
    return tuple(word.strip() for word in words.split(",") if word.strip())
