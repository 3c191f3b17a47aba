"""Owns what a policy is: a pure function from a scene and a state to decisions and the next state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trilithon.model.action import Action
from trilithon.policies.parameters import Parameters
from trilithon.policies.scene import Scene

# JSON data. The first state of a policy is {"seed": n}; one that draws numbers keeps its place in it.
State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a decision is meant to bring about: a metric of the job (`latency.p95`, `juice` …) comes to
    a value by a time.
    """

    metric: str
    value: float
    by_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants of one job, or of the cluster (`job` is None), and why.

    `reason` is a stable code, `sentence` tells it to people, `numbers` are those it came from. `causes`
    are ids of earlier decisions that this one follows from.
    """

    id: str
    job: str | None
    actions: tuple[Action, ...]
    reason: str
    sentence: str
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    expects: Expectation | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one round: decisions, what to remember, and when the policy wants to be asked again
    if not after the usual time.
    """

    decisions: tuple[Decision, ...]
    state: State
    next_round_s: float | None = None


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

    def decide(self, scene: Scene, state: State) -> Verdict:
        """One round."""


def decision_id(scene: Scene, job: str | None, ordinal: int = 0) -> str:
    """An id that no other decision has: the round, the job, and a number if there are several."""
    return f"{scene.round}:{job or 'cluster'}" + (f":{ordinal}" if ordinal else "")
