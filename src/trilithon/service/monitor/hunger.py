"""Says which jobs are hungry: they miss their intent, and what would help is not to be had.

Whichever policy decides, a job is hungry if the cluster or its tenant's quota has no free slot, or
if the guard clipped the latest decision about it for one of the two. Henge knows a third kind:
jobs that it has scaled up again and again without effect.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from trilithon.policies.free_slots import FreeSlots
from trilithon.policies.registry import report

if TYPE_CHECKING:
    from trilithon.control.guard import Ruling
    from trilithon.control.loop import Controller


class Hunger(StrEnum):
    """Why a job is hungry; the reason of its condition."""

    SCALED = "MissesAfterScaling"
    SLOTS = "NoFreeSlots"
    QUOTA = "QuotaReached"


SENTENCES: Final = {
    Hunger.SCALED: "It was scaled up several times and still misses its intent.",
    Hunger.SLOTS: "It misses its intent, and the cluster has no free slots for it.",
    Hunger.QUOTA: "It misses its intent, and its tenant's quota is used up.",
}
_CLIPS: Final = {"SLOTS": Hunger.SLOTS, "QUOTA": Hunger.QUOTA}


@dataclass
class ClippedJobs:
    """The jobs whose latest decision asked for more slots than the guard could grant."""

    jobs: dict[str, Hunger] = field(default_factory=dict)

    def add(self, rulings: "tuple[Ruling, ...]") -> None:
        for ruling in rulings:
            if (job := ruling.decision.job) is None:
                continue
            clipped = [_CLIPS[clip.code] for clip in ruling.clips if clip.code in _CLIPS]
            if clipped:
                self.jobs[job] = clipped[0]
            elif ruling.acts:
                self.jobs.pop(job, None)  # it got what was asked for

    def keep(self, jobs: Iterable[str]) -> None:
        """Forgets all others: a job that met its intent since is not short of anything."""
        self.jobs = {job: self.jobs[job] for job in jobs if job in self.jobs}


class HungryJobs:
    """Why a job that misses its intent does not get more, by what one round saw."""

    def __init__(self, controller: "Controller", clipped: ClippedJobs) -> None:
        self._clipped = dict(clipped.jobs)
        self._scaled: frozenset[str] = frozenset()
        self._free: FreeSlots | None = None
        if (scene := controller.scene) is not None:
            self._free = FreeSlots.of(scene)
            data = report("hungry", scene, controller.policy, controller.state.policy_state)
            self._scaled = frozenset(() if data is None else data["jobs"])

    def reason(self, job: str, tenant: str) -> Hunger | None:
        """Why a job that misses its intent is hungry; None if it is not."""
        if job in self._scaled:
            return Hunger.SCALED
        if self._free is not None and self._free.of_tenant(tenant) <= 0:
            return Hunger.QUOTA
        if self._free is not None and self._free.cluster <= 0:
            return Hunger.SLOTS
        return self._clipped.get(job)
