"""Layers policies: each sees what those before it decided in this round, and leaves alone what they claimed.

A policy claims a job by its verdict, for as long as it says. While a claim holds, the job's status tells
every policy after it to hold off (`CLAIMED`), and the guard refuses them whatever they decide. The order
of layers is the order of precedence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

from trilithon.policies.decision import Claim, Decision
from trilithon.policies.parameters import Parameters
from trilithon.policies.policy import Policy, State, Verdict
from trilithon.policies.scene import JobStatus, Scene

CLAIMED: Final = "CLAIMED"
_CLAIMS: Final = "claims"
_LAYERS: Final = "layers"
SEPARATOR: Final = "+"


@dataclass(frozen=True)
class LayeredParameters(Parameters):
    """The parameters of each layer, by its name."""

    layers: tuple[tuple[str, Parameters], ...] = ()

    def __post_init__(self) -> None:
        """Every layer has checked its own."""

    def given(self) -> dict[str, Any]:
        return {name: parameters.given() for name, parameters in self.layers}


@dataclass(frozen=True)
class LayeredPolicy:
    """Several policies as one, the first with precedence."""

    layers: tuple[Policy, ...]

    @property
    def name(self) -> str:
        return SEPARATOR.join(layer.name for layer in self.layers)

    @cached_property
    def parameters(self) -> LayeredParameters:
        return LayeredParameters(tuple((layer.name, layer.parameters) for layer in self.layers))

    @property
    def lookback_s(self) -> float:
        return max(layer.lookback_s for layer in self.layers)

    @property
    def feedback_rounds(self) -> int:
        return max(layer.feedback_rounds for layer in self.layers)

    def decide(self, scene: Scene, state: State) -> Verdict:
        states = dict(state.get(_LAYERS, {}))
        claims = _live(claims_of(state), scene)
        decisions: tuple[Decision, ...] = ()
        rounds: list[float] = []
        for layer in self.layers:
            first = {"seed": state["seed"]} if "seed" in state else {}
            seen = self._seen(scene, layer, decisions, claims)
            verdict = layer.decide(seen, states.get(layer.name, first))
            states[layer.name] = verdict.state
            decisions += tuple(replace(one, issuer=layer.name) for one in verdict.decisions)
            # What an earlier layer has claimed stays its own.
            for claim in verdict.claims:
                if claims.get(claim.job, (layer.name,))[0] == layer.name:
                    claims[claim.job] = (layer.name, claim)
            if verdict.next_round_s is not None:
                rounds.append(verdict.next_round_s)
        kept = {job: {"by": by, **asdict(claim)} for job, (by, claim) in sorted(claims.items())}
        return Verdict(
            decisions,
            {**state, _LAYERS: states, _CLAIMS: kept},
            # Who wants to be asked soonest decides: the others are asked more often than they need.
            min(rounds) if len(rounds) == len(self.layers) else None,
            tuple(claim for _, claim in claims.values()),
        )

    def state_of(self, layer: Policy, state: State) -> State:
        """What one layer remembers."""
        found: State = state.get(_LAYERS, {}).get(layer.name, {})
        return found

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        return {
            **{one.name: one.status(scene, self.state_of(one, state)) for one in self.layers},
            _CLAIMS: dict(state.get(_CLAIMS, {})),
        }

    def _seen(
        self,
        scene: Scene,
        layer: Policy,
        decisions: tuple[Decision, ...],
        claims: Mapping[str, tuple[str, Claim]],
    ) -> Scene:
        """The scene of one layer: others' claims hold its jobs, and it gets its own feedback only."""
        mine = f"{layer.name}:"
        others = {job for job, (by, _) in claims.items() if by != layer.name}
        return replace(
            scene,
            statuses={
                name: _held(status) if name in others else status
                for name, status in scene.statuses.items()
            },
            feedback={
                id_: feedback
                for id_, feedback in scene.feedback.items()
                if id_.partition(":")[2].startswith(mine)
                and scene.round - feedback.round <= layer.feedback_rounds
            },
            earlier=decisions,
            issuer=layer.name,
        )


def _held(status: JobStatus) -> JobStatus:
    return status if status.hold_reason else replace(status, hold_reason=CLAIMED)


def claims_of(state: State) -> dict[str, tuple[str, Claim]]:
    """The claims that a layered policy remembers: by job, whose they are and what they say."""
    return {
        job: (claim["by"], Claim(claim["job"], claim["until_s"], claim["why"]))
        for job, claim in state.get(_CLAIMS, {}).items()
    }


def _live(claims: dict[str, tuple[str, Claim]], scene: Scene) -> dict[str, tuple[str, Claim]]:
    return {
        job: (by, claim)
        for job, (by, claim) in claims.items()
        if claim.until_s > scene.now_s and job in scene.statuses
    }


def layered(policies: Sequence[Policy]) -> Policy:
    return policies[0] if len(policies) == 1 else LayeredPolicy(tuple(policies))
