"""Defines decisions: what a policy wants, why, from which numbers, and what it expects of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trilithon.model.change import Proposal
from trilithon.model.utility import Sense


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a decision should bring about: a metric of the job (`latency.p95`, `juice` …) is at most, or
    at least, a value by a time.
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
    """What a policy wants of one job, or of the cluster (`job` is None), and why.

    `reason` is a stable code, `sentence` tells it to people, `numbers` are those it came from. `causes`
    are ids of earlier decisions that this one follows from. `issuer` is the policy, where several are
    layered. A decision without changes only informs.
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


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a policy keeps to itself for a while: policies after it leave the job alone."""

    job: str
    until_s: float
    why: str
