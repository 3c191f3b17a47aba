"""Limits how many instances an operator gets: bounds, steps, saturation, backlog, and the delay of
lowering.

A policy must ask for fewer instances in every round of a delay before the guard grants it, and the
highest number that it asked for in that time counts: a load that oscillates does not make an
operator oscillate.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trilithon.control.rules import Limits
from trilithon.policies.scene import JobStatus


@dataclass(frozen=True, slots=True)
class LoadSigns:
    """What the guard itself measures of a job: the capacity of its operators (None where unknown),
    and its backlog in seconds of arrivals.
    """

    capacity: Mapping[str, float | None] = field(default_factory=dict)
    backlog_s: float | None = None


class LoweringWishes:
    """Remembers, per job and operator, since when a policy asks for fewer instances. After a
    restart of the daemon the delay begins again.
    """

    def __init__(self) -> None:
        self._wishes: dict[tuple[str, str], list[tuple[float, int]]] = {}
        self._repeated: set[tuple[str, str]] = set()

    def begin_round(self) -> None:
        self._repeated = set()

    def end_round(self) -> None:
        """Forgets the wishes that were not repeated in this round."""
        self._wishes = {key: past for key, past in self._wishes.items() if key in self._repeated}

    def highest(self, key: tuple[str, str], now_s: float, wish: int, delay_s: float) -> int | None:
        """The highest wish within the delay; None while the wishes do not cover the delay."""
        self._repeated.add(key)
        past = [(at_s, count) for at_s, count in self._wishes.get(key, []) if at_s <= now_s]
        # The newest wish from before the delay is kept: it shows that the delay is covered.
        old = sum(at_s <= now_s - delay_s for at_s, _ in past)
        wishes = [*past[max(0, old - 1) :], (now_s, wish)]
        self._wishes[key] = wishes
        covered = wishes[0][0] <= now_s - delay_s
        # A wish holds until the next one, and so into the delay; without a delay, only now counts.
        within = wishes if delay_s > 0 else wishes[-1:]
        return max(count for _, count in within) if covered else None


@dataclass(frozen=True, slots=True)
class InstanceLimits:
    """The limits of one job's operators in this round."""

    limits: Limits
    wishes: LoweringWishes
    status: JobStatus
    signs: LoadSigns
    now_s: float
    # Whether a step may be at most so large.
    in_steps: bool = True

    def grant(self, operator: str, wish: int) -> tuple[int, list[str]]:
        """How many instances of an operator are granted, and the codes of limits that applied."""
        current = self.status.allocation.parallelism[operator]
        if wish == current:
            return current, []
        if operator in self.status.fixed:
            return current, ["FIXED"]
        codes: list[str] = []
        count = self.status.spans[operator].clip(wish)
        if count != wish:
            codes.append("MINIMUM" if count > wish else "MAXIMUM")
        if (count - current) * (wish - current) < 0:
            # The owner changed the bounds meanwhile: a wish for more must not lower, nor the
            # reverse.
            return current, codes
        if count > current:
            most = max(current + 1, math.floor(current * self.limits.up_factor))
            if not self.in_steps:
                most = count
            if count > most:
                codes.append("STEP")
            return min(count, most), codes
        return (current, codes) if count == current else self._lower(operator, count, codes)

    def _lower(self, operator: str, count: int, codes: list[str]) -> tuple[int, list[str]]:
        current, limits = self.status.allocation.parallelism[operator], self.limits
        least = min(current - 1, math.ceil(current * limits.down_factor))
        if count < least:
            codes.append("STEP")
            count = least
        busy = self.signs.capacity.get(operator)
        if limits.saturated < 1 and (busy is None or busy >= limits.saturated):
            return current, [*codes, "SATURATED"]
        if self.signs.backlog_s is None or self.signs.backlog_s > limits.backlog_s:
            return current, [*codes, "BACKLOG"]
        key = (self.status.job, operator)
        highest = self.wishes.highest(key, self.now_s, count, limits.down_delay_s)
        if highest is None or highest >= current:
            return current, [*codes, "DELAYED"]
        return highest, codes if highest == count else [*codes, "DELAYED"]
