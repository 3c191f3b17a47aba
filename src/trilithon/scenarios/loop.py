"""Owns the rounds of a simulated run: look, let the policy decide, do what it says.

Without guard and journal: a run that is not real needs neither, and both have their own tests. One change
per job at a time, with a pause after it, is what is left of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from trilithon.contract.assembler import Assembler
from trilithon.contract.engine import Engine, Outcome, Reallocate, Status
from trilithon.model.allocation import Allocation
from trilithon.model.series import Series
from trilithon.policies.policy import Decision, Policy, State
from trilithon.policies.scene import Cluster, Scene, Span, Standing

KEPT_S = 600.0


@dataclass(frozen=True)
class Acted:
    """A decision, and what came of each of its actions."""

    time_s: float
    decision: Decision
    outcomes: tuple[Outcome, ...]


class Rounds(Protocol):
    """Whoever looks at an engine in rounds, and may act on it."""

    @property
    def series(self) -> Series: ...

    def round(self, now_s: float, *, decide: bool) -> Sequence[Acted]: ...


@dataclass
class PolicyRounds:
    """A policy over an engine; none only looks."""

    engine: Engine
    policy: Policy | None
    cool_down_s: float
    seed: int = 0
    series: Series = field(default_factory=lambda: Series((), KEPT_S))
    _assembler: Assembler = field(default_factory=Assembler)
    _known: dict[str, Allocation] = field(default_factory=dict)
    _since_s: dict[str, float] = field(default_factory=dict)
    _changed_s: dict[str, float] = field(default_factory=dict)
    _state: State = field(default_factory=dict)
    _number: int = 0

    def __post_init__(self) -> None:
        self._state = {"seed": self.seed}
        if self.policy is not None:
            self.series = Series((), max(self.policy.lookback_s, 2.0))

    def round(self, now_s: float, *, decide: bool) -> Sequence[Acted]:
        self._number += 1
        self._look(now_s)
        if self.policy is None or not decide:
            return ()
        scene = self._scene(now_s)
        verdict = self.policy.decide(scene, self._state)
        self._state = verdict.state
        return [self._act(decision, now_s) for decision in verdict.decisions]

    def _look(self, now_s: float) -> None:
        accepted = self.engine.jobs()
        for name in self._known.keys() - accepted.keys():
            self._assembler.forget(name)
            del self._known[name]
        for name, one in accepted.items():
            self._since_s.setdefault(name, now_s)
            if self._known.get(name) is not one.allocation:
                self._known[name] = one.allocation
                self._assembler.expect(one.job, one.allocation)
        for report in self.engine.reports():
            self._assembler.take(report)
        self.series = self.series.extended([self._assembler.snapshot(now_s)])

    def _scene(self, now_s: float) -> Scene:
        accepted = self.engine.jobs()
        standings = {}
        for name, one in accepted.items():
            changed_s = self._changed_s.get(name)
            cooling = changed_s is not None and now_s - changed_s < self.cool_down_s
            ill = "" if one.health == "running" else "UNHEALTHY"
            standings[name] = Standing(
                job=name,
                tenant=one.job.tenant,
                allocation=one.allocation,
                accepted_s=self._since_s[name],
                changed_s=changed_s,
                held=ill or ("COOLING_DOWN" if cooling else ""),
                fixed=frozenset(one.job.bounds.fixed),
                spans={
                    operator.name: Span(operator.parallelism.min, operator.parallelism.max)
                    for operator in one.job.operators
                },
            )
        capabilities = self.engine.capabilities()
        cluster = Cluster(
            capabilities,
            capabilities.slots,
            sum(one.allocation.instances for one in accepted.values()),
            machines=self.series.last.layout.machines,
        )
        return Scene(self._number, self.series, standings, cluster)

    def _act(self, decision: Decision, now_s: float) -> Acted:
        outcomes = []
        for action in decision.actions:
            wanted = action
            if isinstance(action, Reallocate):
                now = self._known.get(action.job)
                if now is not None:
                    allocation = replace(action.allocation, generation=now.generation + 1)
                    wanted = Reallocate(allocation)
            outcome = self.engine.apply(wanted)
            if outcome.status is Status.DONE and (job := getattr(action, "job", None)):
                self._changed_s[job] = now_s
            outcomes.append(outcome)
        return Acted(now_s, decision, tuple(outcomes))
