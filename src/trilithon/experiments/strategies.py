"""Defines the strategies that an experiment compares: policies, no control, a manual and the best static allocation."""

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
    """Who decides about the instances of a run: a policy with its parameters, or nobody once it has begun."""

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
