"""Defines the strategies that an experiment compares: policies, and allocations without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# Closer than this in satisfaction, two strategies are the same.
SAME: Final = 0.005
# Flink's autoscaler keeps operators 70 % busy (`job.autoscaler.target.utilization`, its default):
# that is sized for so many times the load.
HEADROOM: Final = 1 / 0.7


class StrategyKind(StrEnum):
    POLICY = "policy"
    UNCONTROLLED = "uncontrolled"
    MANUAL = "manual"
    BEST_STATIC = "best static"


@dataclass(frozen=True, slots=True)
class Strategy:
    """What controls a run: a policy with its parameters, or only the allocation at the start.

    The name is the key in result files. A strategy with `other_timing` is a policy that is also
    there with its own timing: it runs in the random mixes, and is not in plots.
    """

    kind: StrategyKind
    name: str
    policy: str = ""
    parameters: tuple[tuple[str, Any], ...] = ()
    # A manual allocation is sized for so many times the median load.
    headroom: float = 1.0
    other_timing: bool = False
    # How it differs from the policy of that name with its defaults, for the page.
    difference: str = ""


def under(policy: str, parameters: Mapping[str, Any] | None = None) -> Strategy:
    """Control by a policy."""
    return Strategy(StrategyKind.POLICY, policy, policy, tuple((parameters or {}).items()))


def with_timing(policy: str, timing: str, parameters: Mapping[str, Any]) -> Strategy:
    """Control by a policy with another timing than its own."""
    name, given = f"{policy} ({timing})", tuple(parameters.items())
    return Strategy(StrategyKind.POLICY, name, policy, given, other_timing=True)


def differing(name: str, policy: str, parameters: Mapping[str, Any], difference: str) -> Strategy:
    """Control by a policy with other parameters than its defaults."""
    given = tuple(parameters.items())
    return Strategy(StrategyKind.POLICY, name, policy, given, difference=difference)


UNCONTROLLED: Final = Strategy(StrategyKind.UNCONTROLLED, "uncontrolled")
MANUAL: Final = Strategy(StrategyKind.MANUAL, "manual")
MANUAL_HEADROOM: Final = Strategy(StrategyKind.MANUAL, "manual with headroom", headroom=HEADROOM)
BEST_STATIC: Final = Strategy(StrategyKind.BEST_STATIC, "best static")
