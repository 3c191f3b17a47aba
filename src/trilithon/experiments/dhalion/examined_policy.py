"""Observes the policy `dhalion` in a simulated run: what it decides, and when it examines a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trilithon.policies.decision import Decision
from trilithon.policies.parameters import Parameters
from trilithon.policies.policy import Policy, State, Verdict
from trilithon.policies.scene import Scene


@dataclass
class ExaminedPolicy:
    """A policy `dhalion` that keeps what it decided, and when it examined a job."""

    policy: Policy
    job: str
    decisions: list[Decision] = field(default_factory=list)
    examined_s: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def parameters(self) -> Parameters:
        return self.policy.parameters

    @property
    def lookback_s(self) -> float:
        return self.policy.lookback_s

    @property
    def feedback_rounds(self) -> int:
        return self.policy.feedback_rounds

    def decide(self, scene: Scene, state: State) -> Verdict:
        verdict = self.policy.decide(scene, state)
        self.decisions += verdict.decisions
        # An examination without any symptom leaves no decision, but its time.
        if verdict.state["jobs"].get(self.job, {}).get("checked_s") == scene.now_s:
            self.examined_s.append(scene.now_s)
        return verdict

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        return self.policy.status(scene, state)

    @property
    def changed(self) -> bool:
        """Whether it asked for a change; an alert is none."""
        return any(change.facet is not None for d in self.decisions for change in d.changes)
