"""Defines the strategies that an experiment compares: policies, and allocations without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class StrategyKind(StrEnum):
    POLICY = "policy"
    UNCONTROLLED = "uncontrolled"
    MANUAL = "manual"
    BEST_STATIC = "best static"


@dataclass(frozen=True, slots=True)
class Strategy:
    """What controls a run: a policy with its parameters, or only the allocation at the start."""

    kind: StrategyKind
    policy: str = ""
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The key in result files: the policy's name, or the kind."""
        return self.policy or str(self.kind)


def under(policy: str, parameters: Mapping[str, Any] | None = None) -> Strategy:
    """Control by a policy."""
    return Strategy(StrategyKind.POLICY, policy, tuple((parameters or {}).items()))


UNCONTROLLED: Final = Strategy(StrategyKind.UNCONTROLLED)
MANUAL: Final = Strategy(StrategyKind.MANUAL)
BEST_STATIC: Final = Strategy(StrategyKind.BEST_STATIC)
