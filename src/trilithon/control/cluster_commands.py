"""Carries out the commands about machines: scale out, scale in, and what either would do.

A request is written to the journal and answered at once; the policy `stela` carries it out in the
next rounds. What a request would do is computed from what the last round saw, and changes nothing.
"""

from typing import Any, Final

from trilithon.control.loop import Controller
from trilithon.errors import NotFound, Refused
from trilithon.model.capability import Ability, How
from trilithon.policies.layered import LayeredPolicy
from trilithon.policies.policy import Policy
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Scene
from trilithon.policies.stela.planning import hindrance, preview
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.policies.stela.stela_policy import StelaPolicy

NO_POLICY: Final = "POLICY_MISSING"


class ClusterCommands:
    """The commands about machines, for one controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def preview(self, kind: ScalingKind, machines: int, job: str | None = None) -> dict[str, Any]:
        """The ranking, the projected throughput and the plan of a request; nothing is changed."""
        controller = self._controller
        request = self._request(kind, machines, job)
        scene = controller.scene
        if scene is None:
            raise NotFound("There are no measurements yet.", "Ask again after a few rounds.")
        policy = stela_of(controller.policy)
        parameters = StelaParameters() if policy is None else policy.parameters
        newer = () if policy is None else self._newer_machines(policy, scene)
        return {
            "request": kind.value,
            "machines": machines,
            "job": request.job,
            "carried_out_by": None if policy is None else policy.name,
            **preview(scene, request, parameters, controller.rules.seed, newer),
        }

    def scale(self, kind: ScalingKind, machines: int, job: str | None = None) -> ScalingRequest:
        """Accepts a request. Refused at once if it can never be carried out as things are."""
        controller = self._controller
        policy = stela_of(controller.policy)
        if policy is None:
            raise Refused(
                NO_POLICY,
                f"The policy {controller.policy.name} does not carry out requests for machines.",
                "Add stela to `policy` in the rules, in front of others, and restart the daemon.",
            )
        request = self._request(kind, machines, job)
        can_remove = controller.cluster.capabilities.of(Ability.REMOVE_MACHINES)
        if kind is ScalingKind.IN and can_remove is How.NOT_AT_ALL:
            raise Refused(
                "CANNOT_REMOVE_MACHINES",
                "This engine cannot remove machines. Nothing was changed.",
                "`--dry-run` says which machines are needed least.",
            )
        with controller.lock:
            scene, reason = controller.scene, None
            if scene is not None:
                newer = self._newer_machines(policy, scene)
                reason = hindrance(scene, request, policy.parameters, newer)
            if reason is not None and not reason.passes:
                raise Refused(reason.code, reason.sentence, "Nothing was changed.")
            controller.journal.request(request)
            controller.state.requests.append(request)
        return request

    def _newer_machines(self, policy: StelaPolicy, scene: Scene) -> tuple[str, ...]:
        """The machines that have come since the last action."""
        whole, state = self._controller.policy, self._controller.state.policy_state
        if isinstance(whole, LayeredPolicy):
            state = whole.state_of(policy, state)
        return policy.newer_machines(scene, state)

    def _request(self, kind: ScalingKind, machines: int, job: str | None) -> ScalingRequest:
        controller = self._controller
        if machines < 1:
            raise Refused("INVALID", f"{machines} machines: ask for 1 or more.", "")
        if job is not None and job not in controller.state.jobs:
            known = ", ".join(controller.state.jobs) or "none"
            raise NotFound(f"There is no job {job!r}.", f"There are: {known}.")
        now_s = controller.clock.now_s()
        number = len(controller.journal.requests(1_000_000)) + 1
        return ScalingRequest(f"{kind.words}-{number}", kind, machines, job, now_s)


def stela_of(policy: Policy) -> StelaPolicy | None:
    """The policy, or the layer of it, that carries out requests for machines."""
    if isinstance(policy, StelaPolicy):
        return policy
    if isinstance(policy, LayeredPolicy):
        return next((layer for layer in policy.layers if isinstance(layer, StelaPolicy)), None)
    return None
