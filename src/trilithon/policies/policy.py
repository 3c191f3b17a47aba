"""Defines a policy: a pure function from a scene and a state to decisions and the next state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trilithon.policies.decision import Claim, Decision
from trilithon.policies.parameters import Parameters
from trilithon.policies.requests import ClosedRequest
from trilithon.policies.scene import Scene

# JSON data. A policy's first state is {"seed": n}; one that draws random numbers keeps them there.
State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one round: decisions, the next state, the time until the next round if not the
    usual one, the jobs that the policy claims from now on, and requests of people that have ended.
    """

    decisions: tuple[Decision, ...]
    state: State
    next_round_s: float | None = None
    claims: tuple[Claim, ...] = ()
    closed: tuple[ClosedRequest, ...] = ()


class Policy(Protocol):
    """Decides what to change. The same scene and state give the same verdict, byte for byte: no
    clock, no randomness except from the state, no files, no dependence on the order of sets.
    """

    @property
    def name(self) -> str:
        """The name that users write to select it."""

    @property
    def parameters(self) -> Parameters:
        """Its parameters; name and parameters make the same policy again."""

    @property
    def lookback_s(self) -> float:
        """How long a series of snapshots it needs."""

    @property
    def feedback_rounds(self) -> int:
        """For how many rounds after a decision it needs the feedback on it; 0 for none."""

    def decide(self, scene: Scene, state: State) -> Verdict:
        """Decides one round."""

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        """Its status as JSON data, for people: shown by the API and the command line."""


def decision_id(scene: Scene, job: str | None, ordinal: int = 0) -> str:
    """The unique id of a decision: the round, the policy where several are layered, the job, and an
    ordinal from the second decision on.
    """
    layer = f"{scene.issuer}:" if scene.issuer else ""
    return f"{scene.round}:{layer}{job or 'cluster'}" + (f":{ordinal}" if ordinal else "")
