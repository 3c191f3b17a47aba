"""Layers policies: each sees the decisions of earlier layers and leaves the jobs they claim alone.

A policy claims a job in its verdict, until a time of its choice. While a claim holds, the job's
status tells every other layer to hold off (`CLAIMED`), and the guard refuses their decisions about
the job. The order of layers is the order of precedence.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

from trilithon.model.change import Alert, Severity
from trilithon.policies.decision import Claim, Decision
from trilithon.policies.parameters import Parameters
from trilithon.policies.policy import Policy, State, Verdict, decision_id
from trilithon.policies.requests import ClosedRequest
from trilithon.policies.scene import JobStatus, Scene

CLAIMED: Final = "CLAIMED"
POLICY_FAILED: Final = "POLICY_FAILED"
_CLAIMS: Final = "claims"
_LAYERS: Final = "layers"
SEPARATOR: Final = "+"


@dataclass(frozen=True)
class LayeredParameters(Parameters):
    """The parameters of each layer, by its name."""

    layers: tuple[tuple[str, Parameters], ...] = ()

    def __post_init__(self) -> None:
        """Nothing to check: every layer has checked its own parameters."""

    def given(self) -> dict[str, Any]:
        return {name: parameters.given() for name, parameters in self.layers}


@dataclass(frozen=True)
class LayeredPolicy:
    """Several policies that decide as one, the first with precedence."""

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
        claims = _valid_claims(claims_of(state), scene)
        decisions: tuple[Decision, ...] = ()
        next_rounds_s: list[float] = []
        closed: list[ClosedRequest] = []
        for layer in self.layers:
            first_state = {"seed": state["seed"]} if "seed" in state else {}
            layer_scene = self._scene_of(scene, layer, decisions, claims)
            before = states.get(layer.name, first_state)
            try:
                verdict = layer.decide(layer_scene, before)
            except Exception as error:  # noqa: BLE001 - the other layers must decide
                verdict = _failed(layer, layer_scene, before, error)
            states[layer.name] = verdict.state
            decisions += tuple(
                replace(decision, issuer=layer.name) for decision in verdict.decisions
            )
            closed += verdict.closed
            # A job that another layer has claimed stays claimed by it.
            for claim in verdict.claims:
                if claims.get(claim.job, (layer.name,))[0] == layer.name:
                    claims[claim.job] = (layer.name, claim)
            if verdict.next_round_s is not None:
                next_rounds_s.append(verdict.next_round_s)
        stored_claims = {
            job: {"by": by, **asdict(claim)} for job, (by, claim) in sorted(claims.items())
        }
        return Verdict(
            decisions,
            {**state, _LAYERS: states, _CLAIMS: stored_claims},
            # The layer with the shortest rounds decides; the others run more often than they need.
            min(next_rounds_s) if len(next_rounds_s) == len(self.layers) else None,
            tuple(claim for _, claim in claims.values()),
            tuple(closed),
        )

    def state_of(self, layer: Policy, state: State) -> State:
        """The state of one layer."""
        layer_state: State = state.get(_LAYERS, {}).get(layer.name, {})
        return layer_state

    def status(self, scene: Scene, state: State) -> Mapping[str, Any]:
        return {
            **{
                layer.name: layer.status(scene, self.state_of(layer, state))
                for layer in self.layers
            },
            _CLAIMS: dict(state.get(_CLAIMS, {})),
        }

    def _scene_of(
        self,
        scene: Scene,
        layer: Policy,
        decisions: tuple[Decision, ...],
        claims: Mapping[str, tuple[str, Claim]],
    ) -> Scene:
        """The scene of one layer: jobs that others claim are held, feedback is its own."""
        id_prefix = f"{layer.name}:"
        claimed_by_others = {job for job, (by, _) in claims.items() if by != layer.name}
        return replace(
            scene,
            statuses={
                name: _held(status) if name in claimed_by_others else status
                for name, status in scene.statuses.items()
            },
            feedback={
                id_: feedback
                for id_, feedback in scene.feedback.items()
                if id_.partition(":")[2].startswith(id_prefix)
                and scene.round - feedback.round <= layer.feedback_rounds
            },
            earlier=decisions,
            issuer=layer.name,
        )


def _failed(layer: Policy, scene: Scene, state: State, error: Exception) -> Verdict:
    """A layer that raises is skipped with an alert; it keeps its state."""
    sentence = f"The policy {layer.name} failed: {type(error).__name__}: {error}"
    advice = "Replay a recording with it to find out why."
    alert = Alert(None, Severity.CRITICAL, POLICY_FAILED, sentence, advice)
    id_ = decision_id(scene, None)
    return Verdict((Decision(id_, None, (alert,), POLICY_FAILED, sentence),), state)


def _held(status: JobStatus) -> JobStatus:
    return status if status.hold_reason else replace(status, hold_reason=CLAIMED)


def claims_of(state: State) -> dict[str, tuple[str, Claim]]:
    """The claims in the state of a layered policy: by job, the layer's name and its claim."""
    return {
        job: (claim["by"], Claim(claim["job"], claim["until_s"], claim["why"]))
        for job, claim in state.get(_CLAIMS, {}).items()
    }


def _valid_claims(
    claims: dict[str, tuple[str, Claim]], scene: Scene
) -> dict[str, tuple[str, Claim]]:
    """The claims that have not expired. One also holds while its job has no status for a round, as
    during the restart that cures it.
    """
    return {job: (by, claim) for job, (by, claim) in claims.items() if claim.until_s > scene.now_s}
