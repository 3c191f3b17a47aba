"""Carries out the commands about machines: scale out, scale in, and what either would do.

A request is written to the journal and answered at once; the policy `stela` carries it out in the
next rounds. What a request would do is computed from what the last round saw, and changes nothing.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from trilithon.control.loop import Controller
from trilithon.errors import NotFound, NotUnderstood, Refused
from trilithon.model.capability import Ability, How
from trilithon.policies.layered import LayeredPolicy
from trilithon.policies.policy import Policy
from trilithon.policies.requests import ScalingKind, ScalingRequest
from trilithon.policies.scene import Scene
from trilithon.policies.stela.planning import (
    UNKNOWN_MACHINE,
    hindrance,
    preview,
    unknown_machines,
)
from trilithon.policies.stela.stela_parameters import StelaParameters
from trilithon.policies.stela.stela_policy import StelaPolicy

NO_POLICY: Final = "POLICY_MISSING"
_UNCHANGED: Final = "Nothing was changed."


class ClusterCommands:
    """The commands about machines, for one controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def preview(
        self,
        kind: ScalingKind,
        machines: int | None = None,
        job: str | None = None,
        machine_names: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The ranking, the projected throughput and the plan of a request; nothing is changed."""
        controller = self._controller
        request = self._request(kind, machines, job, machine_names)
        scene = self._measured()
        policy = stela_of(controller.policy)
        parameters = StelaParameters() if policy is None else policy.parameters
        newer = () if policy is None else self._newer_machines(policy, scene)
        return {
            "request": kind.value,
            "machines": request.machines,
            "machine_names": list(request.machine_names),
            "job": request.job,
            "carried_out_by": None if policy is None else policy.name,
            **preview(scene, request, parameters, controller.rules.seed, newer),
        }

    def scale(
        self,
        kind: ScalingKind,
        machines: int | None = None,
        job: str | None = None,
        machine_names: Sequence[str] = (),
    ) -> ScalingRequest:
        """Accepts a request. Refused at once if it can never be carried out as things are."""
        controller = self._controller
        policy = stela_of(controller.policy)
        if policy is None:
            raise Refused(
                NO_POLICY,
                f"The policy {controller.policy.name} does not carry out requests for machines.",
                "Add stela to `policy` in the rules, in front of others, and restart the daemon.",
            )
        request = self._request(kind, machines, job, machine_names)
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
                raise Refused(reason.code, reason.sentence, _UNCHANGED)
            controller.journal.request(request)
            controller.state.requests.append(request)
        return request

    def _newer_machines(self, policy: StelaPolicy, scene: Scene) -> tuple[str, ...]:
        """The machines that have come since the last action."""
        whole, state = self._controller.policy, self._controller.state.policy_state
        if isinstance(whole, LayeredPolicy):
            state = whole.state_of(policy, state)
        return policy.newer_machines(scene, state)

    def _measured(self) -> Scene:
        """What the last round saw."""
        if (scene := self._controller.scene) is None:
            raise NotFound("There are no measurements yet.", "Ask again after a few rounds.")
        return scene

    def _request(
        self,
        kind: ScalingKind,
        machines: int | None,
        job: str | None,
        machine_names: Sequence[str],
    ) -> ScalingRequest:
        controller, names = self._controller, tuple(machine_names)
        machines = _count(machines, names)
        if machines < 1:
            raise Refused("INVALID", f"{machines} machines: ask for 1 or more.", "")
        if names and (unknown := unknown_machines(self._measured(), names)):
            raise Refused(UNKNOWN_MACHINE, unknown, _UNCHANGED)
        if job is not None and job not in controller.state.jobs:
            known = ", ".join(controller.state.jobs) or "none"
            raise NotFound(f"There is no job {job!r}.", f"There are: {known}.")
        now_s = controller.clock.now_s()
        number = len(controller.journal.requests(1_000_000)) + 1
        return ScalingRequest(f"{kind.words}-{number}", kind, machines, job, now_s, names)


def _count(machines: int | None, names: Sequence[str]) -> int:
    """How many machines are asked for, by a number, by names, or by both if they agree."""
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        what = f"{', '.join(map(repr, repeated))}: named more than once."
        raise NotUnderstood(what, f"Name each machine once. {_UNCHANGED}")
    if machines is None and not names:
        raise NotUnderstood(
            "No number of machines, and none is named.", f"Write one of them. {_UNCHANGED}"
        )
    if machines is not None and names and machines != len(names):
        raise NotUnderstood(
            f"{machines} machines are asked for, and {len(names)} named: {', '.join(names)}.",
            f"Leave the number out, or name as many. {_UNCHANGED}",
        )
    return len(names) if machines is None else machines


def stela_of(policy: Policy) -> StelaPolicy | None:
    """The policy, or the layer of it, that carries out requests for machines."""
    if isinstance(policy, StelaPolicy):
        return policy
    if isinstance(policy, LayeredPolicy):
        return next((layer for layer in policy.layers if isinstance(layer, StelaPolicy)), None)
    return None
