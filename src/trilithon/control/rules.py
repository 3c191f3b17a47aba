"""Defines and reads the rules of the guard and the loop: limits, quotas, quiet hours."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trilithon.errors import InvalidPolicy
from trilithon.model.mode import Mode
from trilithon.policies.parameters import Parameters, parameter

DAY_S: Final = 86_400.0
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class Limits(Parameters):
    """The limits of the guard and the loop."""

    round_s: float = parameter(10.0, "s", "from one round to the next", least=0.1)
    decide_s: float = parameter(
        30.0, "s", "that a policy may take to decide; one that takes longer is skipped", least=0.01
    )
    cool_down_s: float = parameter(30.0, "s", "after a change, before the next one of that job")
    up_factor: float = parameter(2.0, "ratio", "an operator's most growth at once", least=1)
    down_factor: float = parameter(0.5, "ratio", "an operator's most shrinking at once", most=1)
    down_delay_s: float = parameter(60.0, "s", "how long fewer must be wished for; the most counts")
    saturated: float = parameter(
        0.9, "ratio", "capacity from which nothing is lowered; 1 switches this off", most=1
    )
    backlog_s: float = parameter(5.0, "s", "backlog, in seconds of arrivals, that forbids lowering")
    fresh_s: float = parameter(
        20.0, "s", "complete metrics after a failure or a gap, before acting"
    )
    stale_s: float = parameter(
        30.0, "s", "between two snapshots after which the series begins anew"
    )
    healthy_within_s: float = parameter(120.0, "s", "for a new spec to become healthy", least=1)
    good_after_s: float = parameter(20.0, "s", "of health that make a spec good")
    watch_s: float = parameter(
        30.0, "s", "after an action in which the gap it caused is looked for"
    )
    machines_cool_down_s: float = parameter(
        300.0, "s", "after machines were added or removed, before the next time"
    )
    min_machines: int = parameter(1, "machines", "below this none is removed", least=1)
    max_machines: int = parameter(1000, "machines", "above this none is added", least=1)
    series_every_s: float = parameter(60.0, "s", "between two entries of the compact series")
    keep_series_s: float = parameter(DAY_S, "s", "age limit of the compact series")
    objective: float = parameter(
        0.99,
        "ratio",
        "of the time that intents are to be met; the rest is the error budget",
        most=1,
    )
    keep_history_s: float = parameter(30 * DAY_S, "s", "age limit of decisions, actions and events")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A part of the day, in UTC; it may go over midnight."""

    start_s: float
    end_s: float

    @classmethod
    def of(cls, text: str) -> "QuietHours":
        if (match := _HOURS.fullmatch(text)) is None:
            raise InvalidPolicy(
                f"{text!r} is not a time range.", "Write 22:00-06:00; times are in UTC."
            )
        a, b, c, d = map(int, match.groups())
        return cls(60.0 * (60 * a + b), 60.0 * (60 * c + d))

    def __contains__(self, now_s: float) -> bool:
        at = now_s % DAY_S
        if self.start_s <= self.end_s:
            return self.start_s <= at < self.end_s
        return at >= self.start_s or at < self.end_s


@dataclass(frozen=True)
class Rules:
    """What the operator of a cluster can set. In `quiet` hours nothing is changed."""

    limits: Limits = field(default_factory=Limits)
    quotas: Mapping[str, int] = field(default_factory=dict)
    quiet: tuple[QuietHours, ...] = ()
    mode: Mode = Mode.AUTO
    # One name, or several: layers, the first with precedence.
    policy: str | tuple[str, ...] = "threshold"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Rules":
        """Rules from the data of a file. An unknown rule is refused."""
        known = ("limits", "quotas", "quiet_hours", "mode", "policy", "parameters", "seed")
        if unknown := sorted(set(data) - set(known)):
            raise InvalidPolicy(
                f"There is no rule {unknown[0]!r}.", f"There are: {', '.join(known)}."
            )
        mode = data.get("mode", "auto")
        if mode not in list(Mode):
            raise InvalidPolicy(f"There is no mode {mode!r}.", f"There are: {', '.join(Mode)}.")
        quotas = _mapping(data, "quotas")
        for tenant, quota in quotas.items():
            if not isinstance(quota, int) or isinstance(quota, bool) or quota < 0:
                raise InvalidPolicy(
                    f"The quota of {tenant!r} is {quota!r}.", "Write a number of slots, 0 or more."
                )
        hours = data.get("quiet_hours", [])
        if not isinstance(hours, list) or not all(isinstance(text, str) for text in hours):
            raise InvalidPolicy(
                "`quiet_hours` is not a list of time ranges.",
                "Write 22:00-06:00; times are in UTC.",
            )
        seed = data.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise InvalidPolicy(f"The seed is {seed!r}.", "Write a whole number.")
        return cls(
            limits=Limits.of(_mapping(data, "limits")),
            quotas=quotas,
            quiet=tuple(QuietHours.of(text) for text in hours),
            mode=Mode(mode),
            policy=_policy(data.get("policy", "threshold")),
            parameters=_mapping(data, "parameters"),
            seed=seed,
        )

    def quiet_at(self, now_s: float) -> bool:
        return any(now_s in hours for hours in self.quiet)


def _policy(given: Any) -> str | tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidPolicy(
            f"`policy` is {given!r}.", "Write a name, or a list of names: [dhalion, henge]."
        )
    return names[0] if len(names) == 1 else tuple(names)


def _mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, Mapping):
        raise InvalidPolicy(f"`{name}` is not a mapping.", "Write `name: value` under it.")
    return dict(value)
