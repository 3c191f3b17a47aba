"""Defines what a policy is: a pure function from a scene and a state to decisions and the next state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trilithon.policies.decision import Claim, Decision
from trilithon.policies.parameters import Parameters
from trilithon.policies.scene import Scene

# JSON data. The first state of a policy is {"seed": n}; one that draws numbers keeps its place in it.
State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one round: decisions, what to remember, when the policy wants to be asked again if
    not after the usual time, and the jobs that it claims for itself from now on.
    """

    decisions: tuple[Decision, ...]
    state: State
    next_round_s: float | None = None
    claims: tuple[Claim, ...] = ()


class Policy(Protocol):
    """Decides. The same scene and state give the same verdict, byte for byte, today and in a year: no
    clock, no randomness but from the state, no files, no order of sets.
    """

    @property
    def name(self) -> str:
        """By which it is asked for."""

    @property
    def parameters(self) -> Parameters:
        """What it was given; the name and these make the same policy again."""

    @property
    def lookback_s(self) -> float:
        """How long a series it wants to see."""

    @property
    def feedback_rounds(self) -> int:
        """For how many rounds it wants to see what became of a decision; 0 for not at all."""

    def decide(self, scene: Scene, state: State) -> Verdict:
        """One round."""

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """What it publishes about itself, as JSON data: for people, by the API and the command line."""


def decision_id(scene: Scene, job: str | None, ordinal: int = 0) -> str:
    """An id that no other decision has: the round, the policy where several are layered, the job, and a
    number if there are several.
    """
    layer = f"{scene.issuer}:" if scene.issuer else ""
    return f"{scene.round}:{layer}{job or 'cluster'}" + (f":{ordinal}" if ordinal else "")
