"""Defines the parts of a health policy: symptoms, diagnoses, resolutions, and what makes them.

Each part is a small class with a name and one method. Users write their own and register them
(`parts.py`, `extensions.py`); a health policy names the parts that it uses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trilithon.model.change import Proposal
from trilithon.policies.decision import Expectation
from trilithon.policies.dhalion.dhalion_parameters import DhalionParameters
from trilithon.policies.dhalion.job_view import MeasuredJob
from trilithon.policies.scene import Scene

Numbers = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Symptom:
    """Something measured that may denote a problem: a compact description with its numbers.
    `instances` are those that it is about; empty for all of the operator.
    """

    kind: str
    operator: str | None
    sentence: str
    numbers: Numbers = field(default_factory=dict)
    instances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause that explains symptoms. Two are similar if kind and operator are the same."""

    kind: str
    operator: str | None
    sentence: str
    symptoms: tuple[Symptom, ...]
    numbers: Numbers = field(default_factory=dict)
    instances: tuple[int, ...] = ()
    confidence: float = 1.0

    def number(self, name: str) -> float | None:
        return self.numbers.get(name)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a resolver proposes. Without a change that needs the engine it is an alert.
    `claims` asks the policies after this one to leave the job alone meanwhile. `notes` stand in the
    action log, for a resolver that goes step by step.
    """

    action: str
    changes: tuple[Proposal, ...]
    sentence: str
    expects: Expectation | None = None
    claims: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def invasive(self) -> bool:
        return any(change.facet is not None for change in self.changes)


@dataclass(frozen=True, slots=True)
class JobCase:
    """A job under examination: what detectors, diagnosers and resolvers may look at.
    `taken` are the actions of the log, the oldest first. `blacklist` are the keys of what is
    blacklisted now (`action_key`). `lags` are the times and lags of the latest examinations since
    the job was changed, this one last.
    """

    view: MeasuredJob
    scene: Scene
    parameters: DhalionParameters
    taken: tuple["LogEntry", ...] = ()
    blacklist: frozenset[str] = frozenset()
    lags: tuple[tuple[float, float], ...] = ()

    @property
    def name(self) -> str:
        return self.view.job.id

    def blacklisted(self, diagnosis: Diagnosis, action: str) -> bool:
        """Whether an action is not to be repeated for such a diagnosis. A resolver that goes step
        by step skips such a step.
        """
        return action_key(diagnosis.kind, diagnosis.operator, action) in self.blacklist


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the action log (section 4.2): what was done, when, for which diagnosis, and the
    figures of that time. `helped` is None until the action was evaluated. `notes` are what the
    resolver wanted to remember, and `policy` is the health policy that judges the action.
    """

    action: str
    time_s: float
    kind: str
    operator: str | None
    decision: str
    before: Numbers
    helped: bool | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    policy: str = ""


class Detector(Protocol):
    """Finds symptoms of one kind in a case."""

    name: str

    def detect(self, case: JobCase) -> Sequence[Symptom]: ...


class Diagnoser(Protocol):
    """Explains symptoms by one cause, if it can."""

    name: str

    def diagnose(self, case: JobCase, symptoms: Sequence[Symptom]) -> Sequence[Diagnosis]: ...


class Resolver(Protocol):
    """Proposes what to do about a diagnosis; None if it does not apply to it. One that parameters
    may add has `cures` besides: the kinds of diagnoses for which it is asked first.
    """

    name: str

    def resolve(self, case: JobCase, diagnosis: Diagnosis) -> Resolution | None: ...


class HealthPolicy(Protocol):
    """Names its parts, chooses the resolver and judges actions (sections 4.1 and 4.3). A registered
    one may give the names of registered parts in place of the parts.
    """

    name: str
    summary: str
    detectors: tuple[Detector, ...]
    diagnosers: tuple[Diagnoser, ...]
    resolvers: tuple[Resolver, ...]

    def candidates(self, case: JobCase, diagnosis: Diagnosis) -> Sequence[str]:
        """The names of resolvers for a diagnosis, the best first. If the first is blacklisted, one
        of the others is drawn.
        """

    def helped(self, case: JobCase, entry: LogEntry) -> bool | None:
        """Whether an action has helped, by the figures of now; None if that cannot be said yet."""


def action_key(kind: str, operator: str | None, action: str) -> str:
    """The key of a pair of diagnosis and action, by which it is blacklisted (section 4.3)."""
    return f"{kind}/{operator or ''}/{action}"


def figures(case: JobCase, operator: str | None) -> dict[str, float | None]:
    """The figures of a case that an action is judged by later."""
    view = case.view
    worst = max((each.held_back for each in view.operators if each.holds_back), default=0.0)
    own = next((each.held_back for each in view.operators if each.name == operator), None)
    return {
        "back_pressure": worst,
        "operator_back_pressure": own,
        "emission": view.emission_per_s,
        "lag_growth": view.lag_growth_per_s,
        "instances": float(view.status.allocation.instances),
    }
