"""Owns Henge as a policy: a round of its state machine between a state and the next."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trilithon.policies.henge.machine import run
from trilithon.policies.henge.memory import Memory
from trilithon.policies.henge.parameters import HengeParameters
from trilithon.policies.henge.report import status
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Scene


@dataclass(frozen=True)
class HengePolicy:
    """`henge`: every intent kept, or the best sum of utilities that could be found."""

    parameters: HengeParameters = field(default_factory=HengeParameters)
    name: str = "henge"

    @property
    def lookback_s(self) -> float:
        return self.parameters.window_s + self.parameters.part_s

    @property
    def feedback_rounds(self) -> int:
        """As long as a step may last: nothing that a later round could ask about is gone by then."""
        parameters = self.parameters
        longest_s = parameters.settle_most_s + parameters.recover_s + parameters.settle_s
        return math.ceil(longest_s / parameters.round_s) + 1

    def decide(self, scene: Scene, state: State) -> Verdict:
        memory = Memory.of(state.get(self.name, {}))
        memory.blacklist = {j: s for j, s in memory.blacklist.items() if s > scene.now_s}
        decisions = run(scene, self.parameters, memory)
        state = {**state, self.name: memory.data()}
        return Verdict(tuple(decisions), state, self.parameters.round_s)

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        return status(scene, Memory.of(state.get(self.name, {})))
