"""Audits requests for machines: who asked for what, and the cluster before and after.

A request is carried out rounds later. So it has two entries in the audit log: one when it is
accepted, and one, of the same caller, when it has ended.
"""

from typing import Any, Final

from trilithon.control.loop import Controller
from trilithon.errors import NotAudited
from trilithon.policies.requests import ScalingRequest
from trilithon.service.access.roles import Caller
from trilithon.service.access.store import AccessStore

SUBJECT: Final = "cluster"
_REQUESTED: Final = " requested"
_ENDED: Final = " ended"
_LOOKED_AT: Final = 10_000


class ScalingAudit:
    """Follows the requests of one controller to their end, over restarts of the daemon too."""

    def __init__(self, controller: Controller, store: AccessStore) -> None:
        self._controller, self._store = controller, store
        self._open: dict[str, tuple[Caller, str, Any]] = {}
        pending = {request.id for request in controller.state.requests}
        for entry in store.audited(_LOOKED_AT) if pending else ():
            if entry.subject == SUBJECT and entry.action.endswith(_REQUESTED):
                request = entry.after["request"]
                if request in pending:
                    caller = Caller(entry.token, entry.name, cluster_admin=True)
                    action = entry.action.removesuffix(_REQUESTED)
                    self._open[request] = (caller, action, entry.before)

    def requested(self, caller: Caller, request: ScalingRequest) -> None:
        """Audits a request that was accepted."""
        before, action = self._cluster(), request.kind.words
        asked = {
            "request": request.id,
            "machines": request.machines,
            "machine_names": list(request.machine_names),
            "job": request.job,
        }
        self._open[request.id] = (caller, action, before)
        self._store.audit(caller, action + _REQUESTED, None, SUBJECT, before, asked)

    def after_round(self) -> None:
        """Audits the requests that have ended since, whoever ended them. If the log cannot be
        written, the next round tries again.
        """
        if not self._open:
            return
        still_open = {request.id for request in self._controller.state.requests}
        ended = [request for request in self._open if request not in still_open]
        if not ended:
            return
        rows = {row.request.id: row for row in self._controller.journal.requests(_LOOKED_AT)}
        for request in ended:
            caller, action, before = self._open[request]
            row = rows[request]
            after = {"request": request, "done": row.done, "told": row.message, **self._cluster()}
            try:
                self._store.audit(caller, action + _ENDED, None, SUBJECT, before, after)
            except NotAudited:
                return
            del self._open[request]

    def _cluster(self) -> dict[str, Any]:
        """What requests change: the machines, and the slots that they bring."""
        scene = self._controller.scene
        machines = [] if scene is None else list(scene.machine_names)
        return {"machines": machines, "slots": self._controller.cluster.slots}
