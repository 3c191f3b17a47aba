"""Defines decisions: the changes that a policy proposes, why, and what it expects of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trilithon.model.change import Proposal
from trilithon.model.utility import Sense


@dataclass(frozen=True, slots=True)
class Expectation:
    """The effect that a decision should have: by a time, a metric of the job (`latency.p95`,
    `juice` …) is at most, or at least, a value.
    """

    metric: str
    value: float
    by_s: float
    sense: Sense

    def met_by(self, measured: float) -> bool:
        if self.sense is Sense.AT_MOST:
            return measured <= self.value
        return measured >= self.value


@dataclass(frozen=True, slots=True)
class Decision:
    """The changes that a policy proposes for one job, or for the cluster (`job` is None), and why.

    `reason` is a stable code, `sentence` explains it to people, `numbers` are what it follows from.
    `causes` are the ids of earlier decisions that led to this one. `issuer` is the policy, where
    several are layered. A decision without changes only informs. One that people asked for
    (`on_demand`) is granted and done whole or not at all, and limits that only slow a policy down
    do not apply to it: steps and the cool-down of machines.
    """

    id: str
    job: str | None
    changes: tuple[Proposal, ...]
    reason: str
    sentence: str
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    expects: Expectation | None = None
    issuer: str = ""
    on_demand: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A policy's claim on a job until a time: policies after it leave the job alone."""

    job: str
    until_s: float
    why: str
