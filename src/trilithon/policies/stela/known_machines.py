"""Tells the machines that have come since the last action from those that a cluster had.

Where an engine spreads the tasks of jobs over all machines, as Spark does whenever a batch begins,
instances do not tell it: a new machine may run some, and an old one none. So the policy keeps the
names of the machines that it has used.
"""

from collections.abc import Collection, Mapping
from typing import Any

from trilithon.policies.policy import State
from trilithon.policies.scene import Scene

_STATE_KEY = "known_machines"


class KnownMachines:
    """The machines that count as old: those of the first sight, and those of later actions.

    A machine that comes back under another name, such as an executor that died, takes the place of
    the one that is missing. A machine that stays away is forgotten.
    """

    def __init__(self, first_s: float | None, missing_since_s: Mapping[str, float | None]) -> None:
        self._first_s = first_s
        self._missing_since_s = dict(missing_since_s)

    @classmethod
    def of(cls, state: State) -> "KnownMachines":
        kept: Mapping[str, Any] = state.get(_STATE_KEY) or {}
        return cls(kept.get("first_s"), kept.get("missing_since_s", {}))

    def to_state(self) -> dict[str, Any]:
        kept = {"first_s": self._first_s, "missing_since_s": self._missing_since_s}
        return {_STATE_KEY: kept}

    def newer(self, scene: Scene) -> tuple[str, ...]:
        """The machines that have come since; none before the first sight."""
        if self._first_s is None:
            return ()
        return tuple(name for name in scene.machine_names if name not in self._missing_since_s)

    def observe(
        self, scene: Scene, arriving_s: float, forgotten_s: float, leaving: Collection[str] = ()
    ) -> None:
        """Looks at the machines of a round. Those that come within `arriving_s` of the first sight
        were there before: executors register one after the other. Those that are missing for
        `forgotten_s` are forgotten; none takes the place of one that is `leaving` on request.
        """
        now_s, there = scene.now_s, set(scene.machine_names)
        if not there:
            return
        first = self._first_s is None
        if self._first_s is None:
            self._first_s = now_s
        self._missing_since_s = {
            name: None if name in there else (now_s if since_s is None else since_s)
            for name, since_s in self._missing_since_s.items()
            if name in there or since_s is None or now_s - since_s < forgotten_s
        }
        if first or (now_s - self._first_s < arriving_s and not scene.requests):
            self.learn(there)
            return
        busy = {machine.name: len(machine.instances) for machine in scene.machines}
        strangers = sorted(self.newer(scene), key=lambda name: -busy[name])
        missing = [
            name
            for name, since_s in self._missing_since_s.items()
            if since_s is not None and name not in leaving
        ]
        for gone, stranger in zip(missing, strangers, strict=False):
            del self._missing_since_s[gone]
            self._missing_since_s[stranger] = None

    def learn(self, names: Collection[str]) -> None:
        """These are used from now on."""
        self._missing_since_s |= dict.fromkeys(sorted(names))

    def forget(self, names: Collection[str]) -> None:
        """These have been removed on request."""
        for name in names:
            self._missing_since_s.pop(name, None)
