"""Defines Henge as a policy: one round of its state machine takes a state to the next state."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trilithon.policies.henge.henge_parameters import HengeParameters
from trilithon.policies.henge.memory import Memory
from trilithon.policies.henge.state_machine import run_round
from trilithon.policies.henge.status import status
from trilithon.policies.policy import State, Verdict
from trilithon.policies.scene import Scene


@dataclass(frozen=True)
class HengePolicy:
    """`henge`: meets every intent or, where it cannot, maximises the sum of utilities."""

    parameters: HengeParameters = field(default_factory=HengeParameters)
    name: str = "henge"

    @property
    def lookback_s(self) -> float:
        return self.parameters.window_s + self.parameters.part_s

    @property
    def feedback_rounds(self) -> int:
        """The longest that a step can last: its decisions' feedback is needed until it ends."""
        parameters = self.parameters
        longest_s = parameters.settle_most_s + parameters.recover_s + parameters.settle_s
        return math.ceil(longest_s / parameters.round_s) + 1

    def decide(self, scene: Scene, state: State) -> Verdict:
        memory = Memory.of(state.get(self.name, {}))
        memory.blacklist = {
            job: until_s for job, until_s in memory.blacklist.items() if until_s > scene.now_s
        }
        decisions = run_round(scene, self.parameters, memory)
        state = {**state, self.name: memory.as_json()}
        return Verdict(tuple(decisions), state, self.parameters.round_s)

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        return status(scene, Memory.of(state.get(self.name, {})))
